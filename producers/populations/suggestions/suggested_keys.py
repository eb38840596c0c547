"""Suggests panes, ranges for a mean with their costs, and bins for a distribution."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from estimators.durations import milliseconds
from estimators.metrics.categories import ANSWERING_MECHANISM
from estimators.metrics.loading import define
from estimators.metrics.metric import Metric
from producers.populations.suggestions.expected_widths import simulated_estimate
from producers.populations.time_columns import DAY_MS

SUGGESTED_PANES = ("1m", "5m", "15m", "1h", "6h", "1d", "1w", "4w")
MAX_SUGGESTED_PANES = 400
MAX_PANE_BYTES = 64_000_000
"""The most bytes in Redis of all panes in the file's times, with a topic's default partitions."""
DEFAULT_PARTITIONS = 6
TABLE_ROWS = (1024, 512, 256)
"""Rows of an open vocabulary's table to try; the first that fits `MAX_PANE_BYTES` is used."""


def choose_pane(
    keys: dict[str, object], metric_name: str, times: NDArray[np.int64], users_per_day: float | None
) -> tuple[dict[str, object], float, list[str]]:
    """Return the keys of a definition with a pane, the expected reports in a pane, and notes.

    `keys`, `metric_name`: the definition and its name; a table that would be too large gets fewer
    rows; `times`: event times in ms since the epoch, possibly none; `users_per_day`, optional: the
    expected number of users per day; by default the times determine the reports in a pane.
    """
    for rows in TABLE_ROWS if keys.get("mechanism") == ANSWERING_MECHANISM else TABLE_ROWS[:1]:
        fewer = {} if rows == TABLE_ROWS[0] else {"options": {"rows": rows}}
        metric = define(name=metric_name, **keys, **fewer)
        pane, size, reports, pane_notes = _pane(times, metric, users_per_day)
        if size <= MAX_PANE_BYTES:
            break
    if fewer:
        pane_notes[0] += f"; {rows} rows make it smaller"
    return keys | {"pane": pane} | fewer, reports, pane_notes


def _pane(
    times: NDArray[np.int64], metric: Metric, users_per_day: float | None
) -> tuple[str, int, float, list[str]]:
    """Return the narrowest affordable pane with enough reports, and facts about it.

    These are the size of all its panes in bytes, the typical number of reports in a pane, and
    notes.
    """
    valid_times = times[times >= 0]
    for pane in SUGGESTED_PANES:
        width = milliseconds(pane)
        panes, stored = _count_panes(valid_times, width)
        size = stored * metric.zero().nbytes * DEFAULT_PARTITIONS
        reports = _reports(valid_times, width, users_per_day)
        has_enough = reports >= metric.minimum_reports
        if panes <= MAX_SUGGESTED_PANES and size <= MAX_PANE_BYTES and has_enough:
            break
    pane_note = f"pane: {pane}"
    if valid_times.size:
        megabytes = max(1, round(size / 1e6))
        pane_note += (
            f", so that the times span {panes} pane{'s' * (panes != 1)}: at most {megabytes} MB in "
            f"Redis with {DEFAULT_PARTITIONS} partitions (`retention` lets old panes expire)"
        )
    source = "of the file" if users_per_day is None else f"for {users_per_day:,g} users a day"
    pane_note += f"; {reports:,.0f} reports {source} are in one of them, typically"
    too_few_note = (
        f"a step of the history needs {metric.minimum_reports} reports (`minimum_reports`), and "
        f"not even a pane of {pane} has them: the history will show no numbers, but the running "
        "total will. --users-per-day says how many users you expect"
    )
    return pane, size, reports, [pane_note] if has_enough else [pane_note, too_few_note]


