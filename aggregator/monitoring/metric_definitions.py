"""Every Prometheus metric that Dither exports, declared once with its help text and labels.

Labels are bounded by the definitions: metrics, their levels and their top categories, outcomes and
partitions; never windows, batches or clients.

``python -m aggregator.monitoring.metric_definitions > docs/metrics.md`` writes the reference.
"""

from __future__ import annotations

import dataclasses
import itertools
import sys

from aggregator.counting.measurements import COMMIT_BUCKETS, LATENCY_BUCKETS


@dataclasses.dataclass(frozen=True)
class Exported:
    """An exported metric.

    Attributes
    ----------
    name : str
        As scraped; a counter's without its ``_total``, an info's without its ``_info``.
    type : str
        ``gauge``, ``counter``, ``histogram`` or ``info``.
    help : str
    labels : tuple of str
    buckets : tuple of float
        Of a histogram: the upper bounds of all buckets but the last, which has none.
    """

    name: str
    type: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def scraped(self) -> str:
        """The name as a query has it; a histogram's series add ``_bucket``, ``_sum``, ``_count``.

        Examples
        --------
        >>> REPORTS.scraped, METRIC.scraped, ESTIMATE.scraped
        ('dither_reports_total', 'dither_metric_info', 'dither_estimate')
        """
        return self.name + {"counter": "_total", "info": "_info"}.get(self.type, "")


