"""The series of alarms, one for each slice and category: their state in Redis, shown as answers.

The log and the definitions determine the state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET

from aggregator.errors import DitherError
from aggregator.features.alarms.alarm_answers import (
    AlarmAnswer,
    AlarmRaised,
    AlarmsAnswer,
    Baseline,
    SeriesAnswer,
    State,
    series_answer_order,
    series_names,
)
from aggregator.features.alarms.definitions import AlarmDefinition, alarms_of
from aggregator.lazy_log import LazyLog
from aggregator.reading.frames.frame import Frame
from aggregator.reading.grouping import Grouping, Slice
from aggregator.reading.query import Query
from aggregator.reading.reader import MetricReader
from aggregator.reading.serialization import values
from aggregator.state.pane_keys import metric_key
from aggregator.storage.redis_keys import publisher_key
from aggregator.storage.store import Store
from aggregator.timestamps import from_iso, iso
from estimators import LocalMetric, Metric
from estimators.alarms import Detector
from estimators.comparison.distributions import limit_indices
from estimators.distribution import share_names
from estimators.errors import meant

MAX_STORED_RAISED = 100
"""The most events that an alarm's state has."""
YEAR_MS = 365 * 86_400_000
NEVER_RUN = "no publisher has looked at a pane yet: `dither serve` runs alarms (publish.enabled)"
ALARM_COLUMNS = (
    *("alarm", "metric", "unit", "slice", "label", "direction", "state", "watched_until"),
    *("baseline", "evidence", "smallest_shift", "panes", "alarms", "last_alarm", "reason"),
)

log = LazyLog("dither.alarms")


class SeriesState(msgspec.Struct, kw_only=True):
    """A series: the sums of its baseline, the detector's state, and the results of its last step.

    Attributes
    ----------
    baseline : bytes or None
        The sums, int64, little-endian; None if the definition states the baseline, or until it is
        final.
    detector : bytes or None
        The state of the detector; None if the series is not watched, or not yet.
    compared_with : Baseline or None
        The value of the baseline, for readers; None if the series is not watched.
    reason : str
        Why the series cannot be watched; empty if it can.
    """

    baseline: bytes | None = None
    detector: bytes | None = None
    compared_with: Baseline | None = msgspec.field(name="known", default=None)
    evidence: float | None = None
    smallest_shift: float | None = None
    panes: int = 0
    alarms: int = 0
    reason: str = ""


class StoredAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm's state: its next pane, and its series in the order of slices and categories."""

    next_ms: int
    skipped: int = 0
    is_learning: bool
    series: list[SeriesState]
    raised: list[AlarmRaised] = []
    reason: str = ""


@dataclasses.dataclass
class AlarmSeries:
    """A series of an alarm: a slice, and one of its numbers.

    Attributes
    ----------
    group : int
        The index of the slice.
    category, index : str and int, or None
        The name and the index of the number; None if there is a single number.
    below : tuple of float
        For a distribution: the edge; the watched number is the share of users below it.
    state : SeriesState
        The series' state as it is stored, but without the detector's state.
    detector : Detector or None
        Adds up the evidence; None if the series is not watched, or not yet.
    """

    group: int
    slice: Slice
    category: str | None
    index: int | None
    below: tuple[float, ...] = ()
    state: SeriesState = dataclasses.field(default_factory=SeriesState)
    detector: Detector | None = None

    @property
    def name(self) -> str:
        """The ``attribute=value`` pairs of the series' slice, and its category."""
        category = msgspec.UNSET if self.category is None else self.category
        return ",".join(series_names(values(self.slice), category))


def series_of(metric: LocalMetric, definition: AlarmDefinition) -> list[AlarmSeries]:
    """Return the series of an alarm: each of its slices with each of its categories."""
    grouping = Grouping.of(metric, Query(by=definition.by, where=definition.where))
    slices: list[Slice] = [{}]
    if grouping is not None and definition.by:
        slices = [grouping.slice(group) for group in range(grouping.size)]
    return [
        AlarmSeries(group, values, *number)
        for group, values in enumerate(slices)
        for number in _numbers(metric, definition)
    ]


def _numbers(
    metric: LocalMetric, definition: AlarmDefinition
) -> Iterator[tuple[str | None, int | None, tuple[float, ...]]]:
    """Yield the name, the index and the edge of each number that is watched in a slice."""
    indices = limit_indices((metric, metric), definition.below, None, ratio=False)
    if indices is not None:
        for limit, index in zip(definition.below, indices[0].tolist(), strict=True):
            yield (*share_names([limit]), index, (limit,))
        return
    labels, _ = metric.domain.select(definition.categories)
    for label in labels:
        yield label, metric.domain.labels.index(label), ()
    if not labels:
        yield None, None, ()


def unit_of(metric: LocalMetric, definition: AlarmDefinition) -> str:
    """Return the unit of an alarm's numbers; a share has none."""
    return "" if definition.below else metric.unit


def promise(definition: AlarmDefinition, series: int) -> str:
    """Return the promise about false alarms as text; `series`: the alarm's number of series."""
    number, _, stretch = definition.promise.partition("/")
    scope = f", over {series} series together" if series > 1 else ""
    alarms = "false alarm" if float(number) == 1 else "false alarms"
    return (
        f"by chance alone at most {number} {alarms} expected in the first {stretch} from the start"
        f"{scope}; "
        "in longer stretches from the start in proportion"
    )


