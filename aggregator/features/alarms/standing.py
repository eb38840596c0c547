"""How all alarms stand, read from Redis."""

from __future__ import annotations

import msgspec

from aggregator.errors import DitherError
from aggregator.features.alarms.answers import (
    AlarmAnswer,
    AlarmsAnswer,
    SeriesAnswer,
    State,
    series_answer_order,
)
from aggregator.features.alarms.definitions import AlarmDefinition, alarms_of
from aggregator.features.alarms.series import Series, promise, series_of, unit_of
from aggregator.features.alarms.stored import StoredSeries, identity, read_state
from aggregator.reading.reader import MetricReader
from aggregator.reading.slices.answers import values
from aggregator.timestamps import iso
from estimators import LocalMetric
from estimators.errors import meant

YEAR_MS = 365 * 86_400_000
NEVER_RUN = "no publisher has looked at a pane yet: `dither serve` runs alarms (publish.enabled)"


def all_alarms(reader: MetricReader) -> AlarmsAnswer:
    """Return how the alarms of a reader's definitions stand.

    Parameters
    ----------
    reader : MetricReader
    """
    found = [alarm_answer(reader, one) for one in alarms_of(reader.metrics).values()]
    together = sum(one.promised_per_year for one in found)
    return AlarmsAnswer(alarms=found, promised_per_year=together)


def definition_of(reader: MetricReader, name: str) -> AlarmDefinition:
    """Return the definition of an alarm.

    Parameters
    ----------
    reader : MetricReader
    name : str

    Raises
    ------
    DitherError
        If there is no such alarm.
    """
    known = alarms_of(reader.metrics)
    if name not in known:
        raise DitherError(f"no alarm {name!r} in the definitions: {meant(name, known)}")
    return known[name]


def alarm_answer(reader: MetricReader, definition: AlarmDefinition) -> AlarmAnswer:
    """Return how an alarm stands.

    Parameters
    ----------
    reader : MetricReader
    definition : AlarmDefinition
    """
    metric = LocalMetric.require(reader.metric(definition.metric))
    named = series_of(metric, definition)
    stored = read_state(reader.store, identity(definition, metric))
    if stored is None or len(stored.series) != len(named):
        stored = None
    is_learning = definition.baseline_ms is not None if stored is None else stored.is_learning
    state: State = "learning" if is_learning else "watching"
    if stored is not None and stored.reason:
        state = "unwatchable"
    known = [None] * len(named) if stored is None else stored.series
    series = [_series(one, kept, state) for one, kept in zip(named, known, strict=True)]
    began = stored is not None and stored.next_ms > definition.start_ms
    return AlarmAnswer(
        alarm=definition.name,
        metric=definition.metric,
        unit=unit_of(metric, definition),
        by=list(definition.by),
        where=values(definition.where),
        start=str(iso(definition.start_ms)),
        every_seconds=definition.every_ms / 1000,
        direction=definition.direction,  # type: ignore[arg-type]
        state=state,
        until=iso(stored.next_ms) if stored is not None and began else None,
        skipped=0 if stored is None else stored.skipped,
        promise=promise(definition, len(named)),
        promised_per_year=definition.false_alarms * YEAR_MS / definition.every_ms,
        series=sorted(series, key=series_answer_order),
        raised=[] if stored is None else stored.raised,
        reason=NEVER_RUN if stored is None else stored.reason,
    )


def _series(one: Series, kept: StoredSeries | None, alarm: State) -> SeriesAnswer:
    state = alarm
    if kept is not None and kept.detector is None and alarm == "watching":
        state = "unwatchable"
    return SeriesAnswer(
        slice=values(one.slice),
        category=msgspec.UNSET if one.category is None else one.category,
        state=state,
        evidence=None if kept is None else kept.evidence,
        baseline=None if kept is None else kept.known,
        smallest_shift=None if kept is None else kept.smallest_shift,
        panes=0 if kept is None else kept.panes,
        alarms=0 if kept is None else kept.alarms,
        reason="" if kept is None else kept.reason,
    )
