"""Tables of alarms: the state of each series, and the evidence of each pane."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec import UNSET

from aggregator.features.alarms.answers import AlarmAnswer, AlarmsAnswer, series_names
from aggregator.features.alarms.run import WatchedPane
from aggregator.reading.frames.frame import Frame
from aggregator.reading.grouping import slice_name
from aggregator.timestamps import from_iso

ALARM_COLUMNS = (
    *("alarm", "metric", "unit", "slice", "label", "direction", "state", "watched_until"),
    *("baseline", "evidence", "smallest_shift", "panes", "alarms", "last_alarm", "reason"),
)
STEP_COLUMNS = (
    *("alarm", "metric", "slice", "label", "window_start", "evidence", "informative", "raised"),
)


def alarms_frame(answer: AlarmsAnswer) -> Frame:
    """Return a table with the state of each series."""
    return Frame.of(ALARM_COLUMNS, (row for alarm in answer.alarms for row in _series_rows(alarm)))


def steps_frame(alarm: str, metric: str, panes: Iterable[WatchedPane]) -> Frame:
    """Return a table with the evidence of each pane and series.

    Parameters
    ----------
    alarm, metric : str
    panes : iterable of WatchedPane
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
