"""Estimates from simulated reports: how wide bounds will be, before anybody reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from estimators.estimate import Estimate
from estimators.exact.randomness import SeededBits
from estimators.metrics.local import LocalMetric

REPORTS_AT_A_TIME = 65_536
GOLDEN_RATIO = (5**0.5 - 1) / 2
"""Multiples of this number are spread evenly modulo 1, so that levels do not follow the order of
values."""


def simulated_estimate(
    metric: LocalMetric,
    values: ArrayLike,
    reports: int,
    *,
    level_shares: Sequence[float] | None = None,
    seed: int = 0,
    **asked: Any,
) -> Estimate:
    """Return the estimate from simulated reports, whose values are drawn from `values`.

    Its bounds are about as wide as those of real reports will be. Values are drawn in random order,
    and equally often (counts differ by one at most), so that their order has no effect. A million
    reports take about a second. `metric`: the metric; `values`, shape (n,): values as for
    :meth:`LocalMetric.randomize`; `reports`: the number of simulated reports; `level_shares`: the
    share of the reports at each level; by default equal shares; `seed`: the seed of all randomness;
    `asked`: arguments of :meth:`LocalMetric.estimate`.

    >>> from estimators import define
    >>> late = define(name="late", kind="mean", range=(0, 1), levels=[1, 4])
    >>> few, many = (simulated_estimate(late, [0, 0, 0, 1], n) for n in (1_000, 100_000))
    >>> bool(few.upper - few.lower > 8 * (many.upper - many.lower)), few.reports, many.reports
    (True, 1000, 100000)
    """
    rows = np.random.default_rng(seed).permutation(np.asarray(values))
    statistic = metric.zero()
    shares = np.ones(len(metric.levels)) if level_shares is None else np.asarray(level_shares)
    level_ends, bits = np.cumsum(shares) / np.sum(shares), SeededBits(seed)
    for start in range(0, reports, REPORTS_AT_A_TIME):
        index = np.arange(start, min(start + REPORTS_AT_A_TIME, reports))
        level = np.searchsorted(level_ends[:-1], index * GOLDEN_RATIO % 1, side="right")
        drawn = metric.randomize(rows[index * len(rows) // reports], level, bits)
        metric.accumulate(statistic, level, drawn)
    return metric.estimate(statistic, **asked)
