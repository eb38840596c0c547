"""The states of all alarms from Redis, in the form of answers and as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import UNSET

from aggregator.errors import DitherError
from aggregator.features.alarms.answers import (
    AlarmAnswer,
    AlarmsAnswer,
    SeriesAnswer,
    State,
    series_answer_order,
    series_names,
)
from aggregator.features.alarms.definitions import AlarmDefinition, alarms_of
from aggregator.features.alarms.run import WatchedPane
from aggregator.features.alarms.series import (
    AlarmSeries,
    SeriesState,
    StoredAlarm,
    identity,
    promise,
    read_state,
    series_of,
    unit_of,
)
from aggregator.reading.frames.frame import Frame
from aggregator.reading.grouping import slice_name
from aggregator.reading.reader import MetricReader
from aggregator.reading.serialization import values
from aggregator.timestamps import from_iso, iso
from estimators import LocalMetric
from estimators.errors import meant

YEAR_MS = 365 * 86_400_000
NEVER_RUN = "no publisher has looked at a pane yet: `dither serve` runs alarms (publish.enabled)"
ALARM_COLUMNS = (
    *("alarm", "metric", "unit", "slice", "label", "direction", "state", "watched_until"),
    *("baseline", "evidence", "smallest_shift", "panes", "alarms", "last_alarm", "reason"),
)
STEP_COLUMNS = (
    *("alarm", "metric", "slice", "label", "window_start", "evidence", "informative", "raised"),
)


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
    stored = read_state(reader.store, identity(definition, metric))
    has_run = stored is not None and len(stored.series) == len(alarm_series)
    if stored is None or not has_run:
        stored = StoredAlarm(
            next_ms=definition.start_ms,
            is_learning=definition.baseline_ms is not None,
            series=[series.state for series in alarm_series],
        )
    state: State = "learning" if stored.is_learning else "watching"
    if stored.reason:
        state = "unwatchable"
    answers = [
        _series_answer(series, series_state, state)
        for series, series_state in zip(alarm_series, stored.series, strict=True)
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
        until=iso(stored.next_ms) if stored.next_ms > definition.start_ms else None,
        skipped=stored.skipped,
        promise=promise(definition, len(alarm_series)),
        promised_per_year=definition.false_alarms * YEAR_MS / definition.every_ms,
        series=sorted(answers, key=series_answer_order),
        raised=stored.raised,
        reason=stored.reason if has_run else NEVER_RUN,
    )


def _series_answer(series: AlarmSeries, stored: SeriesState, alarm: State) -> SeriesAnswer:
    return SeriesAnswer(
        slice=values(series.slice),
        category=msgspec.UNSET if series.category is None else series.category,
        state="unwatchable" if stored.reason else alarm,
        evidence=stored.evidence,
        baseline=stored.compared_with,
        smallest_shift=stored.smallest_shift,
        panes=stored.panes,
        alarms=stored.alarms,
        reason=stored.reason,
    )


def alarms_frame(answer: AlarmsAnswer) -> Frame:
    """Return a table with the state of each series."""
    return Frame.of(ALARM_COLUMNS, (row for alarm in answer.alarms for row in _series_rows(alarm)))


def steps_frame(alarm: str, metric: str, panes: Iterable[WatchedPane]) -> Frame:
    """Return a table with the evidence of each pane and series.

    `alarm`, `metric`: the names of the alarm and of its metric; `panes`: the panes with their
    evidence.
    """
    rows = (
        (
            *(alarm, metric, slice_name(series.slice), series.category, pane.start_ms),
            *(step.evidence / step.needed, step.informative, bool(step.raised)),
        )
        for pane in panes
        for series, step in pane.steps
    )
    return Frame.of(STEP_COLUMNS, rows)


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