ESTIMATE = Exported(
    "dither_estimate",
    "gauge",
    "Estimate over everything counted so far, clipped into its bounds, in the metric's unit; a "
    "frequency is a share. Of a minimum or maximum it is the middle of what the rounds have left, "
    "and no more than a guess.",
    ("metric", "category"),
)
UNBIASED = Exported(
    "dither_estimate_unbiased",
    "gauge",
    "The estimate before it is clipped into its bounds: for sums and means of several estimates.",
    ("metric", "category"),
)
LOWER = Exported(
    "dither_estimate_lower",
    "gauge",
    "Lower confidence bound of the estimate: holds at all times from the first report on, at once.",
    ("metric", "category"),
)
UPPER = Exported(
    "dither_estimate_upper",
    "gauge",
    "Upper confidence bound of the estimate: holds at all times from the first report on, at once.",
    ("metric", "category"),
)
RADIUS = Exported(
    "dither_estimate_radius",
    "gauge",
    "Bound on the l2 distance of the estimated mean vector from the true one.",
    ("metric",),
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
    "P-value of the values being independent of the privacy level (Cochran's Q): if it is tiny, "
    "only uniform weights estimate the mean of all reports.",
    ("metric",),
)
METRIC = Exported(
    "dither_metric",
    "info",
    "Definition of a metric.",
    ("metric", "description", "kind", "mechanism", "unit", "revision", "levels"),
)
WEIGHTS = Exported(
    "dither_weights",
    "info",
    "Policy of weights that is in force for a metric.",
    ("metric", "policy"),
)
UNREADABLE = Exported(
    "dither_metric_unreadable",
    "gauge",
    "1 if there is no estimate of a metric because something else is in Redis than was written.",
    ("metric",),
)
LEVEL_LOSS = Exported(
    "dither_level_loss",
    "gauge",
    "Privacy, in epsilon, that the latest release cost a report of a level; only of metrics that "
    "are collected in trust.",
    ("metric", "level"),
)
SATURATION = Exported(
    "dither_release_saturation",
    "gauge",
    "Epsilon above which a privacy level bought nothing in the latest release; not there where its "
    "weights have no such threshold.",
    ("metric",),
)
RELEASED = Exported(
    "dither_release_timestamp_seconds",
    "gauge",
    "End, in event time, of the pane that was released last.",
    ("metric",),
)
RELEASE_DUE = Exported(
    "dither_release_due_timestamp_seconds",
    "gauge",
    "End, in event time, of the oldest pane with reports that is over and not released yet; not "
    "there if there is none.",
    ("metric",),
)
SEARCH_ROUND = Exported(
    "dither_search_round",
    "gauge",
    "Round of a minimum or maximum that is open, or was the last one.",
    ("metric",),
)
SEARCH_ROUNDS = Exported(
    "dither_search_rounds", "gauge", "Rounds of a minimum or maximum in all.", ("metric",)
)
SEARCH_OVER = Exported("dither_search_over", "gauge", "1 once all rounds are decided.", ("metric",))
SEARCH_THRESHOLD = Exported(
    "dither_search_threshold",
    "gauge",
    "What the open round asks about, in the metric's unit; not there at the end.",
    ("metric",),
)
SEARCH_ANSWERS = Exported(
    "dither_search_answers", "gauge", "Counted answers to the open round.", ("metric",)
)
SEARCH_OPENED = Exported(
    "dither_search_round_opened_timestamp_seconds",
    "gauge",
    "When the round was opened.",
    ("metric",),
)
SEARCH_DUE = Exported(
    "dither_search_round_due_timestamp_seconds",
    "gauge",
    "When the open round closes, unless it has all its answers before, or too few even then; not "
    "there at the end.",
    ("metric",),
)
SEARCH_CERTIFIED = Exported(
    "dither_search_certified",
    "gauge",
    "What somebody's value reaches, with probability 1 - beta in all rounds at once: a minimum is "
    "at_most it, a maximum at_least. Nothing is certain about the other side.",
    ("metric", "side"),
)
SEARCH_LOW = Exported(
    "dither_search_bisection_low",
    "gauge",
    "Lower end of what the rounds have left of the range. No confidence bound: see "
    "dither_search_certified.",
    ("metric",),
)
SEARCH_HIGH = Exported(
    "dither_search_bisection_high",
    "gauge",
    "Upper end of what the rounds have left of the range. No confidence bound: see "
    "dither_search_certified.",
    ("metric",),
)
SEARCH_ALPHA = Exported(
    "dither_search_tail_alpha",
    "gauge",
    "Exponent of the tail towards the extreme; not there where the run does not show it.",
    ("metric",),
)
COORDINATOR_LEADER = Exported(
    "dither_coordinator_leader",
    "gauge",
    "1 while a `dither coordinate` has the lease to open and decide rounds.",
)
REPORTS = Exported(
    "dither_reports",
    "counter",
    "Reports by outcome: accepted, duplicate, or the reason for a dead letter (late, future, "
    "malformed, ...). Reports whose metric is not known have no metric.",
    ("metric", "outcome"),
)
DEADLETTERS = Exported(
    "dither_deadletters",
    "counter",
    "Messages that were sent to the dead-letter topic instead of being counted, by reason.",
    ("reason",),
)
CONSUMER_LAG = Exported(
    "dither_consumer_lag",
    "gauge",
    "Messages of a partition that are not counted yet: where its log ends now, as Kafka says, less "
    "what is counted; NaN where Kafka does not say.",
    ("partition",),
)
END_TO_END_LATENCY = Exported(
    "dither_end_to_end_latency_seconds",
    "histogram",
    "Time from Kafka's timestamp of a message to the commit that counts it, over all partitions.",
    buckets=LATENCY_BUCKETS,
)
COMMIT_DURATION = Exported(
    "dither_commit_duration_seconds",
    "histogram",
    "Time that writing a partition's sums and its next offset to Redis took, waiting for Redis "
    "included. A commit is counted by the one that follows it.",
    buckets=COMMIT_BUCKETS,
)
COMMIT_BYTES = Exported(
    "dither_commit_bytes",
    "counter",
    "Bytes of panes and batch ids that were written to Redis by these commits.",
)
LAST_COMMIT = Exported(
    "dither_last_commit_timestamp_seconds",
    "gauge",
    "When a partition's sums were last committed; how long ago that is, Redis's clock says.",
    ("partition",),
)
WORKERS = Exported(
    "dither_workers",
    "gauge",
    "Workers that have committed a partition within the last minute; 0 when nobody counts.",
)
KAFKA_UP = Exported(
    "dither_kafka_up",
    "gauge",
    "1 while Kafka tells this server where the partitions of the reports topic end; else their lag "
    "is not known.",
)
DEFINITIONS_UNUSABLE = Exported(
    "dither_definitions_unusable",
    "gauge",
    "1 while the file of definitions of this server, or of a worker, was changed and cannot be "
    "used: the definitions before it stay in force. `/readyz` and `/v1/status` say why.",
)
HALTED = Exported(
    "dither_partition_halted",
    "gauge",
    "1 if a partition is not counted until somebody looks: its log does not go on from its sums, "
    "or a limit of what may be refused or open was reached.",
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
OWNER = Exported(
    "dither_partition_owner",
    "info",
    "The worker that took a partition last, as its host and process.",
    ("partition", "worker"),
)
WORKER_DEATHS = Exported(
    "dither_worker_deaths",
    "counter",
    "Workers that ended without being asked and were started again by `dither aggregate`.",
)
WORKER_STUCK = Exported(
    "dither_worker_stuck_seconds",
    "gauge",
    "Time for which a worker has been in one step; only of workers that are stuck.",
    ("worker", "step"),
)
PUBLISHED = Exported(
    "dither_published_events",
    "counter",
    "Events that are committed to the estimates topic, by type: `final` for each closed pane once, "
    "`provisional` for a running total that has changed.",
    ("type",),
)
EXPIRED = Exported(
    "dither_expired_panes",
    "gauge",
    "Panes that will never have a final event: some of them had expired, by the metric's "
    "`retention`, before every partition had closed them.",
    ("metric",),
)
PUBLISHER_LEADER = Exported(
    "dither_publisher_leader",
    "gauge",
    "1 while one of the servers has the lease to publish events.",
)
REQUESTS = Exported(
    "dither_http_requests",
    "counter",
    "Answers of this server by route, method and class of status; the route is empty where the "
    "path has none.",
    ("route", "method", "status"),
)
REQUEST_DURATION = Exported(
    "dither_http_request_duration_seconds",
    "histogram",
    "Time until this server began to answer, by route.",
    ("route",),
    (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
COLLECTION_DURATION = Exported(
    "dither_collection_duration_seconds",
    "gauge",
    "Time that reading and estimating took for this scrape.",
)
BUILD = Exported("dither_build", "info", "The version of this server.", ("version",))

SECTIONS = {
    "Estimates": (
        ESTIMATE,
        UNBIASED,
        LOWER,
        UPPER,
        RADIUS,
        LAST_UPDATE,
        EVENT_TIME,
        CATEGORIES_LEFT_OUT,
        EFFECTIVE_REPORTS,
        LEVEL_REPORTS,
        LEVEL_WEIGHT,
        HETEROGENEITY,
        METRIC,
        WEIGHTS,
        UNREADABLE,
    ),
    "Releases": (LEVEL_LOSS, SATURATION, RELEASED, RELEASE_DUE),
    "Searches": (
        SEARCH_ROUND,
        SEARCH_ROUNDS,
        SEARCH_OVER,
        SEARCH_THRESHOLD,
        SEARCH_ANSWERS,
        SEARCH_OPENED,
        SEARCH_DUE,
        SEARCH_CERTIFIED,
        SEARCH_LOW,
        SEARCH_HIGH,
        SEARCH_ALPHA,
        COORDINATOR_LEADER,
    ),
    "Reports": (REPORTS, DEADLETTERS),
    "Counting": (
        CONSUMER_LAG,
        END_TO_END_LATENCY,
        COMMIT_DURATION,
        COMMIT_BYTES,
        LAST_COMMIT,
        WORKERS,
        KAFKA_UP,
        DEFINITIONS_UNUSABLE,
        HALTED,
        GAP,
        EPOCH,
        OWNER,
        WORKER_DEATHS,
        WORKER_STUCK,
    ),
    "Publishing": (PUBLISHED, EXPIRED, PUBLISHER_LEADER),
    "Serving": (REQUESTS, REQUEST_DURATION, COLLECTION_DURATION, BUILD),
}
ALL = tuple(itertools.chain.from_iterable(SECTIONS.values()))

LABELS = {
    "side": "`at_least` of a maximum, `at_most` of a minimum",
    "metric": "name of a metric in `metrics.toml`",
    "category": "a category of a frequency or a coordinate of a vector, of which at most the "
    "`serve.top_categories` largest are exported; empty for a mean",
    "level": "the epsilon of a privacy level",
    "outcome": "what became of reports",
    "reason": "why a message could not be counted: docs/data-model.md lists the reasons",
    "partition": "number of a partition of the reports topic",
    "worker": "host and process of a worker; as many as there are partitions at any time",
    "step": "what a worker does: consuming, counting, committing, sending dead letters, taking "
    "over, leaving",
    "type": "`final` or `provisional`",
    "route": "template of a path",
    "method": "HTTP method",
    "status": "`2xx`, `3xx`, `4xx` or `5xx`",
    "policy": "`optimal`, `paper`, `proportional` or `uniform`; of a metric that is collected in "
    "trust one of docs/trusted.md",
    "description": "from the metric's definition, like the kind, mechanism, unit, levels and "
    "revision beside it",
    "version": "of Dither",
}
"""What the values of each label are, by its name."""

HEAD = """\
# Exported metrics

What `dither serve` exports at `/metrics`, in Prometheus' text format or OpenMetrics. Estimates,
reports and counting are read from Redis at each scrape, so that every `dither serve` of a
deployment exports the same: take the maximum over instances before you sum. Counters of reports,
messages and commits go on across restarts and changes of owner, as they are committed together with
what they count; they go back only when Redis itself lost writes. [monitoring.md](monitoring.md)
says how to have them scraped, and [operations.md](operations.md) what the alerts mean.

Generated from `aggregator/monitoring/metric_definitions.py`:
`python -m aggregator.monitoring.metric_definitions > docs/metrics.md`.
"""


def reference() -> str:
    """Return docs/metrics.md."""
    parts = [HEAD]
    for title, declared in SECTIONS.items():
        parts.append(f"## {title}\n\n| metric | type | labels | meaning |\n|---|---|---|---|")
        for one in declared:
            labels = ", ".join(f"`{label}`" for label in one.labels)
            buckets = ", ".join(f"{bound:g}" for bound in one.buckets)
            meaning = one.help + (f" Buckets up to {buckets} s." if buckets else "")
            parts.append(f"| `{one.scraped}` | {one.type} | {labels} | {meaning} |")
        parts.append("")
    parts.append("## Labels\n\n| label | values |\n|---|---|")
    parts += [f"| `{label}` | {meaning} |" for label, meaning in LABELS.items()]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
