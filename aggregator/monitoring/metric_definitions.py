"""The Prometheus metrics of the core, each with its help text and labels; features declare theirs.

Labels are bounded by the definitions: metrics, their levels and their top categories, outcomes and
partitions; never windows, batches or clients.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import NamedTuple, Self

from aggregator.counting.measurements import COMMIT_BUCKETS, LATENCY_BUCKETS


@dataclasses.dataclass(frozen=True)
class Exported:
    """An exported metric.

    Attributes
    ----------
    series : str
        Name and labels, as in ``dither_level_weight{metric,level}``, without the ``_total`` of a
        counter and the ``_info`` of an info.
    type : str
        ``gauge``, ``counter``, ``histogram`` or ``info``.
    buckets : tuple of float
        For a histogram: the upper bounds of all buckets except the last.
    """

    series: str
    help: str
    type: str = "gauge"
    buckets: tuple[float, ...] = ()

    @functools.cached_property
    def name(self) -> str:
        """The metric's name, without its labels."""
        return self.series.partition("{")[0]

    @functools.cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of the labels.

        Examples
        --------
        >>> LEVEL_WEIGHT.labels
        ('metric', 'level')
        """
        return tuple(re.findall(r"\w+", self.series.partition("{")[2]))

    @property
    def scraped(self) -> str:
        """The name in queries; a histogram's series add ``_bucket``, ``_sum``, ``_count``.

        Examples
        --------
        >>> REPORT_OUTCOMES.scraped, METRIC_INFO.scraped, BOUNDED_ESTIMATE.value.scraped
        ('dither_reports_total', 'dither_metric_info', 'dither_estimate')
        """
        return self.name + {"counter": "_total", "info": "_info"}.get(self.type, "")


exported_counter = functools.partial(Exported, type="counter")
exported_info = functools.partial(Exported, type="info")


class Bounded(NamedTuple):
    """The exported metrics of a value and of its bounds."""

    value: Exported
    lower: Exported
    upper: Exported

    @classmethod
    def of(cls, series: str, value: str, bound: str) -> Self:
        """Declare the metrics of a value and of its two bounds.

        Parameters
        ----------
        series, value : str
            The series of the value, and its help text.
        bound : str
            The help text of both bounds; ``{}`` becomes "lower" or "upper".

        Examples
        --------
        >>> BOUNDED_SHARE_AMONG.lower.series, BOUNDED_SHARE_AMONG.upper.help[:30]
        ('dither_share_among_lower{metric,share}', 'Upper confidence bound of the ')
        """
        name, brace, labels = series.partition("{")
        bounds = []
        for side in ("lower", "upper"):
            text = bound.format(side)
            bounds.append(Exported(f"{name}_{side}{brace}{labels}", text[0].upper() + text[1:]))
        return cls(Exported(series, value), *bounds)


def declared(constants: Mapping[str, object]) -> tuple[Exported, ...]:
    """Return the exported metrics among a module's constants, in the order of declaration."""
    groups = (c if isinstance(c, Bounded) else (c,) for c in [*constants.values()])
    return tuple(e for group in groups for e in group if isinstance(e, Exported))


