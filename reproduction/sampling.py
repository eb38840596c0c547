"""Sums of drawn reports, and what many runs tell: means, quantiles, shares and slopes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from estimators.estimate import Floats
from estimators.exact.randomness import SeededBits
from estimators.metrics.metric import ReportedMetric


def summed(metric: ReportedMetric, values: Any, level: Any, bits: SeededBits | None = None) -> Any:
    """Return the statistic of users' reports.

    Parameters
    ----------
    metric : ReportedMetric
        The metric.
    values : array_like, n rows
        The users' values, within the metric's domain.
    level : array_like of int, shape (n,)
        Index of each value's level.
    bits : SeededBits, optional
        Draws the reports; not needed if they are true values.
    """
    statistic = metric.zero()
    metric.accumulate(statistic, level, metric.randomize(values, level, bits))
    return statistic


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of independent values and its standard error.

    Examples
    --------
    >>> mean_and_error([1.0, 3.0])
    (2.0, 1.0)
    """
    n = len(values)
    mean = math.fsum(values) / n
    variance = math.fsum((value - mean) ** 2 for value in values) / max(1, n - 1)
    return mean, math.sqrt(variance / n)


def quantile_and_error(values: Floats, share: float) -> tuple[float, float]:
    """Return a quantile, and its standard error from the order statistics around it."""
    ordered, n = np.sort(values), values.size
    reach = math.sqrt(n * share * (1 - share))
    low, high = (ordered[min(n - 1, max(0, round(n * share + side * reach)))] for side in (-1, 1))
    return float(np.quantile(values, share)), float(high - low) / 2


def share_and_error(count: int, runs: int) -> tuple[float, float]:
    """Return a share of runs and its standard error, which is above 0 even if the count is 0."""
    share = count / runs
    return share, math.sqrt(max(share * (1 - share), 1 / runs) / runs)


def slope(
    x: Sequence[float], y: Sequence[float], errors: Sequence[float] | None = None
) -> tuple[float, float]:
    """Return the exponent of y ~ x^slope, by least squares of logarithms, and its standard error.

    Parameters
    ----------
    x, y : sequence of float
        The coordinates of points, above zero.
    errors : sequence of float, optional
        Standard errors of y; without them y is exact.

    Examples
    --------
    >>> exponent, error = slope([1.0, 10.0, 100.0], [2.0, 20.0, 200.0], [0.2, 2.0, 20.0])
    >>> round(exponent, 6), round(error, 4)
    (1.0, 0.0307)
    """
    across, up = [math.log(v) for v in x], [math.log(v) for v in y]
    middle = math.fsum(across) / len(across)
    shares = [(a - middle) / math.fsum((b - middle) ** 2 for b in across) for a in across]
    relative = [error / value for error, value in zip(errors or [0.0] * len(y), y, strict=True)]
    exponent = math.fsum(share * height for share, height in zip(shares, up, strict=True))
    return exponent, math.hypot(*(s * r for s, r in zip(shares, relative, strict=True)))
