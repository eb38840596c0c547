"""Published bounds for the same reports: the papers' constants, and NPRR.

NPRR is Waudby-Smith, Wu and Ramdas, "Nonparametric extensions of randomized response for private
confidence sets" (2023), with bounds by Hoeffding's inequality for the same one-bit reports.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from estimators.estimate import Floats
from estimators.metrics.local import LocalMetric

LEVELS = (0.25, 0.5, 1.0, 2.0, 4.0)
BETA = 0.05
LAPLACE_STEPS = 60


class Sample(NamedTuple):
    """The input of a bound: reports with their levels, in order, and their statistic."""

    metric: LocalMetric
    level: Any
    reports: Any
    statistic: Any

    @property
    def epsilons(self) -> Floats:
        """The epsilon of each report."""
        epsilons: Floats = np.array(LEVELS)[self.level]
        return epsilons


Bound = Callable[[Sample], tuple[Floats, float]]
"""Returns the middle and half of the width of a bound."""


def _middle(sample: Sample, weights: str) -> Floats:
    value = sample.metric.estimate(sample.statistic, weights=weights, bound="normal").value
    middle: Floats = np.atleast_1d(value)
    return middle


def randomized_response_constants(sample: Sample) -> tuple[Floats, float]:
    """Return the bound of HLDP (35): Hoeffding's inequality for the weighted signs."""
    information = float(np.square(np.tanh(sample.epsilons / 2)).sum())
    return _middle(sample, "optimal"), math.sqrt(2 * math.log(2 / BETA) / information)


def laplace_constants(sample: Sample) -> tuple[Floats, float]:
    """Return the bound of HLDP (28), solved for t, with the weights of Algorithm 1."""
    weights = 1 / (1 + 1 / sample.epsilons**2)
    weights /= weights.sum()
    ratio = weights / sample.epsilons
    square, noise, max_ratio = float(weights @ weights), float(ratio @ ratio), float(ratio.max())

    def chance(t: float) -> float:
        values = 2 * math.exp(-(t**2) / (8 * square))
        return values + 2 * math.exp(-min(t**2 / (128 * noise), t / (16 * max_ratio)))

    low, high = 0.0, 1.0
    while chance(high) > BETA:
        high *= 2
    for _ in range(LAPLACE_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if chance(middle) > BETA else (low, middle)
    return _middle(sample, "paper"), high


def rappor_constants(sample: Sample) -> tuple[Floats, float]:
    """Return the bound of HDP-WC (147), for the users' own values with uniform weights.

    This is HIST's Theorem 6 with weights.
    """
    k, n = len(sample.metric.category_names), sample.level.size
    spread = float((1 / (np.tanh(sample.epsilons / 4) * sample.epsilons)).sum()) / n**2
    return _middle(sample, "uniform"), math.sqrt(2 * math.log(2 * k / BETA) * spread)


def projection_constants(sample: Sample) -> tuple[Floats, float]:
    """Return the bound of HLDP's Theorem 4.1 for unbiased rows: sqrt(2 ln(4 d / beta) / A2)."""
    information = float(np.square(np.tanh(sample.epsilons / 2)).sum())
    d = len(sample.metric.category_names)
    return _middle(sample, "optimal"), math.sqrt(2 * math.log(4 * d / BETA) / information)


def nprr_interval(signs: Floats, contrast: Floats, beta: float) -> tuple[float, float]:
    """Return NPRR's Hoeffding interval for the mean of signs: middle and half width.

    Parameters
    ----------
    signs : ndarray of float64, shape (n,)
        Reports, -1 or 1.
    contrast : ndarray of float64, shape (n,)
        r = (e^eps - 1) / (e^eps + 1) of each report.
    beta : float
        The largest probability that the interval misses the mean.

    Examples
    --------
    >>> nprr_interval(np.ones(100), np.ones(100), 0.05)[0]
    1.0
    """
    log = math.log(2 / beta)
    return _hoeffding(signs, contrast, np.full(signs.size, math.sqrt(8 * log / signs.size)), log)


def nprr_sequence(signs: Floats, contrast: Floats, beta: float) -> tuple[float, float]:
    """Return the last interval of NPRR's Hoeffding confidence sequence, which holds at all times.

    The parameters are as for :func:`nprr_interval`.
    """
    t, log = np.arange(1, signs.size + 1), math.log(2 / beta)
    return _hoeffding(signs, contrast, np.minimum(1, np.sqrt(8 * log / (t * np.log(t + 1)))), log)


def _hoeffding(signs: Floats, contrast: Floats, tilt: Floats, log: float) -> tuple[float, float]:
    total = float(tilt @ contrast)
    return float(tilt @ signs) / total, 2 * (log + float(tilt @ tilt) / 8) / total


def nprr(bound: Callable[[Floats, Floats, float], tuple[float, float]]) -> Bound:
    """Return the bound of one-bit reports that a function of NPRR gives."""

    def found(sample: Sample) -> tuple[Floats, float]:
        signs = 2.0 * np.asarray(sample.reports).reshape(-1) - 1
        middle, half = bound(signs, np.tanh(sample.epsilons / 2), BETA)
        return np.array([middle]), half

    return found
