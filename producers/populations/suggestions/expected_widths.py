"""Shows how wide the bounds of a suggested metric will be, by estimates from simulated reports."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from estimators.distribution import DistributionEstimate
from estimators.errors import shortened
from estimators.estimate import Estimate, Floats
from estimators.exact.randomness import SeededBits
from estimators.metrics.categories import OPEN_VOCABULARY
from estimators.metrics.loading import define
from estimators.metrics.local import LocalMetric
from estimators.rounding import interval
from producers.populations.population import Column

FAILURE_PROBABILITY = 0.05
SHOWN_QUANTILES = {"median": 0.5, "p95": 0.95}
MAX_SHOWN_SLICES = 12
LIMIT_QUANTILE = 0.9
"""A suggested limit is this quantile of the file, rounded to one digit."""
WIDE_MARK = " (!)"
MAX_SIMULATED_REPORTS = 2_000_000
CELL_WIDTH = 32
"""The width of a bound in the table, in characters."""
REPORTS_AT_A_TIME = 65_536
GOLDEN_RATIO = (5**0.5 - 1) / 2
"""Multiples of this number are spread evenly modulo 1, so that levels do not follow the order of
values."""


def simulated_estimate(
    metric: LocalMetric, values: ArrayLike, reports: int, **asked: Any
) -> Estimate:
    """Return the estimate from simulated reports, whose values are drawn from `values`.

    Its bounds are about as wide as those of real reports will be. Values are drawn in random order,
    and equally often (counts differ by one at most), so that their order has no effect. A million
    reports take about a second. `metric`: the metric; `values`, shape (n,): values as for
    :meth:`LocalMetric.randomize`; `reports`: the number of simulated reports, with equal shares of
    the levels; `asked`: arguments of :meth:`LocalMetric.estimate`.

    >>> from estimators import define
    >>> late = define(name="late", kind="mean", range=(0, 1), levels=[1, 4])
    >>> few, many = (simulated_estimate(late, [0, 0, 0, 1], n) for n in (1_000, 100_000))
    >>> bool(few.upper - few.lower > 8 * (many.upper - many.lower)), few.reports, many.reports
    (True, 1000, 100000)
    """
    rows = np.random.default_rng(0).permutation(np.asarray(values))
    statistic, bits, levels = metric.zero(), SeededBits(0), len(metric.levels)
    for start in range(0, reports, REPORTS_AT_A_TIME):
        index = np.arange(start, min(start + REPORTS_AT_A_TIME, reports))
        level = (index * GOLDEN_RATIO % 1 * levels).astype(np.intp)
        drawn = metric.randomize(rows[index * len(rows) // reports], level, bits)
        metric.accumulate(statistic, level, drawn)
    return metric.estimate(statistic, **asked)


@dataclasses.dataclass(frozen=True)
class Part:
    """Some of the expected reports: a name, their number, typical values, and beta."""

    name: str
    reports: int
    values: Column
    beta: float = FAILURE_PROBABILITY


def slice_parts(
    metric: LocalMetric, values: Column, attributes: Mapping[str, Column]
) -> list[Part]:
    """Return the slices of some values, those with the most reports first.

    The bounds of all slices with enough reports hold at once, with probability 95%. `metric`: the
    metric; `values`: the values; `attributes`: the attributes of each value, by name; "" for an
    attribute that is not sent.
    """
    names = [""] * len(values)
    for name, cells in attributes.items():
        words = {value: value for value in metric.attributes[name]} | {"": "none"}
        texts = (f"{name}={words.get(cell, 'other')}" for cell in cells)
        names = [
            f"{slice_name}, {text}" if slice_name else text
            for slice_name, text in zip(names, texts, strict=True)
        ]
    slices, slice_indices, counts = np.unique(names, return_inverse=True, return_counts=True)
    beta = FAILURE_PROBABILITY / max(1, int((counts >= metric.minimum_reports).sum()))
    return [
        Part(str(slices[index]), int(counts[index]), values[slice_indices == index], beta)
        for index in np.argsort(-counts, kind="stable")
    ]


def describe_widths(metric: LocalMetric, parts: Sequence[Part]) -> list[str]:
    """Return a table of the expected bounds, and what to ask instead where they are too wide.

    `metric`: the metric; `parts`: what to show; the first part must have all values.
    """
    values, heads, most_frequent = parts[0].values, ["mean"], None
    largest_width = math.inf
    if metric.kind == "distribution":
        heads = [*SHOWN_QUANTILES]
        median, high = np.quantile(values, [*SHOWN_QUANTILES.values()])
        largest_width = float(high - median)
    elif metric.kind == "frequency":
        ((most_frequent, _),) = Counter(values.tolist()).most_common(1)
        heads = [f"share of {shortened(most_frequent)}"]
    shown = parts[: 3 + MAX_SHOWN_SLICES]  # all rows, a pane, the largest slice in a pane; slices
    name_width = max(len(part.name) for part in shown)
    lines, wide_parts = [], []
    for part in shown:
        cells = [f"too few: {metric.minimum_reports} are needed"]
        if part.reports >= metric.minimum_reports:
            rows = _bounds(metric, part, most_frequent)
            is_wide = (rows[:, 2] - rows[:, 1] > largest_width).tolist()
            texts = ("{} in [{}, {}]".format(*interval(row)) for row in rows.tolist())
            cells = [text + WIDE_MARK * mark for text, mark in zip(texts, is_wide, strict=True)]
            wide_parts += [part] * any(is_wide)
        lines.append((part.name, f"{part.reports:,}", cells))
    title = "widths: 95% bounds to expect once final, levels alike"
    title += f", in {metric.unit}" * bool(metric.unit)
    described = [title + "; those of slices hold for all of them together" * bool(metric.by)]
    for name, reports, cells in [("", "reports", heads), *lines]:
        padded = "".join(f"{cell:<{CELL_WIDTH}}" for cell in cells).rstrip()
        described.append(f"  {name:<{name_width}} {reports:>10}  {padded}")
    hidden = len(parts) - len(shown)
    described += [f"  and {hidden} slices more, with fewer reports"] * (hidden > 0)
    if any(part.reports > MAX_SIMULATED_REPORTS for part in shown):
        described.append(f"  more reports than {MAX_SIMULATED_REPORTS:,} have narrower bounds")
    if wide_parts:
        described.append(
            _describe_share(metric, values, min(wide_parts, key=lambda part: part.reports))
        )
    return described


def _bounds(metric: LocalMetric, part: Part, most_frequent: str | None) -> Floats:
    """Return rows of value, lower and upper bound that are expected, for a part of the reports."""
    quantiles = [*SHOWN_QUANTILES.values()] if metric.kind == "distribution" else None
    listed = [most_frequent] if metric.categories == OPEN_VOCABULARY and most_frequent else None
    estimate = simulated_estimate(
        metric,
        part.values,
        min(part.reports, MAX_SIMULATED_REPORTS),
        beta=part.beta,
        quantiles=quantiles,
        categories=listed,
    )
    if isinstance(estimate, DistributionEstimate):
        return estimate.quantiles[:, 1:]
    rows = np.stack([np.atleast_1d(x) for x in (estimate.shown, estimate.lower, estimate.upper)], 1)
    return rows[[estimate.labels.index(most_frequent) if most_frequent else 0]]


def _describe_share(metric: LocalMetric, values: Column, part: Part) -> str:
    """Return which share to ask for, in place of quantiles whose bounds are too wide."""
    limit = float(f"{np.quantile(values, LIMIT_QUANTILE):.1g}")
    share = define(
        name="share",
        kind="mean",
        mechanism="auto",
        range=(0, 1),
        options={"values": "two"},
        levels=metric.levels,
    )
    is_above = dataclasses.replace(part, values=(part.values > limit).astype(np.float64))
    (row,) = _bounds(share, is_above, None).tolist()
    share_text = "{} in [{}, {}]".format(*interval(row))
    return (
        f"{WIDE_MARK.strip()}: wider than from the median to p95 of all rows, so this quantile "
        f"would be noise. Ask how many are above a limit that matters: --above {limit:g} gives "
        f"a share, {share_text} of {part.name}"
    )
