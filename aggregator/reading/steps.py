"""The steps of a series, and limits on the size of answers."""

from __future__ import annotations

from estimators import Metric
from estimators.durations import UNITS_MS, above_zero, milliseconds
from estimators.metrics.bins import Bins

MAX_SERIES_POINTS = 1_000
DEFAULT_SERIES_POINTS = 200
MAX_ANSWER_NUMBERS = 100_000
"""The most numbers of an answer: points times categories."""
MAX_ESTIMATED_NUMBERS = 1_000_000
"""The most numbers of an answer at all levels: a processor takes a few seconds for these."""
MAX_QUICK_NUMBERS = 10_000
"""An estimate of at most this many numbers takes less than a tenth of a second."""
CELLS_PER_NUMBER = 50
"""How many cells of sums are read and added in the time that one number is estimated."""
ESTIMATES_PER_COMPARISON = 10
"""A comparison costs as much as this many estimates."""
ROUND_STEPS = "1s 5s 15s 30s 1m 5m 15m 30m 1h 3h 6h 12h 1d 2d 1w 2w 4w"
ROUND_STEPS_MS = [*map(milliseconds, ROUND_STEPS.split())]


def whole_panes(metric: Metric, step: str) -> int:
    """Return a step in milliseconds, widened to whole panes of a metric.

    Raises ValueError if the step is not a duration above zero.
    """
    return -(-above_zero("step", step) // metric.pane_ms) * metric.pane_ms


def _points(first: int, last: int, step: int) -> int:
    return -(-last // step) - first // step


def default_step(metric: Metric, first: int, last: int, max_points: int) -> int:
    """Return the shortest round step with at most 200 points; a multiple of panes if none fits.

    `metric`: the metric; `first`, `last`: the edges of the range, in ms since the epoch;
    `max_points`: the largest number of points.
    """
    points = min(DEFAULT_SERIES_POINTS, max_points)
    for step in (metric.pane_ms, *ROUND_STEPS_MS):
        if step % metric.pane_ms == 0 and _points(first, last, step) <= points:
            return step
    return _smallest(metric, first, last, points)


def _smallest(metric: Metric, first: int, last: int, points: int) -> int:
    """Return the shortest step in whole panes with at most `points` points, wherever they lie."""
    return -(-(last - first) // ((points - 1) * metric.pane_ms)) * metric.pane_ms


def numbers_per_estimate(metric: Metric, labels: int) -> int:
    """Return the cost of an estimate: its numbers at all levels, or the equivalent of its sums.

    `labels` is the number of requested categories; a distribution is always estimated at all edges.
    """
    domain = metric.domain
    numbers = domain.limits.size if isinstance(domain, Bins) else max(1, labels)
    return max(numbers * len(metric.levels), metric.zero().size // CELLS_PER_NUMBER)


def max_series_points(labels: int, numbers_per_point: int = 1) -> int:
    """Return the maximum number of points of an answer.

    `labels` is the number of numbers shown at a point, `numbers_per_point` the cost of a point by
    :func:`numbers_per_estimate`.
    """
    limits = MAX_ANSWER_NUMBERS // max(1, labels), MAX_ESTIMATED_NUMBERS // numbers_per_point
    return min(MAX_SERIES_POINTS, max(2, min(limits)))


def check_points(metric: Metric, first: int, last: int, step: int, max_points: int) -> None:
    """Raise an error if a step makes too many points; times are in ms since the epoch.

    `metric`: the metric; `first`, `last`: the edges of the range; `step`: the step; `max_points`:
    the largest number of points. Raises ValueError, which names the shortest step that fits.
    """
    if _points(first, last, step) > max_points:
        fits, why = duration(_smallest(metric, first, last, max_points)), ""
        if max_points < MAX_SERIES_POINTS:
            why = " of an answer of so many numbers; ask for fewer categories (category), or a "
            why += "shorter time"
        raise ValueError(
            f"step = {duration(step)!r}: {_points(first, last, step)} points, expected at most "
            f"{max_points}{why}: the smallest step that fits is {fits}"
        )


def check_slices(metric: Metric, slices: int, labels: int, estimates_per_slice: int = 1) -> None:
    """Raise an error if an answer has too many slices, or slices with too many numbers.

    `metric`: the metric; `slices`, `labels`, `estimates_per_slice`: how many slices there are, how
    many numbers a slice has, and how often a slice is estimated. Raises ValueError, which names the
    maximum.
    """
    check_work(metric, labels, estimates_per_slice)
    numbers_per_slice = estimates_per_slice * numbers_per_estimate(metric, labels)
    max_points = max_series_points(labels, numbers_per_slice)
    max_slices = min(max_points, MAX_SERIES_POINTS // estimates_per_slice)
    if slices > max_slices:
        raise ValueError(
            f"by: {slices} slices, expected at most {max_slices}: ask for the largest "
            f"(top={max_slices}), by fewer attributes, or for fewer categories (category)"
        )


def check_work(metric: Metric, work: int, estimates: int = 1) -> None:
    """Raise an error if estimates have too many numbers.

    `metric`: the metric; `work`, `estimates`: how many numbers an estimate has at each level, and
    the number of estimates. Raises ValueError if they have more than the allowed numbers together.
    """
    check_shown(work, MAX_ESTIMATED_NUMBERS // (estimates * len(metric.levels)))


def check_shown(labels: int, max_numbers: int = MAX_ANSWER_NUMBERS) -> None:
    """Raise an error if an answer has too many categories or coordinates.

    Raises ValueError if it has more than `max_numbers`.
    """
    if labels > max_numbers:
        is_top_useful = max_numbers == MAX_ANSWER_NUMBERS
        suggestion = f"the largest (top={max_numbers}), or " if is_top_useful else ""
        raise ValueError(
            f"{labels} numbers, expected at most {max_numbers}: ask for {suggestion}some "
            "categories (category)"
        )


def duration(ms: int) -> str:
    """Return milliseconds as the text of a duration.

    Examples
    --------
    >>> duration(5_400_000), duration(86_400_000), duration(1)
    ('90m', '1d', '1ms')
    """
    unit = next(u for u, width in reversed(UNITS_MS.items()) if ms % width == 0)
    return f"{ms // UNITS_MS[unit]}{unit}"