BOUNDED_ESTIMATE = Bounded.of(
    "dither_estimate{metric,category}",
    "Estimate over everything counted so far, clipped into its bounds, in the metric's unit; a "
    "frequency is a share. For a minimum or maximum: the middle of the range that the rounds have"
    " left, only a guess.",
    "{} confidence bound of the estimate; it holds at all times at once, from the first report on.",
)
UNBIASED_ESTIMATE = Exported(
    "dither_estimate_unbiased{metric,category}",
    "The estimate before it is clipped into its bounds; use it for sums and means of several "
    "estimates.",
)
ESTIMATE_RADIUS = Exported(
    "dither_estimate_radius{metric}",
    "Bound on the l2 distance of the estimated mean vector from the true one.",
)
BOUNDED_QUANTILE = Bounded.of(
    "dither_quantile{metric,quantile}",
    "Quantile of a distribution over everything counted so far, in the metric's unit.",
    "{} confidence bound of a quantile; it holds for all quantiles, at all times at once.",
)
BOUNDED_SHARE_BELOW = Bounded.of(
    "dither_share_below{metric,le}",
    "Share of the users whose value is below an edge of a distribution, over everything counted so "
    "far, for at most 33 edges and +Inf; histogram_quantile takes it for a histogram.",
    "{} confidence bound of the share; it holds for all edges, at all times at once.",
)
BOUNDED_SHARE_AMONG = Bounded.of(
    "dither_share_among{metric,share}",
    "Share among some that the metric's definition names, clipped into its bounds; absent where "
    "nobody is estimated to be among them, or no bounds hold at all times.",
    "{} confidence bound of the share; the bounds of all such shares of a metric hold together, at "
    "all times at once.",
)
LAST_UPDATE = Exported(
    "dither_estimate_last_update_timestamp_seconds{metric}",
    "When the last counted report of the metric reached Kafka.",
)
EVENT_TIME = Exported(
    "dither_event_time_timestamp_seconds{metric}",
    "Latest event time that the metric's reports or heartbeats have reached.",
)
CATEGORIES_LEFT_OUT = Exported(
    "dither_categories_left_out{metric}",
    "Number of categories or coordinates that are not exported, because they are not among the "
    "largest.",
)
EFFECTIVE_REPORTS = Exported(
    "dither_effective_reports{metric}",
    "Reports without privacy noise that would have the same worst-case variance.",
)
LEVEL_REPORTS = Exported("dither_level_reports{metric,level}", "Counted reports per privacy level.")
LEVEL_WEIGHT = Exported(
    "dither_level_weight{metric,level}", "Share of a privacy level in the estimate."
)
LEVEL_HETEROGENEITY = Exported(
    "dither_level_heterogeneity_pvalue{metric}",
    "P-value of the test that values do not depend on the privacy level (Cochran's Q). If it is "
    "tiny, only uniform weights estimate the mean of all reports.",
)
METRIC_INFO = exported_info(
    "dither_metric{metric,description,kind,mechanism,unit,revision,levels}",
    "Definition of a metric.",
)
WEIGHTS_INFO = exported_info(
    "dither_weights{metric,policy}", "Weight policy in force for a metric."
)
METRIC_UNREADABLE = Exported(
    "dither_metric_unreadable{metric}",
    "1 if a metric has no estimate because a value in Redis is missing or cannot be read.",
)
LEVEL_LOSS = Exported(
    "dither_level_loss{metric,level}",
    "Privacy loss, in epsilon, of a report of a level in the latest release; only with trusted "
    "collection.",
)
RELEASE_SATURATION = Exported(
    "dither_release_saturation{metric}",
    "Epsilon above which a privacy level did not improve the latest release; absent if its "
    "weights have no such threshold.",
)
RELEASED_UNTIL = Exported(
    "dither_release_timestamp_seconds{metric}", "End, in event time, of the last released pane."
)
RELEASE_DUE = Exported(
    "dither_release_due_timestamp_seconds{metric}",
    "End, in event time, of the oldest pane with reports that is over and not yet released; "
    "absent if there is none.",
)
SEARCH_ROUND = Exported(
    "dither_search_round{metric}",
    "Number of the open round of a minimum or maximum, or of the last one.",
)
SEARCH_ROUNDS = Exported(
    "dither_search_rounds{metric}", "Total number of rounds of a minimum or maximum."
)
SEARCH_OVER = Exported("dither_search_over{metric}", "1 once all rounds are decided.")
SEARCH_THRESHOLD = Exported(
    "dither_search_threshold{metric}",
    "Threshold of the open round, in the metric's unit; absent when all rounds are decided.",
)
SEARCH_ANSWERS = Exported("dither_search_answers{metric}", "Counted answers to the open round.")
SEARCH_OPENED = Exported(
    "dither_search_round_opened_timestamp_seconds{metric}", "When the round was opened."
)
SEARCH_DUE = Exported(
    "dither_search_round_due_timestamp_seconds{metric}",
    "When the open round closes. It closes earlier if it has all answers, later if it has too "
    "few. Absent when all rounds are decided.",
)
SEARCH_CERTIFIED = Exported(
    "dither_search_certified{metric,side}",
    "Certified bound of a search, with probability 1 - beta in all rounds at once: a minimum is "
    "at most this, a maximum at least this. Nothing is certain about the other side.",
)
SEARCH_LOW = Exported(
    "dither_search_bisection_low{metric}",
    "Lower end of the range that the rounds have left; not a confidence bound (see "
    "dither_search_certified).",
)
SEARCH_HIGH = Exported(
    "dither_search_bisection_high{metric}",
    "Upper end of the range that the rounds have left; not a confidence bound (see "
    "dither_search_certified).",
)
SEARCH_ALPHA = Exported(
    "dither_search_tail_alpha{metric}",
    "Exponent of the tail towards the extreme; absent if the rounds do not show it.",
)
COORDINATOR_LEADER = Exported(
    "dither_coordinator_leader",
    "1 while a `dither coordinate` has the lease to open and decide rounds.",
)
BOUNDED_SLICE = Bounded.of(
    "dither_slice_estimate{metric,slice,category}",
    "Estimate of a slice over everything counted so far, clipped into its bounds, in the metric's "
    "unit; absent while the slice has too few reports. Settings: `serve.slices`.",
    "{} confidence bound of a slice; the bounds of all slices of a grouping hold together, at "
    "all times at once.",
)
SLICE_REPORTS = Exported("dither_slice_reports{metric,slice}", "Counted reports per slice.")
SLICES_LEFT_OUT = Exported(
    "dither_slices_left_out{metric,by}",
    "Number of slices with reports that are not exported, because they are not among those with "
    "most reports.",
)
REPORT_OUTCOMES = exported_counter(
    "dither_reports{metric,outcome}",
    "Reports by outcome: accepted, duplicate, or the reason for a dead letter (late, future, "
    "malformed, ...). Reports of unknown metrics have an empty metric.",
)
DEAD_LETTERS = exported_counter(
    "dither_deadletters{reason}",
    "Messages sent to the dead-letter topic instead of being counted, by reason.",
)
CONSUMER_LAG = Exported(
    "dither_consumer_lag{partition}",
    "Messages of a partition that are not counted yet, up to the end of its log in Kafka; NaN if "
    "Kafka does not answer.",
)
END_TO_END_LATENCY = Exported(
    "dither_end_to_end_latency_seconds",
    "Time from Kafka's timestamp of a message to the commit that counts it, over all partitions.",
    type="histogram",
    buckets=LATENCY_BUCKETS,
)
COMMIT_DURATION = Exported(
    "dither_commit_duration_seconds",
    "Duration of a commit (a partition's sums and next offset) to Redis, waiting included. Each "
    "commit is counted by the next one.",
    type="histogram",
    buckets=COMMIT_BUCKETS,
)
COMMIT_BYTES = exported_counter(
    "dither_commit_bytes", "Bytes of panes and batch ids that commits wrote to Redis."
)
LAST_COMMIT = Exported(
    "dither_last_commit_timestamp_seconds{partition}",
    "Time of a partition's last commit; its age is measured by Redis's clock.",
)
ACTIVE_WORKERS = Exported(
    "dither_workers",
    "Workers that committed a partition within the last minute; 0 if no worker counts.",
)
KAFKA_UP = Exported(
    "dither_kafka_up",
    "1 while Kafka answers this server's queries for the ends of the reports topic; 0 also while a "
    "single partition has no leader. A lag that is unknown is NaN.",
)
LOG_END_AGE = Exported(
    "dither_log_end_age_seconds",
    "How long ago this server asked Kafka for the ends of the log that `dither_consumer_lag` "
    "compares with; messages that came since are missing in the lag.",
)
DEFINITIONS_UNUSABLE = Exported(
    "dither_definitions_unusable",
    "1 while the metrics.toml of this server or of a worker cannot be used after a change; the "
    "previous definitions stay in force. `/readyz` and `/v1/status` say why.",
)
PARTITION_HALTED = Exported(
    "dither_partition_halted{partition}",
    "1 if a partition is not counted until somebody acts: its log does not continue where its "
    "sums end, an offset cannot be counted, or a limit on refused messages or open panes was "
    "reached.",
)
GAP_OFFSETS = Exported(
    "dither_gap_offsets{partition}",
    "Offsets of a partition that were skipped without being counted, because a setting accepted "
    "their loss.",
)
PARTITION_EPOCH = Exported(
    "dither_partition_epoch{partition}", "Number of changes of a partition's owner."
)
PARTITION_OWNER = exported_info(
    "dither_partition_owner{partition,worker}",
    "The worker that last took a partition, as its host and process.",
)
WORKER_DEATHS = exported_counter(
    "dither_worker_deaths",
    "Workers that ended unexpectedly and were restarted by `dither aggregate`.",
)
WORKER_STUCK = Exported(
    "dither_worker_stuck_seconds{worker,step}",
    "Time that a stuck worker has spent in its current step; only stuck workers have it.",
)
PUBLISHED_EVENTS = exported_counter(
    "dither_published_events{type}",
    "Events committed to the estimates topic, by type: one `final` for each closed pane, "
    "`provisional` for a changed running total, `alarm`, and `decided` for a comparison.",
)
EXPIRED_PANES = Exported(
    "dither_expired_panes{metric}",
    "Panes that will never have a final event, because a part expired (the metric's `retention`) "
    "before every partition had closed it.",
)
FAILED_SEARCHES = Exported(
    "dither_failed_pane_searches{metric}",
    "Panes whose final event waits because the search for their frequent strings failed. Each is "
    "tried again, at the latest after 5 minutes; the publisher's log has the error.",
)
PUBLISHER_LEADER = Exported(
    "dither_publisher_leader", "1 while a server has the lease to publish events."
)
HTTP_REQUESTS = exported_counter(
    "dither_http_requests{route,method,status}",
    "Answers of this server by route, method and class of status; the route is empty for unknown "
    "paths.",
)
REQUEST_DURATION = Exported(
    "dither_http_request_duration_seconds{route}",
    "Time until this server began to answer, by route.",
    type="histogram",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10),
)
CROWD_REPORTS = exported_counter(
    "dither_crowd_reports{metric,fate}",
    "Sealed reports that relays have posted to this server: accepted, unopened (of another key or "
    "label), invalid, or refused with their crowd. Those of a repeated post count again.",
)
OTLP_EXPORTS = exported_counter(
    "dither_otlp_exports{result}",
    "Exports of this server's metrics by OTLP; absent if none is configured.",
)
COLLECTION_DURATION = Exported(
    "dither_collection_duration_seconds", "Time to read and estimate for this scrape."
)
BUILD_INFO = exported_info("dither_build{version}", "The version of this server.")