def _reports(times: NDArray[np.int64], width_ms: int, users_per_day: float | None) -> float:
    """Return the median number of reports in panes with reports, or the expected number."""
    if users_per_day is not None:
        return users_per_day * width_ms / DAY_MS
    if not times.size:
        return 0.0
    return float(np.median(np.unique(times // width_ms, return_counts=True)[1]))


def _count_panes(times: NDArray[np.int64], width_ms: int) -> tuple[int, int]:
    """Return the number of panes that the times span, and of statistics that Redis stores."""
    if not times.size:
        return 0, 0
    spanned = -(-int(times.max() - times.min()) // width_ms) or 1
    coarser = [grain for grain in (3_600_000, 86_400_000) if width_ms < grain]
    return spanned, 1 + sum(np.unique(times // width).size for width in (width_ms, *coarser))


TRIED_TAIL_SHARES = (0.0, 0.001, 0.01, 0.05)
"""The shares of values on either side that the tried ranges leave out, before rounding."""
ROUND_STEPS = (1.0, 2.0, 5.0, 10.0)
MIN_RANGE_STEPS = 8
"""The least width of a range, in steps of rounding."""
MIN_DISTINCT_VALUES = 20
"""If there are fewer distinct values, the ends of a range would reveal some of them."""
MAX_TRIAL_REPORTS = 20_000
"""The most reports of a trial estimate; its width is scaled to the number of all rows."""
BINS_TAIL = 0.001
"""The share of values on either side that the bins leave out, before rounding."""
MIDDLE_QUANTILE = 0.05
"""The middle of the values lies between this quantile and the quantile of 1 minus this."""
WIDE_RANGE_RATIO = 4.0
"""The range of the values is wide if it is at least this many times as wide as their middle.

The ratio is 1.9 for normal, 1.1 for uniform and 2.3 for exponential values.
"""
LOG_SCALE_RATIO = 100.0
"""A scale is logarithmic if the high end is at least this many times the low end."""


@dataclasses.dataclass(frozen=True)
class Range:
    """A range, and what it costs with the values of a file.

    Attributes
    ----------
    low, high : float
        The ends of the range.
    share_inside : float
        The share of values that are not clipped.
    shift : float
        How much clipping changes the mean.
    width : float
        The width of the mean's 95% bounds, if each value is reported, with equal shares of levels.
    """

    low: float
    high: float
    share_inside: float
    shift: float
    width: float

    @property
    def error(self) -> float:
        """The largest distance of the estimate from the true mean, if the bounds hold."""
        return abs(self.shift) + self.width / 2


def assess(numbers: NDArray[np.float64], low: float, high: float, levels: Sequence[float]) -> Range:
    """Return a range with its costs: the exact effect of clipping, the width of simulated bounds.

    `numbers`: the values; `low`, `high`: the ends of the range; `levels`: the epsilons, which have
    equal shares.
    """
    clipped = np.clip(numbers, low, high)
    share_inside = float(((numbers >= low) & (numbers <= high)).mean())
    shift = float(clipped.mean() - numbers.mean())
    return Range(low, high, share_inside, shift, _width(clipped, low, high, levels))


def rank_ranges(numbers: NDArray[np.float64], levels: Sequence[float]) -> list[Range]:
    """Return ranges between rounded quantiles, in the order of their errors."""
    candidates = dict.fromkeys(
        round_range(*np.quantile(numbers, [tail, 1 - tail])) for tail in TRIED_TAIL_SHARES
    )
    ranges = (assess(numbers, *edges, levels) for edges in candidates if edges[0] < edges[1])
    return sorted(ranges, key=lambda shown: shown.error)


def describe(ranges: Sequence[Range], chosen: Range, rows: int, unit: str) -> list[str]:
    """Return the lines of a table of ranges; `chosen` is marked, and added if it is missing.

    `ranges`: the ranges; `chosen`: the chosen range; `rows`: the number of reports for the widths;
    `unit`: the unit of the values, or "".
    """
    lines = [
        f"range: what each costs with {rows:,} reports, levels alike"
        + (f", in {unit}" if unit else ""),
        f"  {'from':>10} {'to':>10} {'inside':>8} {'clipping moves the mean by':>27} "
        f"{'width of 95% bounds':>20}",
    ]
    listed = [*ranges, *([] if chosen in ranges else [chosen])]
    for shown in sorted(listed, key=lambda shown: shown.high - shown.low, reverse=True):
        mark = "  <- chosen" if shown == chosen else ""
        lines.append(
            f"  {shown.low:>10g} {shown.high:>10g} {shown.share_inside:>8.2%} {shown.shift:>27.4g} "
            f"{shown.width:>20.4g}{mark}"
        )
    return lines


def _width(clipped: NDArray[np.float64], low: float, high: float, levels: Sequence[float]) -> float:
    metric = define(
        name="trial", kind="mean", mechanism="auto", levels=list(levels), range=(low, high)
    )
    reports = min(clipped.size, MAX_TRIAL_REPORTS)
    estimate = simulated_estimate(metric, clipped, reports)
    return float((estimate.upper - estimate.lower) * math.sqrt(reports / clipped.size))


def round_range(low: float, high: float) -> tuple[float, float]:
    """Return the range widened to rounded ends.

    >>> round_range(3.2, 488.1), round_range(-0.013, 0.041), round_range(7, 7)
    ((0.0, 500.0), (-0.015, 0.045), (7.0, 7.1))
    """
    span = high - low or 1.0
    decade = 10.0 ** math.floor(math.log10(span / MIN_RANGE_STEPS))
    step = max(k * decade for k in ROUND_STEPS if MIN_RANGE_STEPS * k * decade <= span)
    first, last = math.floor(low / step), math.ceil(high / step)
    last += first == last
    digits = max(0, -math.floor(math.log10(step))) + 1
    return round(first * step, digits), round(last * step, digits)


def is_wide(numbers: NDArray[np.float64], value_range: tuple[float, float] | None) -> bool:
    """Return whether tails make up most of the values' range, after clipping to `value_range`.

    >>> latency = np.exp(np.random.default_rng(1).normal(5, 1, 10_000))
    >>> is_wide(latency, None), is_wide(latency, (0, 1000)), is_wide(np.log(latency), None)
    (True, False, False)
    """
    values = numbers if value_range is None else np.clip(numbers, *value_range)
    ends = np.quantile(values, [BINS_TAIL, MIDDLE_QUANTILE, 1 - MIDDLE_QUANTILE, 1 - BINS_TAIL])
    return bool(ends[3] - ends[0] >= WIDE_RANGE_RATIO * (ends[2] - ends[1]) > 0)


def suggest_bins(
    numbers: NDArray[np.float64], value_range: tuple[float, float] | None
) -> tuple[dict[str, object], str]:
    """Return the keys for the range and the scale of suitable bins, and a note with the reason.

    Without a `value_range`, the ends are rounded quantiles, which reveal no value if there are at
    least 20 distinct values.
    """
    low, high = (float(q) for q in np.quantile(numbers, [BINS_TAIL, 1 - BINS_TAIL]))
    is_positive = bool(np.quantile(numbers, BINS_TAIL, method="lower") > 0)
    if value_range is not None:
        low, high = value_range
    is_log = is_positive and low > 0 and high >= LOG_SCALE_RATIO * low and is_wide(numbers, None)
    if value_range is None:
        low, high = (_round_down(low), _round_up(high)) if is_log else round_range(low, high)
    share_inside = float(((numbers >= low) & (numbers <= high)).mean())
    keys: dict[str, object] = {"range": [low, high]}
    scale = (
        "of equal width (scale 'linear'), because the values have no long tails, are not above 0, "
        f"or span less than a factor of {LOG_SCALE_RATIO:g}"
    )
    if is_log:
        keys["scale"] = "log"
        scale = (
            "each wider than the one before by the same factor (scale 'log'), because the values "
            f"have long tails, are above 0 and span a factor of {high / low:.3g}"
        )
    note = f"bins: from {low:g} to {high:g}, {scale}; {share_inside:.2%} of the values are inside"
    return keys, f"{note}, others count in the end bins"


def _round_down(value: float) -> float:
    """Return the largest 1, 2 or 5 times a power of ten that is at most `value`.

    >>> _round_down(3.2), _round_down(0.05), _round_down(999)
    (2.0, 0.05, 500.0)
    """
    return max(step for step in _steps(value) if step <= value)


def _round_up(value: float) -> float:
    """Return the smallest 1, 2 or 5 times a power of ten that is at least `value`.

    >>> _round_up(3.2), _round_up(501)
    (5.0, 1000.0)
    """
    return min(step for step in _steps(value) if step >= value)


def _steps(value: float) -> list[float]:
    power = math.floor(math.log10(value))
    return [float(f"{k}e{power + shift}") for shift in (-1, 0, 1) for k in (1, 2, 5)]