def identity(definition: AlarmDefinition, metric: Metric) -> str:
    """Return an alarm's name with a 32-bit hash of the definitions that its state depends on."""
    slicing = "" if metric.slicing is None or not definition.sliced else metric.slicing.key
    key = metric_key(metric.name, metric.revision)
    return definition.hashed(f"{definition.key} {key} {slicing}")


def state_key(topic: str, alarm: str) -> str:
    """Return the key of an alarm's state; `alarm` is its :func:`identity`."""
    return f"{publisher_key(topic)}:alarm:{alarm}"


def read_state(store: Store, alarm: str) -> StoredAlarm | None:
    """Return the stored state of an alarm, by its :func:`identity`; None if it is unusable."""

    def warn(error: str) -> None:
        log.warning("state of an alarm is unreadable", alarm=alarm, error=error)

    return store.run_state(state_key(store.topic, alarm), StoredAlarm, warn)


def all_alarms(reader: MetricReader) -> AlarmsAnswer:
    """Return the states of all alarms in a reader's definitions."""
    definitions = alarms_of(reader.metrics).values()
    answers = [alarm_answer(reader, definition) for definition in definitions]
    promised_per_year = sum(answer.promised_per_year for answer in answers)
    return AlarmsAnswer(alarms=answers, promised_per_year=promised_per_year)


def definition_of(reader: MetricReader, name: str) -> AlarmDefinition:
    """Return the definition of an alarm.

    Raises DitherError if there is no such alarm.
    """
    definitions = alarms_of(reader.metrics)
    if name not in definitions:
        raise DitherError(f"no alarm {name!r} in the definitions: {meant(name, definitions)}")
    return definitions[name]


def alarm_answer(reader: MetricReader, definition: AlarmDefinition) -> AlarmAnswer:
    """Return the state of an alarm."""
    metric = LocalMetric.require(reader.metric(definition.metric))
    alarm_series = series_of(metric, definition)
    stored_alarm = read_state(reader.store, identity(definition, metric))
    has_run = stored_alarm is not None and len(stored_alarm.series) == len(alarm_series)
    if stored_alarm is None or not has_run:
        stored_alarm = StoredAlarm(
            next_ms=definition.start_ms,
            is_learning=definition.baseline_ms is not None,
            series=[series.state for series in alarm_series],
        )
    state: State = "learning" if stored_alarm.is_learning else "watching"
    if stored_alarm.reason:
        state = "unwatchable"
    answers = [
        _series_answer(series, series_state, state)
        for series, series_state in zip(alarm_series, stored_alarm.series, strict=True)
    ]
    if all(answer.state == "unwatchable" for answer in answers):
        state = "unwatchable"
    return AlarmAnswer(
        alarm=definition.name,
        metric=definition.metric,
        unit=unit_of(metric, definition),
        by=list(definition.by),
        where=values(definition.where),
        start=iso(definition.start_ms),
        every_seconds=definition.every_ms / 1000,
        direction=definition.direction,  # type: ignore[arg-type]
        state=state,
        until=iso(stored_alarm.next_ms) if stored_alarm.next_ms > definition.start_ms else None,
        skipped=stored_alarm.skipped,
        promise=promise(definition, len(alarm_series)),
        promised_per_year=definition.false_alarms * YEAR_MS / definition.every_ms,
        series=sorted(answers, key=series_answer_order),
        raised=stored_alarm.raised,
        reason=stored_alarm.reason if has_run else NEVER_RUN,
    )


def _series_answer(series: AlarmSeries, stored_alarm: SeriesState, alarm: State) -> SeriesAnswer:
    return SeriesAnswer(
        slice=values(series.slice),
        category=msgspec.UNSET if series.category is None else series.category,
        state="unwatchable" if stored_alarm.reason else alarm,
        evidence=stored_alarm.evidence,
        baseline=stored_alarm.compared_with,
        smallest_shift=stored_alarm.smallest_shift,
        panes=stored_alarm.panes,
        alarms=stored_alarm.alarms,
        reason=stored_alarm.reason,
    )


def alarms_frame(answer: AlarmsAnswer) -> Frame:
    """Return a table with the state of each series."""
    return Frame.of(ALARM_COLUMNS, (row for alarm in answer.alarms for row in _series_rows(alarm)))


def _series_rows(alarm: AlarmAnswer) -> Iterator[tuple[Any, ...]]:
    last: dict[tuple[str, ...], str] = {}
    for raised in alarm.raised:  # the newest first
        last.setdefault(tuple(raised.names), raised.at)
    for series in alarm.series:
        baseline = None if series.baseline is None else series.baseline.value
        yield (
            *(alarm.alarm, alarm.metric, alarm.unit, ", ".join(series_names(series.slice, UNSET))),
            *(None if series.category is UNSET else series.category, alarm.direction, series.state),
            *(_ms(alarm.until), baseline if isinstance(baseline, int | float) else None),
            *(series.evidence, series.smallest_shift, series.panes, series.alarms),
            *(_ms(last.get(tuple(series.names))), series.reason or alarm.reason),
        )


def _ms(moment: str | None) -> int | None:
    return None if moment is None else round(1000 * from_iso(moment))
