"""Covers a window by complete days, then complete hours, then the metric's own panes."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from aggregator.state.pane_keys import SLICES, SLICES_DAY

COARSE_GRAINS = ("day", "hour")
COVER_GRAINS, SLICE_GRAINS = (*COARSE_GRAINS, "pane"), (SLICES_DAY, SLICES)


class PaneSpan(NamedTuple):
    """Panes of one grain with starts in [start, end), in ms since the epoch; None is no bound."""

    grain: str
    start: int | None
    end: int | None


def spans(
    closed_ms: int, start: int | None, end: int | None, widths_ms: Mapping[str, int]
) -> Iterator[PaneSpan]:
    """Cut a window into spans of fine and coarse panes, with as few panes as possible.

    Parameters
    ----------
    closed_ms : int
        Panes up to this time are closed: a coarse pane before it is complete and never changes.
    start, end : int or None
        The edges of the window, which are edges of panes, in ms since the epoch; None for no limit.
    widths_ms : mapping of str to int
        The width of each allowed grain, the coarsest first.

    Examples
    --------
    >>> widths = {"day": 48, "hour": 2, "pane": 1}  # in half hours
    >>> [tuple(span) for span in spans(100, 46, 99, widths)]
    [('hour', 46, 48), ('day', 48, 96), ('hour', 96, 98), ('pane', 98, 99)]
    """
    if start is not None and end is not None and start >= end:
        return
    (grain, width), *finer = widths_ms.items()
    if not finer:
        yield PaneSpan(grain, start, end)
        return
    cut = functools.partial(spans, closed_ms, widths_ms=dict(finer))
    _, finest = finer[-1]
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
