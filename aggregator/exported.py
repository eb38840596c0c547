"""Every Prometheus metric that Dither exports, declared once with its help text and labels.

Labels are bounded by the definitions: metrics, their levels and their top categories, outcomes and
partitions; never ids, windows or clients.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Exported:
    """An exported metric.

    Attributes
    ----------
    name : str
        As scraped; a counter's without its ``_total``.
    type : str
        ``gauge``, ``counter`` or ``info``.
    help : str
    labels : tuple of str
    """

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()


ESTIMATE = Exported(
    "dither_estimate",
    "gauge",
    "Estimate over everything counted so far, in the metric's unit.",
    ("metric", "category"),
)
LOWER = Exported(
    "dither_estimate_lower",
    "gauge",
    "Lower confidence bound of the estimate: holds at all times at once.",
    ("metric", "category"),
)
UPPER = Exported(
    "dither_estimate_upper",
    "gauge",
    "Upper confidence bound of the estimate: holds at all times at once.",
    ("metric", "category"),
)
RADIUS = Exported(
    "dither_estimate_radius",
    "gauge",
    "Bound on the l2 distance of the estimated mean vector from the true one.",
    ("metric",),
)
CATEGORIES_LEFT_OUT = Exported(
    "dither_categories_left_out",
    "gauge",
    "Categories or coordinates that are not exported: they are not among the largest.",
    ("metric",),
)
EFFECTIVE_REPORTS = Exported(
    "dither_effective_reports",
    "gauge",
    "Reports without privacy noise that would have the same worst-case variance.",
    ("metric",),
)
REPORTS = Exported(
    "dither_reports",
    "counter",
    "Reports by outcome: accepted, duplicate, late, or the reason for a dead letter.",
    ("metric", "outcome"),
)
LEVEL_REPORTS = Exported(
    "dither_level_reports", "gauge", "Counted reports per privacy level.", ("metric", "level")
)
LEVEL_WEIGHT = Exported(
    "dither_level_weight",
    "gauge",
    "Share of a privacy level in the estimate.",
    ("metric", "level"),
)
HETEROGENEITY = Exported(
    "dither_level_heterogeneity_pvalue",
    "gauge",
    "P-value of the values being independent of the privacy level (Cochran's Q).",
    ("metric",),
)
METRIC = Exported(
    "dither_metric",
    "info",
    "Definition of a metric.",
    ("metric", "kind", "mechanism", "unit", "revision", "levels"),
)
LAST_UPDATE = Exported(
    "dither_estimate_last_update_timestamp_seconds",
    "gauge",
    "When the last counted report of the metric reached Kafka.",
    ("metric",),
)
EVENT_TIME = Exported(
    "dither_event_time_timestamp_seconds",
    "gauge",
    "Latest event time that was counted of the metric.",
    ("metric",),
)
CONSUMER_LAG = Exported(
    "dither_consumer_lag",
    "gauge",
    "Messages in a partition's log that are not counted yet, as of its last commit.",
    ("partition",),
)
LAST_COMMIT = Exported(
    "dither_last_commit_timestamp_seconds",
    "gauge",
    "When a partition's sums were last committed.",
    ("partition",),
)
HALTED = Exported(
    "dither_partition_halted",
    "gauge",
    "1 if a partition is not counted until somebody looks: its log does not go on from its sums.",
    ("partition",),
)
GAP = Exported(
    "dither_gap_offsets",
    "gauge",
    "Offsets of a partition that were lost before they were counted, and accepted as lost.",
    ("partition",),
)
EPOCH = Exported(
    "dither_partition_epoch", "gauge", "Changes of owner of a partition.", ("partition",)
)

ALL = (
    ESTIMATE,
    LOWER,
    UPPER,
    RADIUS,
    CATEGORIES_LEFT_OUT,
    EFFECTIVE_REPORTS,
    REPORTS,
    LEVEL_REPORTS,
    LEVEL_WEIGHT,
    HETEROGENEITY,
    METRIC,
    LAST_UPDATE,
    EVENT_TIME,
    CONSUMER_LAG,
    LAST_COMMIT,
    HALTED,
    GAP,
    EPOCH,
)
