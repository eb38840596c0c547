"""The states of alarms in the form that `--json`, HTTP and tables have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from aggregator.errors import DitherError
from aggregator.features.alarms.definitions import AlarmDefinition, alarms_of
from aggregator.features.alarms.run import (
    AlarmRaised,
    AlarmRun,
    Baseline,
    StoredAlarm,
    promise,
    series_names,
    series_of,
    unit_of,
)
from aggregator.reading.frames.frame import Frame
from aggregator.reading.reader import MetricReader
from aggregator.reading.serialization import Moment, Value, values
from aggregator.timestamps import from_iso, iso
from estimators import LocalMetric
from estimators.errors import meant

State = Literal["learning", "watching", "unwatchable"]
YEAR_MS = 365 * 86_400_000
NEVER_RUN = "no publisher has looked at a pane yet: `dither serve` runs alarms (publish.enabled)"
ALARM_COLUMNS = (
    *("alarm", "metric", "unit", "slice", "label", "direction", "state", "watched_until"),
    *("baseline", "evidence", "smallest_shift", "panes", "alarms", "last_alarm", "reason"),
)


class SeriesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One series of an alarm.

    `evidence` is the evidence of a move from the baseline, as a share of what an alarm needs: at 1
    an alarm is raised; null before the first pane. `smallest_shift` is the smallest move that would
    have raised an alarm by now with a probability of about 90%; null if unknown. A series without
    an alarm may still have moved. `reason` says why a series cannot be watched. `alarms` is the
    number of alarms that the series has raised.
    """

    slice: dict[str, Value]
    category: str | UnsetType = UNSET
    state: State
    evidence: float | None
    baseline: Baseline | None
    smallest_shift: float | None
    panes: int
    alarms: int
    reason: str

    @property
    def names(self) -> list[str]:
        """The series' ``attribute=value`` pairs and category."""
        return series_names(self.slice, self.category)


class AlarmAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The state of an alarm: how far it has looked, and the state of each series.

    `until` is the end of the last pane that it has looked at; null before the first pane. `skipped`
    is the number of panes that expired before the alarm looked at them. The series with most
    evidence come first, those that cannot be watched last. `promised_per_year` is how many false
    alarms a year are expected at most from all series of the alarm together. `raised` are the
    latest alarms, the newest first. `reason` says why the alarm does not look at panes; empty if it
    does.
    """

    alarm: str
    metric: str
    unit: str
    by: list[str]
    where: dict[str, Value]
    start: Moment
    every_seconds: float
    direction: Literal["any", "up", "down"]
    state: State
    until: Moment | None
    skipped: int
    promise: str
    promised_per_year: float
    series: list[SeriesAnswer]
    raised: list[AlarmRaised]
    reason: str


class AlarmsAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """All alarms; together at most `promised_per_year` false alarms a year are expected."""

    alarms: list[AlarmAnswer]
    promised_per_year: float


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
    stored_alarm = AlarmRun.read_state(reader, definition)
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
        SeriesAnswer(
            slice=values(series.slice),
            category=UNSET if series.category is None else series.category,
            state="unwatchable" if stored.reason else state,
            evidence=stored.evidence,
            baseline=stored.compared_with,
            smallest_shift=stored.smallest_shift,
            panes=stored.panes,
            alarms=stored.alarms,
            reason=stored.reason,
        )
        for series, stored in zip(alarm_series, stored_alarm.series, strict=True)
    ]
    answers.sort(key=lambda answer: (answer.state == "unwatchable", -(answer.evidence or 0.0)))
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
        series=answers,
        raised=stored_alarm.raised,
        reason=stored_alarm.reason if has_run else NEVER_RUN,
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