CORE_METRICS = declared(globals())
SECTION_TITLES = {
    BOUNDED_ESTIMATE.value: "Estimates",
    LEVEL_LOSS: "Releases",
    SEARCH_ROUND: "Searches",
    BOUNDED_SLICE.value: "Slices",
    REPORT_OUTCOMES: "Reports",
    CONSUMER_LAG: "Counting",
    PUBLISHED_EVENTS: "Publishing",
    HTTP_REQUESTS: "Serving",
}
"""Titles of sections in the reference, by the first metric of each section."""

LABEL_MEANINGS = {
    "fate": "`accepted`, `unopened`, `invalid` or `refused`",
    "side": "`at_least` of a maximum, `at_most` of a minimum",
    "metric": "name of a metric in `metrics.toml`",
    "category": "a category of a frequency or a coordinate of a vector; at most the "
    "`serve.top_categories` largest are exported; empty for a mean",
    "share": "a share among of the definition's `shares`, as in `paid / visit..`",
    "quantile": "a quantile of the definition, as in `0.99`",
    "le": "an edge of a distribution's bins, below which the share is, as in `250`; `+Inf`: all",
    "slice": "the values of attributes of devices, as in `country=DE,version=other`; at most the "
    "`serve.top_slices` with most reports",
    "by": "the attributes of a grouping in `serve.slices`, as in `country,version`",
    "level": "the epsilon of a privacy level",
    "outcome": "`accepted`, `duplicate`, or the reason of a dead letter. At a relay: `taken`, "
    "`repeated` (a retry, which counts once), `damaged` (by a crash), `too_few` (dropped with its "
    "crowd), `delivered`, or `refused` by the service for good",
    "reason": "why a message could not be counted; docs/data-model.md lists the reasons",
    "partition": "number of a partition of the reports topic",
    "worker": "host and process of a worker; at any time at most as many as partitions",
    "step": "what a worker does: consuming, counting, committing, sending dead letters, taking "
    "over, leaving",
    "type": "`final`, `provisional`, `alarm` or `decided`",
    "route": "template of a path",
    "method": "HTTP method",
    "status": "`2xx`, `3xx`, `4xx` or `5xx`; of a post that a relay refused, the whole number",
    "result": "`delivered`, `refused` (the collector did not take it) or `unreadable` (nothing was "
    "sent)",
    "policy": "`optimal`, `paper`, `proportional` or `uniform`; with trusted collection one of "
    "docs/trusted.md",
    "description": "from the metric's definition, like kind, mechanism, unit, levels and revision",
    "version": "of Dither",
}
"""Meanings of labels, by name."""
