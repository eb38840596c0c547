"""The status of a deployment: outcomes and rates of metrics, progress and halts of partitions."""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping

import msgspec

from aggregator.config.live_metrics import UNUSABLE_FIELD, unusable
from aggregator.config.settings import Settings
from aggregator.kafka.log_ends import LogEnds
from aggregator.reading.serialization import Moment
from aggregator.reading.window import EventTimes
from aggregator.state.pane_keys import counted_keys
from aggregator.storage.progress import UNSET, PartitionProgress, TopicProgress
from aggregator.timestamps import iso
from estimators import Metric, SearchMetric
from estimators.durations import milliseconds

RATE_SECONDS = 15.0
"""The period over which a rate is measured."""
STALE_SECONDS = 60.0
"""The longest period over which a rate is measured."""
MIN_RATE_SECONDS = 0.5
MAX_RATE_READINGS = 40
MAX_SHOWN_HALTED = 3
SILENT_MS = 60_000
"""After this time without a commit, workers are considered stopped; by default they commit each
second."""
SILENT_COMMIT_INTERVALS = 3
"""The same limit as a number of commit intervals, if these are long."""
START_WORKERS = "start `dither aggregate`, or see in its log what it waits for"
COUNTED_OUTCOMES = ("accepted", "duplicate")
"""Outcomes of reports that do not become dead letters."""


class MetricStatus(msgspec.Struct, frozen=True):
    """A metric's reports by outcome, and accepted reports per second, null at the first reading.

    `event_time` is the latest event time of reports and heartbeats; null for a minimum or maximum,
    whose answers have no event time. `updated` is when the last report reached Kafka.
    """

    outcomes: dict[str, int]
    reports_per_second: float | None
    event_time: Moment | None
    updated: Moment | None


class PartitionStatus(msgspec.Struct, frozen=True):
    """The progress of a partition, with the numbers of uncounted messages and of lost offsets.

    `lag` is null if Kafka does not say where the log ends. `reason` is why the partition is halted;
    `counting` says whether it is not halted and a worker has committed it lately, by Redis's clock.
    `committed` is when it was last committed, by the worker's clock; null if it never was.
    """

    partition: int
    lag: int | None
    halted: bool
    reason: str
    gap: int
    epoch: int
    committed: Moment | None
    counting: bool


class ServiceStatus(msgspec.Struct, frozen=True):
    """The status of a deployment; `redis` and `kafka` are "ok", or say why they cannot be read.

    `missing` says what was counted but cannot be read in Redis, and what to do.

    `definitions` is "ok", or says which process cannot use its changed definitions, and why;
    `definitions_hash` differs after a change of the definitions, and is empty while Redis cannot be
    read. `counting` says whether a worker has lately committed a partition that is not halted; null
    if that is unknown. `silent_since` is when the last such commit was, if there was none lately.
    """

    metrics: dict[str, MetricStatus]
    partitions: list[PartitionStatus]
    deadletters: dict[str, int]
    redis: str
    missing: list[str]
    kafka: str
    definitions: str
    counting: bool | None
    silent_since: Moment | None
    version: str
    definitions_hash: str = ""


