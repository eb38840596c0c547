"""Prometheus metrics: fills their families with samples from Redis at each scrape."""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from importlib.metadata import version

import redis
import structlog
from prometheus_client import Metric as Family
from prometheus_client.registry import Collector

from aggregator.counting.measurements import Measurements
from aggregator.errors import StateUnreadable
from aggregator.kafka.log_ends import Ends, LogEnds
from aggregator.monitoring import metric_definitions
from aggregator.monitoring.answer_samples import SliceExport, samples_of
from aggregator.monitoring.families import Families
from aggregator.monitoring.reference import feature_samples
from aggregator.monitoring.samples import Sample
from aggregator.reading.reader import MetricReader
from aggregator.reading.status import SILENT_MS, unusable_definitions
from aggregator.reading.window import EventTimes, Release, Window, event_time
from aggregator.state.pane_keys import metric_key
from aggregator.state.watermark import NO_TIME
from aggregator.storage.progress import PartitionProgress, TopicProgress

DITHER_VERSION = version("dither")
MAX_CLOCK_JITTER_MS = 250

log = structlog.get_logger("dither.exporter")


class Exporter(Collector):
    """Collects the running totals of all metrics at each scrape.

    A metric's estimate is recomputed only after its reports or weights have changed.

    Parameters
    ----------
    top_categories : int
        Maximum number of exported categories or coordinates per metric: the largest estimates, in
        absolute value for a vector.
    since_ms : int
        The start of the first released pane: `publish.since`.
    ends : callable
        Returns the log's ends; by default they are unknown.
    silent_ms : int
        A worker counts as stopped if it made no commit for this time.
    slices : SliceExport, optional
        The exported slices; by default none.
    redis_optional : bool
        Whether a scrape succeeds if Redis cannot be read, with this server's own metrics alone. For
        a server that only accepts reports.
    """

    def __init__(
        self,
        reader: MetricReader,
        top_categories: int,
        since_ms: int = 0,
        ends: Ends = LogEnds,
        silent_ms: int = SILENT_MS,
        slices: SliceExport | None = None,
        redis_optional: bool = False,
    ) -> None:
        self._redis_optional = redis_optional
        self._slices = slices or SliceExport()
        self._of_features = [kind(reader, top_categories) for kind in feature_samples()]
        self._ends, self._silent_ms = ends, silent_ms
        self._commits: dict[int, int] = {}
        self.reader, self.top_categories, self._since_ms = reader, top_categories, since_ms
        self._families_by_metric: dict[str, tuple[Hashable, Families]] = {}
        self._last_families = Families()
        self._logged: dict[str, str] = {}
        self._lock, self._event_times = threading.Lock(), EventTimes()

    def collect(self) -> Iterable[Family]:
        """Return all metric families, from one read of Redis."""
        with self._lock:
            return self._collect()

    def _collect(self) -> list[Family]:
        began = time.perf_counter()
        families, overview, ends = Families(), None, self._ends()
        try:
            overview = self.reader.store.overview()
            self._add_stored_metrics(families, overview, ends)
        except (redis.RedisError, StateUnreadable):
            if not self._redis_optional:
                raise
            families, overview = Families(), None
        families.put(metric_definitions.KAFKA_UP, int(not ends.unknown))
        unusable = unusable_definitions(self.reader.metrics, overview)
        families.put(metric_definitions.DEFINITIONS_UNUSABLE, int(bool(unusable)))
        families.put(metric_definitions.BUILD_INFO, 1, DITHER_VERSION)
        families.put(metric_definitions.COLLECTION_DURATION, time.perf_counter() - began)
        families.keep_texts(self._last_families)
        self._last_families = families
        return families.filled()

    def _add_stored_metrics(
        self, families: Families, overview: TopicProgress, ends: LogEnds
    ) -> None:
        """Add the metrics that Redis holds, which are equal on all servers."""
        for name, window in self._windows(overview).items():
            try:
                if isinstance(window, StateUnreadable):
                    raise window
                released = Families(self._release_samples(overview, window))
                families.merge(self._families_by_metric[name][1])
                families.merge(released)
            except StateUnreadable as error:
                self._note_unreadable(name, str(error), metric=name)
                families.put(metric_definitions.METRIC_UNREADABLE, 1, name)
            else:
                families.put(metric_definitions.METRIC_UNREADABLE, 0, name)
        for (name, outcome), count in sorted(overview.outcomes().items()):
            families.put(metric_definitions.REPORT_OUTCOMES, count, name, outcome)
        self._add_progress(families, overview, ends)
        _measurements(families, overview.partitions.values())
        all_samples: list[Callable[[], Iterable[Sample]]] = [
            *(self._deaths, self._stuck_workers, self._events, self._expired, self._failed),
            *(partial(exporting.samples, overview) for exporting in self._of_features),
        ]
        for read in all_samples:
            try:
                for sample in [*read()]:
                    families.put(sample.exported, sample.value, *sample.labels)
            except StateUnreadable as error:  # the other samples do not need this key
                self._note_unreadable(error.key, str(error), key=error.key)
        is_publisher_running, is_coordinator_running = self.reader.store.registry.leaders()
        families.put(metric_definitions.PUBLISHER_LEADER, int(is_publisher_running))
        families.put(metric_definitions.COORDINATOR_LEADER, int(is_coordinator_running))

    def _deaths(self) -> Iterable[Sample]:
        yield Sample(metric_definitions.WORKER_DEATHS, self.reader.store.registry.worker_deaths())

    def _stuck_workers(self) -> Iterable[Sample]:
        stuck_workers = self.reader.store.registry.stuck_workers(time.time_ns() // 10**6)
        for worker, (step, seconds) in stuck_workers.items():
            yield Sample(metric_definitions.WORKER_STUCK, seconds, (worker, step))

    def _events(self) -> Iterable[Sample]:
        _, events = self.reader.store.registry.publisher_status()
        for kind, count in sorted(events.items()):
            yield Sample(metric_definitions.PUBLISHED_EVENTS, count, (kind,))

    def _expired(self) -> Iterable[Sample]:
        metrics = self.reader.metrics
        keys = [metric_key(name, metric.revision) for name, metric in metrics.items()]
        counts = self.reader.store.registry.expired_panes(keys)
        for name, count in zip(metrics, counts, strict=True):
            yield Sample(metric_definitions.EXPIRED_PANES, count, (name,))

    def _failed(self) -> Iterable[Sample]:
        for name, count in sorted(self.reader.store.registry.failed_searches().items()):
            yield Sample(metric_definitions.FAILED_SEARCHES, count, (name,))

    def _add_progress(self, families: Families, overview: TopicProgress, ends: LogEnds) -> None:
        """Add the progress of each partition, and the number of active workers."""
        now_ms, workers = time.time_ns() // 10**6, set()
        for number, progress in overview.partitions.items():
            idle = progress.idle_ms(now_ms)
            if idle is not None:
                committed = self._committed(number, now_ms - idle)
                families.put(metric_definitions.LAST_COMMIT, committed, number)
                if idle < self._silent_ms:
                    workers.add(progress.owner.get("worker", ""))
            _partition(families, number, progress)
        for number in overview.unreadable:
            families.put(metric_definitions.PARTITION_HALTED, 1, number)
        for number in sorted({*overview.partitions, *ends.ranges}):
            counted = overview.partitions.get(number)
            lag = ends.lag(number, 0 if counted is None else int(counted.owner.get("next", 0)))
            families.put(metric_definitions.CONSUMER_LAG, math.nan if lag is None else lag, number)
        if math.isfinite(ends.asked_at):
            families.put(metric_definitions.LOG_END_AGE, max(0.0, time.monotonic() - ends.asked_at))
        families.put(metric_definitions.ACTIVE_WORKERS, len(workers))

    def _committed(self, number: int, measured_ms: int) -> float:
        """Return the Unix time of a partition's commit; jitter of the clocks does not change it."""
        committed_ms = self._commits.get(number)
        if committed_ms is None or abs(measured_ms - committed_ms) > MAX_CLOCK_JITTER_MS:
            committed_ms = self._commits[number] = measured_ms
        return committed_ms / 1000

    def _note_unreadable(self, name: str, why: str, **subject: str) -> None:
        """Log why a metric or a key is unreadable, unless its last logged reason is the same."""
        if self._logged.get(name) != why:
            log.error("unreadable", **subject, reason=why)
        self._logged[name] = why

    def _windows(self, overview: TopicProgress) -> dict[str, Window | StateUnreadable]:
        """Return each metric's window or its error; estimate the windows that have changed."""
        windows: dict[str, Window | StateUnreadable] = {}
        changed, facts = [], dict[str, Hashable]()
        for name in self.reader.metrics:
            try:
                windows[name] = total = self.reader.describe(overview, name)
            except StateUnreadable as error:
                windows[name] = error
            else:
                facts[name] = total.version, total.arrived_ms, event_time(total.watermarks)
                if self._families_by_metric.get(name, ("",))[0] != facts[name]:
                    changed.append(total)
        for total, read in zip(changed, self.reader.read_totals(changed), strict=True):
            name = total.metric.name
            try:
                window = self.reader.read(total) if read is None else read
                estimate = self.reader.cached_answer(window)
                samples = itertools.chain(
                    _definition_samples(total, self._event_times),
                    samples_of(window, estimate, self.top_categories),
                    self._slices.samples(self.reader, overview, total.metric),
                )
                families = Families(samples)
                if name in self._families_by_metric:
                    families.keep_texts(self._families_by_metric[name][1])
                self._families_by_metric[name] = facts[name], families
            except StateUnreadable as error:
                windows[name] = error
        return windows

    def _release_samples(self, overview: TopicProgress, window: Window) -> Iterable[Sample]:
        """Yield the progress of a metric's releases (trusted collection)."""
        metric, release, start = window.metric, window.content, self._since_ms
        if not isinstance(release, Release):
            return
        if release.start_ms is not None:
            start = release.start_ms + metric.pane_ms
            yield Sample(metric_definitions.RELEASED_UNTIL, start / 1000, (metric.name,))
        key = metric_key(metric.name, metric.revision)
        closed = max((mark.closed for mark in overview.watermarks(key).values()), default=NO_TIME)
        last, panes = closed - metric.pane_ms, self.reader.store.panes
        due = panes.first_starts(key, [*overview.partitions], start, last, 1)
        if due:
            due_ms = min(due) + metric.pane_ms
            yield Sample(metric_definitions.RELEASE_DUE, due_ms / 1000, (metric.name,))


def _definition_samples(window: Window, event_times: EventTimes) -> Iterable[Sample]:
    """Yield the samples of a metric for which no sums are needed."""
    metric, name = window.metric, window.metric.name
    about = (metric.description, metric.kind, metric.mechanism, metric.unit)
    levels = " ".join(f"{epsilon:g}" for epsilon in metric.levels)
    labels = (name, *about, f"{metric.revision:08x}", levels)
    yield Sample(metric_definitions.METRIC_INFO, 1, labels)
    yield Sample(metric_definitions.WEIGHTS_INFO, 1, (name, window.policy))
    reached = event_times.note(metric, window.watermarks)
    if reached is not None:
        yield Sample(metric_definitions.LAST_UPDATE, window.arrived_ms / 1000, (name,))
        yield Sample(metric_definitions.EVENT_TIME, reached / 1000, (name,))


def _partition(families: Families, number: int, progress: PartitionProgress) -> None:
    owner = progress.owner
    families.put(metric_definitions.PARTITION_HALTED, int(progress.is_halted), number)
    families.put(metric_definitions.GAP_OFFSETS, int(owner.get("gap", 0)), number)
    families.put(metric_definitions.PARTITION_EPOCH, int(owner.get("epoch", 0)), number)
    families.put(metric_definitions.PARTITION_OWNER, 1, number, owner.get("worker", ""))


def _measurements(families: Families, partitions: Iterable[PartitionProgress]) -> None:
    measured = sum((Measurements.stored(progress.owner) for progress in partitions), Measurements())
    families.histogram(metric_definitions.COMMIT_DURATION, measured.commits)
    families.histogram(metric_definitions.END_TO_END_LATENCY, measured.latencies)
    families.put(metric_definitions.COMMIT_BYTES, measured.commit_bytes)
    for reason, count in sorted(measured.deadletters.items()):
        families.put(metric_definitions.DEAD_LETTERS, count, reason)
