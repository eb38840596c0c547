"""Runs of windows of a roll-up that are over, so that none is reported twice."""

from __future__ import annotations

from typing import TypeAlias

Run: TypeAlias = tuple[int, int]
"""From the start of the first window to the end of the last one, in ms since the epoch."""
MOST_RUNS = 8


def after_closed(closed: list[Run], start: int) -> int:
    """Return the first window from a start on that is not closed.

    Parameters
    ----------
    closed : list of (int, int)
        In order, without overlaps.
    start : int

    Examples
    --------
    >>> after_closed([(0, 4), (6, 8)], 2), after_closed([(0, 4), (6, 8)], 4)
    (4, 4)
    """
    for first, end in closed:
        if first <= start < end:
            start = end
    return start


def uncovered(closed: list[Run], start: int, end: int) -> int:
    """Return how much of an interval is in no run; they do not overlap.

    Parameters
    ----------
    closed : list of (int, int)
    start, end : int
        The interval.

    Examples
    --------
    >>> uncovered([(0, 4), (6, 8)], 2, 9)
    3
    """
    covered = sum(max(0, min(end, last) - max(start, first)) for first, last in closed)
    return max(0, end - start) - covered


def with_run(closed: list[Run], run: Run) -> list[Run]:
    """Return runs in order, with one more; of too many the oldest become one.

    Parameters
    ----------
    closed : list of (int, int)
    run : (int, int)
        It may overlap others.

    Examples
    --------
    >>> with_run([(0, 4), (6, 8)], (4, 5))
    [(0, 5), (6, 8)]
    """
    runs: list[Run] = []
    for first, end in sorted([*closed, run]):
        if runs and first <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(runs[-1][1], end))
        else:
            runs.append((first, end))
    return runs if len(runs) <= MOST_RUNS else [(runs[0][0], runs[1][1]), *runs[2:]]
