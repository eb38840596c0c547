"""Chooses the steps of a series."""

from __future__ import annotations

from estimators import Metric
from estimators.durations import UNITS_MS, above_zero, milliseconds

MOST_POINTS = 1_000
USUAL_POINTS = 200
MOST_NUMBERS = 100_000
"""Of an answer: points by categories."""
STEPS = [f"{n}{u}" for u, ns in (("s", (1, 5, 15, 30)), ("m", (1, 5, 15, 30))) for n in ns]
STEPS += ["1h", "3h", "6h", "12h", "1d", "2d", "1w", "2w", "4w"]


def whole_panes(metric: Metric, step: str) -> int:
    """Return a step in milliseconds, widened to whole panes of a metric.

    Raises
    ------
    ValueError
        If it is no duration above zero.
    """
    return -(-above_zero("step", step) // metric.pane_ms) * metric.pane_ms


def _points(first: int, last: int, step: int) -> int:
    return -(-last // step) - first // step


def default_step(metric: Metric, first: int, last: int) -> int:
    """Return the step that makes about 200 points: a round one where the panes allow.

    Parameters
    ----------
    metric : Metric
        With its panes.
    first, last : int
        The range, in ms since the epoch.
    """
    for step in (metric.pane_ms, *map(milliseconds, STEPS)):
        if step % metric.pane_ms == 0 and _points(first, last, step) <= USUAL_POINTS:
            return step
    return _smallest(metric, first, last, USUAL_POINTS)


def _smallest(metric: Metric, first: int, last: int, points: int) -> int:
    """Return the smallest step, in whole panes, with at most so many points wherever it begins."""
    return -(-(last - first) // ((points - 1) * metric.pane_ms)) * metric.pane_ms


def most_points(labels: int) -> int:
    """Return how many points of so many numbers each an answer may have."""
    return min(MOST_POINTS, max(2, MOST_NUMBERS // max(1, labels)))


def check_points(metric: Metric, first: int, last: int, step: int, labels: int) -> None:
    """Refuse a step that makes too many points, or numbers, of a range.

    Parameters
    ----------
    metric : Metric
        With its panes.
    first, last : int
        The range, in ms since the epoch.
    step : int
        In ms.
    labels : int
        Numbers of each point.

    Raises
    ------
    ValueError
        Naming the smallest step that fits.
    """
    most = most_points(labels)
    if _points(first, last, step) > most:
        fits = duration(_smallest(metric, first, last, most))
        numbers = f" of {labels} numbers each" if most < MOST_POINTS else ""
        raise ValueError(
            f"step = {duration(step)!r}: {_points(first, last, step)} points{numbers}, expected at "
            f"most {most}: the smallest step that fits is {fits}"
            + (", or ask for fewer categories (top)" if numbers else "")
        )


def duration(ms: int) -> str:
    """Return milliseconds as people write a duration.

    Examples
    --------
    >>> duration(5_400_000), duration(86_400_000), duration(1)
    ('90m', '1d', '1ms')
    """
    unit = next(u for u, width in reversed(UNITS_MS.items()) if ms % width == 0)
    return f"{ms // UNITS_MS[unit]}{unit}"
