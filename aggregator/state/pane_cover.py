"""Covers a window by complete days, then complete hours, then the metric's own panes."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from aggregator.state.pane_keys import width_ms
from estimators import Metric

COARSE_GRAINS = ("day", "hour")
COVER_GRAINS = (*COARSE_GRAINS, "pane")


class PaneSpan(NamedTuple):
    """Panes of one grain with starts in [start, end), in ms since the epoch; None is no bound."""

    grain: str
    start: int | None
    end: int | None

    def has(self, start: int) -> bool:
        """Return whether a pane with this start is in the span."""
        return (self.start is None or self.start <= start) and (
            self.end is None or start < self.end
        )


def spans(
    metric: Metric,
    closed_ms: int,
    start: int | None,
    end: int | None,
    grains: tuple[str, ...] = COVER_GRAINS,
) -> Iterator[PaneSpan]:
    """Cut a window into spans of fine and coarse panes, with the fewest panes in all.

    Parameters
    ----------
    metric : Metric
    closed_ms : int
        Panes up to this time are closed: a coarse pane before it is complete and never changes.
    start, end : int or None
        On edges of the metric's panes, in ms since the epoch.
    grains : tuple of str
        The allowed grains, the coarsest first.

    Examples
    --------
    >>> from estimators import define
    >>> metric = define(name="m", kind="mean", mechanism="auto", range=(0, 1), levels=[1],
    ...                 pane="30m")
    >>> hour = 3_600_000
    >>> [(s.grain, s.start / hour, s.end / hour)
    ...  for s in spans(metric, 50 * hour, 23 * hour, int(49.5 * hour))]
    [('hour', 23.0, 24.0), ('day', 24.0, 48.0), ('hour', 48.0, 49.0), ('pane', 49.0, 49.5)]
    """
    if start is not None and end is not None and start >= end:
        return
    grain, *finer = grains
    if not finer:
        yield PaneSpan(grain, start, end)
        return
    cut = functools.partial(spans, metric, closed_ms, grains=tuple(finer))
    width, finest = width_ms(grain, metric), width_ms(grains[-1], metric)
    last = (closed_ms if end is None else min(end, closed_ms)) // width * width
    first = None if start is None else -(-start // width) * width
    exists = finest < width and width % finest == 0
    if not exists or (first is not None and first >= last):
        yield from cut(start, end)
        return
    if first is not None:
        yield from cut(start, first)
    yield PaneSpan(grain, first, last)
    yield from cut(last, end)
