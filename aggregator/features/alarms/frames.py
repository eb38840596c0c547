"""Alarms as tables: how each series stands, and what each pane said of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import UNSET

from aggregator.features.alarms.answers import AlarmAnswer, AlarmsAnswer, series_names
from aggregator.features.alarms.run import Taken
from aggregator.reading.frames.frame import Frame
from aggregator.reading.grouping import slice_name
from aggregator.timestamps import from_iso

STANDING = (
    *("alarm", "metric", "unit", "slice", "label", "direction", "state", "watched_until"),
    *("baseline", "evidence", "smallest_shift", "panes", "alarms", "last_alarm", "reason"),
)
STEPS = ("alarm", "metric", "slice", "label", "window_start", "evidence", "informative", "raised")


def alarms_frame(found: AlarmsAnswer) -> Frame:
    """Return how alarms stand as a table: a row for each series.

    Parameters
    ----------
    found : AlarmsAnswer
    """
    return Frame.of(STANDING, (row for alarm in found.alarms for row in _standing(alarm)))


def steps_frame(alarm: str, metric: str, panes: Iterable[Taken]) -> Frame:
    """Return what panes said as a table: a row for each pane and series.

    Parameters
    ----------
    alarm : str
    metric : str
    panes : iterable of Taken
    """
    rows = (
        (
            *(alarm, metric, slice_name(one.slice), one.category, pane.start_ms),
            *(step.evidence / step.needed, step.informative, bool(step.raised)),
        )
        for pane in panes
        for one, step in pane.steps
    )
    return Frame.of(STEPS, rows)


def _standing(alarm: AlarmAnswer) -> Iterator[tuple[Any, ...]]:
    last: dict[tuple[str, ...], str] = {}
    for raised in alarm.raised:  # the newest first
        last.setdefault(tuple(raised.names), raised.at)
    for one in alarm.series:
        known = None if one.baseline is None else one.baseline.value
        yield (
            *(alarm.alarm, alarm.metric, alarm.unit, ", ".join(series_names(one.slice, UNSET))),
            *(None if one.category is UNSET else one.category, alarm.direction, one.state),
            *(_ms(alarm.until), known if isinstance(known, int | float) else None),
            *(one.evidence, one.smallest_shift, one.panes, one.alarms),
            *(_ms(last.get(tuple(one.names))), one.reason or alarm.reason),
        )


def _ms(moment: str | None) -> int | None:
    return None if moment is None else round(1000 * from_iso(moment))