class Rates:
    """Rates of accepted reports per second, from successive readings of their numbers.

    Parameters
    ----------
    clock : callable
        Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._readings: deque[tuple[float, Mapping[str, int]]] = deque(maxlen=MAX_RATE_READINGS)
        self._lock = threading.Lock()
        self.event_times = EventTimes()

    def note(self, accepted: Mapping[str, int]) -> dict[str, float]:
        """Add a reading; return each metric's rate since the oldest recent reading.

        `accepted`: the number of accepted reports by metric. The first reading returns no rates.
        """
        now = self._clock()
        with self._lock:
            if not self._readings or now - self._readings[-1][0] >= MIN_RATE_SECONDS:
                self._readings.append((now, accepted))
            while len(self._readings) > 2 and now - self._readings[1][0] >= RATE_SECONDS:
                self._readings.popleft()
            if now - self._readings[0][0] > STALE_SECONDS:
                self._readings.popleft()
            first_time, first_accepted = self._readings[0]
        if now - first_time < MIN_RATE_SECONDS:
            return {}
        return {
            name: max(0.0, (count - first_accepted.get(name, 0)) / (now - first_time))
            for name, count in accepted.items()
        }


def silence_ms(settings: Settings) -> int:
    """Return the time without a commit, in ms, after which workers are considered stopped."""
    commit_ms = milliseconds(settings.aggregate.commit_interval)
    return max(SILENT_MS, SILENT_COMMIT_INTERVALS * commit_ms)


def status(
    overview: TopicProgress,
    metrics: Mapping[str, Metric],
    rates: Rates,
    ends: LogEnds | None = None,
    silent_ms: int = SILENT_MS,
) -> ServiceStatus:
    """Return the status of a deployment.

    `overview`: the progress of counting; `metrics`: the metrics by name; `rates`: the rates, to
    which this adds a reading; `ends`: the ends of the partitions' logs; by default they are
    unknown; `silent_ms`: the result of :func:`silence_ms`.
    """
    ends = LogEnds() if ends is None else ends
    now_ms = time.time_ns() // 10**6
    idle = last_commit_ms(overview, now_ms)
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in metrics}
    deadletters: Counter[str] = Counter()
    for (name, outcome), count in overview.outcomes().items():
        if name in outcomes:
            outcomes[name][outcome] = count
        if outcome not in COUNTED_OUTCOMES:
            deadletters[outcome] += count
    speeds = rates.note({name: counter["accepted"] for name, counter in outcomes.items()})
    return ServiceStatus(
        metrics={
            name: _metric(
                overview, metric, dict(outcomes[name]), speeds.get(name), rates.event_times
            )
            for name, metric in metrics.items()
        },
        partitions=[
            _partition(overview, number, ends, now_ms, silent_ms)
            for number in dict.fromkeys((*overview.partitions, *overview.unreadable, *ends.ranges))
        ],
        deadletters=dict(deadletters),
        redis="ok",
        missing=[],
        kafka=ends.unknown or "ok",
        definitions="; ".join(unusable_definitions(metrics, overview)) or "ok",
        counting=idle is not None and idle < silent_ms,
        silent_since=None if idle is None or idle < silent_ms else _moment(now_ms, idle),
        version=_version(),
    )


@functools.cache
def _version() -> str:
    from importlib.metadata import version  # slow to import, and seldom needed

    return version("dither")


def unreachable(reason: str, metrics: Mapping[str, Metric]) -> ServiceStatus:
    """Return the status while Redis cannot be read; `reason`: why it cannot."""
    kafka = "not queried while Redis cannot be read"
    definitions = "; ".join(unusable_definitions(metrics)) or "ok"
    return ServiceStatus({}, [], {}, reason, [], kafka, definitions, None, None, _version())


def unusable_definitions(
    metrics: Mapping[str, Metric], overview: TopicProgress | None = None
) -> list[str]:
    """Return sentences about changed definitions that this server or a worker cannot use."""
    partitions = [] if overview is None else overview.partitions.values()
    workers = {progress.owner.get(UNUSABLE_FIELD, "") for progress in partitions} - {""}
    sentences = [f"this server cannot use {error}" for error in [unusable(metrics)] if error]
    sentences += [f"a worker cannot use {error}" for error in sorted(workers)]
    return [f"{sentence}: the previous definitions stay in force" for sentence in sentences]


def last_commit_ms(overview: TopicProgress, now_ms: int) -> int | None:
    """Return the time since the last commit of a partition that is not halted; None if never."""
    counted = (progress for progress in overview.partitions.values() if not progress.is_halted)
    idle_times = (progress.idle_ms(now_ms) for progress in counted)
    return min((idle for idle in idle_times if idle is not None), default=None)


def silence_text(overview: TopicProgress, now_ms: int, silent_ms: int = SILENT_MS) -> str:
    """Return since when no worker has counted, as text; "" while a worker counts.

    `overview`: the progress of counting; `now_ms`: the present time, in ms since the epoch;
    `silent_ms`: the result of :func:`silence_ms`.
    """
    idle = last_commit_ms(overview, now_ms)
    if overview.partitions and all(progress.is_halted for progress in overview.partitions.values()):
        return "every partition is halted: nothing is counted"
    if idle is None:
        return "no worker has counted anything yet"
    if idle < silent_ms:
        return ""
    return f"no worker has counted since {_moment(now_ms, idle)}"


def uncounted_partitions(
    overview: TopicProgress, now_ms: int, silent_ms: int = SILENT_MS
) -> list[int]:
    """Return the partitions that are neither halted nor counted.

    `overview`: the progress of counting; `now_ms`: the present time, in ms since the epoch;
    `silent_ms`: the result of :func:`silence_ms`.
    """
    stated = (int(progress.owner.get("partitions", 0)) for progress in overview.partitions.values())
    halted_or_counted = {
        number
        for number, progress in overview.partitions.items()
        if progress.is_halted or _is_counting(progress, now_ms, silent_ms)
    }
    partitions = {*range(max(stated, default=0)), *overview.partitions}
    return sorted(partitions - halted_or_counted - overview.unreadable.keys())


def _is_counting(progress: PartitionProgress, now_ms: int, silent_ms: int) -> bool:
    idle = progress.idle_ms(now_ms)
    return idle is not None and idle < silent_ms and not progress.is_halted


def _counted_text(owner: Mapping[str, str]) -> str:
    next_offset = int(owner.get("next", UNSET))
    return "" if next_offset < 0 else f", and only up to offset {next_offset} is counted"


def halted_partitions(overview: TopicProgress) -> list[str]:
    """Return sentences on the first halted partitions, with reasons, and the number of the rest."""
    partitions = overview.partitions.items()
    stopped = {number: progress.owner for number, progress in partitions if progress.is_halted}
    sentences = [
        f"partition {number} is halted{_counted_text(owner)}: "
        f"{owner.get('halted') or 'a commit was applied only in part'}"
        for number, owner in stopped.items()
    ]
    sentences += [f"partition {number} is halted: {e}" for number, e in overview.unreadable.items()]
    hidden = len(sentences) - MAX_SHOWN_HALTED
    if hidden <= 0:
        return sentences
    return [*sentences[:MAX_SHOWN_HALTED], f"and {hidden} more partitions are halted"]


def _moment(now_ms: int, ago_ms: int) -> Moment | None:
    """Return the time `ago_ms` before `now_ms`, rounded to the second."""
    return iso((now_ms - ago_ms) // 1000 * 1000)


def _metric(
    overview: TopicProgress,
    metric: Metric,
    outcomes: dict[str, int],
    speed: float | None,
    event_times: EventTimes,
) -> MetricStatus:
    keys, partitions = counted_keys(metric), overview.partitions.values()
    marks = [s.watermarks[key] for s in partitions for key in keys if key in s.watermarks]
    is_search = isinstance(metric, SearchMetric)
    newest = None if is_search else event_times.note(metric, dict(enumerate(marks)))
    return MetricStatus(
        outcomes, speed, iso(newest), iso(max((mark.arrived for mark in marks), default=None))
    )


def _partition(
    overview: TopicProgress, number: int, ends: LogEnds, now_ms: int, silent_ms: int
) -> PartitionStatus:
    if number in overview.unreadable:
        reason = str(overview.unreadable[number])
        return PartitionStatus(number, None, True, reason, 0, 0, None, False)
    progress = overview.partitions.get(number, PartitionProgress({}, {}, {}))
    owner = progress.owner
    next_offset, updated = int(owner.get("next", 0)), owner.get("updated")
    return PartitionStatus(
        partition=number,
        lag=ends.lag(number, next_offset),
        halted=progress.is_halted,
        reason=owner.get("halted", ""),
        gap=int(owner.get("gap", 0)),
        epoch=int(owner.get("epoch", 0)),
        committed=iso(None if updated is None else int(updated)),
        counting=_is_counting(progress, now_ms, silent_ms),
    )
