"""Chooses the steps of a series, and how much one answer may take."""

from __future__ import annotations

from estimators import Metric
from estimators.durations import UNITS_MS, above_zero, milliseconds
from estimators.metrics.bins import Bins

MOST_POINTS = 1_000
USUAL_POINTS = 200
MOST_NUMBERS = 100_000
"""Of an answer: points by categories."""
MOST_ESTIMATED = 1_000_000
"""Numbers that are estimated for an answer, level by level: a processor needs a few seconds."""
LIGHT = 10_000
"""Numbers of an estimate that need a processor for less than a tenth of a second."""
CELLS = 50
"""Cells of a sum that are read and added up in the time that one such number takes."""
COMPARED = 10
"""A comparison takes as long as so many estimates."""
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


def default_step(metric: Metric, first: int, last: int, most: int) -> int:
    """Return the step that makes about 200 points: a round one where the panes allow.

    Parameters
    ----------
    metric : Metric
        With its panes.
    first, last : int
        The range, in ms since the epoch.
    most : int
        Points that an answer may have.
    """
    points = min(USUAL_POINTS, most)
    for step in (metric.pane_ms, *map(milliseconds, STEPS)):
        if step % metric.pane_ms == 0 and _points(first, last, step) <= points:
            return step
    return _smallest(metric, first, last, points)


def _smallest(metric: Metric, first: int, last: int, points: int) -> int:
    """Return the smallest step, in whole panes, with at most so many points wherever it begins."""
    return -(-(last - first) // ((points - 1) * metric.pane_ms)) * metric.pane_ms


def estimated(metric: Metric, labels: int) -> int:
    """Return how many numbers an estimate takes: those of all levels, and of reading the sums.

    Parameters
    ----------
    metric : Metric
    labels : int
        Categories that are asked for, also those that are not shown. A distribution is estimated at
        all edges, whatever is asked.
    """
    domain = metric.domain
    numbers = domain.limits.size if isinstance(domain, Bins) else max(1, labels)
    return max(numbers * len(metric.levels), metric.zero().size // CELLS)


def most_points(labels: int, each: int = 1) -> int:
    """Return how many points an answer may have.

    Parameters
    ----------
    labels : int
        Numbers of a point that are shown.
    each : int
        Numbers that a point takes (:func:`estimated`).
    """
    most = min(MOST_NUMBERS // max(1, labels), MOST_ESTIMATED // each)
    return min(MOST_POINTS, max(2, most))


def check_points(metric: Metric, first: int, last: int, step: int, most: int) -> None:
    """Refuse a step that makes too many points of a range.

    Parameters
    ----------
    metric : Metric
        With its panes.
    first, last : int
        The range, in ms since the epoch.
    step : int
        In ms.
    most : int
        Points that an answer may have.

    Raises
    ------
    ValueError
        Naming the smallest step that fits.
    """
    if _points(first, last, step) > most:
        fits = duration(_smallest(metric, first, last, most))
        raise ValueError(
            f"step = {duration(step)!r}: {_points(first, last, step)} points, expected at most "
            f"{most}{_many_numbers(most)}: the smallest step that fits is {fits}"
        )


def check_slices(metric: Metric, slices: int, labels: int, each: int = 1) -> None:
    """Refuse an answer of too many slices, or of slices with too many numbers.

    Parameters
    ----------
    metric : Metric
    slices : int
    labels : int
        Categories of each.
    each : int
        How many estimates each takes.

    Raises
    ------
    ValueError
        Naming how many there may be.
    """
    check_shown(labels, MOST_ESTIMATED // (each * len(metric.levels)))
    most = min(most_points(labels, each * estimated(metric, labels)), MOST_POINTS // each)
    if slices > most:
        raise ValueError(
            f"by: {slices} slices, expected at most {most}: ask for the largest (top={most}), by "
            "fewer attributes, or for fewer categories (category)"
        )


def check_shown(labels: int, most: int = MOST_NUMBERS) -> None:
    """Refuse an answer of too many categories or coordinates.

    Parameters
    ----------
    labels : int
    most : int

    Raises
    ------
    ValueError
        Naming how many there may be.
    """
    if labels > most:
        few = f"the largest (top={most}), or " if most == MOST_NUMBERS else ""
        raise ValueError(
            f"{labels} numbers, expected at most {most}: ask for {few}some categories (category)"
        )


def _many_numbers(most: int) -> str:
    few = " of an answer of so many numbers; ask for fewer categories (category), or a shorter time"
    return few if most < MOST_POINTS else ""


def duration(ms: int) -> str:
    """Return milliseconds as people write a duration.

    Examples
    --------
    >>> duration(5_400_000), duration(86_400_000), duration(1)
    ('90m', '1d', '1ms')
    """
    unit = next(u for u, width in reversed(UNITS_MS.items()) if ms % width == 0)
    return f"{ms // UNITS_MS[unit]}{unit}"
