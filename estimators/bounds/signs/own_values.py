"""Bounds on the mean of users' own signs: Theorems 12 to 14 of docs/proofs/inversion.md."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from estimators.bounds.mixtures import LOG_MIXTURE_WEIGHTS, MIXTURE_TILTS, LinearMixture
from estimators.bounds.normal import BERRY_ESSEEN
from estimators.bounds.signs.law import MAX_SIGN_TILT, Law
from estimators.bounds.tolerances import LOG_P_SAFETY, THETA_ROUNDING
from estimators.estimate import Floats, Limits

SHARE_CELL_RATIO = 1.1
"""The ratio of variances of neighbouring cells: finer cells narrow a width by less than 0.5%."""
MAX_TILT_FACTOR = 1.5
"""The largest tilt times s_l, as measured: with larger tilts, W depends mostly on the noisiest
levels."""
MIXTURE_REACH = 4.0
"""For all times, tilts within this factor of the best one for a normal law are summed."""


class _Line(NamedTuple):
    """For each tilt, a line in theta above K: its value at theta = 0 and its slope."""

    at_zero: Floats
    slope: Floats


def own_value_limits(law: Law, signs: Floats, log_p: float, total: float | None = None) -> Limits:
    """Return bounds on theta in [-1, 1], shape (k,), each failing with probability at most p.

    With `total` they hold at all times at once. `law`: the law of signs with an offset; `signs`,
    `log_p`, `total`: as in :func:`estimators.bounds.signs.limits.limits`.

    >>> law = Law(np.array([1e4]), np.array([2e-4]), np.array([0.5]), offset=np.array([-0.25]))
    >>> lower, upper = own_value_limits(law, np.array([[-2500.0]]), np.log(0.025))
    >>> float(lower[0].round(3)), float(upper[0].round(3))
    (-0.034, 0.034)
    """
    find = _fixed_limit if total is None else _anytime_limit
    scale = 0.0 if total is None else total
    lower, upper = find(law, signs, log_p, scale), -find(law.mirrored(), -signs, log_p, scale)
    centre = _clipped_estimate(law, signs)
    return np.minimum(lower, centre), np.maximum(upper, centre)


def _clipped_estimate(law: Law, signs: Floats) -> Floats:
    """Return the estimate, within [-1, 1]."""
    return np.clip(law.coefficient @ (signs - (law.counts * law.offsets)[:, None]), -1, 1)


# Theorem 13 of docs/proofs/inversion.md
def _fixed_limit(law: Law, signs: Floats, log_p: float, _: float) -> Floats:
    end_variances = _variance(law, np.array([-1.0, 1.0]))
    log_ratio = abs(math.log(end_variances[1] / end_variances[0]))
    cell_count = max(1, math.ceil(log_ratio / math.log(SHARE_CELL_RATIO)))
    variances = np.geomspace(end_variances[0], end_variances[1], cell_count + 1)
    edges = np.linspace(-1.0, 1.0, 2)
    if cell_count > 1:  # the variance is linear in theta
        edges = 2 * (variances - end_variances[0]) / (end_variances[1] - end_variances[0]) - 1
    edges[0], edges[-1] = -1.0, 1.0
    middle = np.sqrt(variances[1:] * variances[:-1])
    cost = np.full(cell_count, -log_p)
    for _ in range(3):
        tilt = np.sqrt(np.maximum(2 * cost, 1.0) / middle)
        cost = LOG_P_SAFETY - log_p + _log_remainder(law, tilt, edges)
    x, *lines = _bound_cumulant(law, tilt)
    surplus = x @ signs - cost[:, None]
    line_limits = [(surplus - at_zero[:, None]) / slope[:, None] for at_zero, slope in lines]
    cell_limits = np.maximum(*line_limits)
    is_accepted = cell_limits < edges[1:, None]
    first_cell = np.argmax(is_accepted, axis=0)
    limits = np.maximum(cell_limits[first_cell, np.arange(signs.shape[1])], edges[first_cell])
    limits = np.clip(limits - _rounding_margin(law), -1.0, 1.0)
    return np.where(is_accepted.any(axis=0), limits, 1.0)


# Theorem 14 of docs/proofs/inversion.md
def _anytime_limit(law: Law, signs: Floats, log_p: float, total: float) -> Floats:
    goal = LOG_P_SAFETY - log_p
    best_tilts = np.sqrt(2 * (goal + 2) / _variance(law, np.array([-1.0, 1.0])))
    tilt_grid = MIXTURE_TILTS * total
    least_tilt, largest_tilt = best_tilts.min() / MIXTURE_REACH, best_tilts.max() * MIXTURE_REACH
    is_near = (tilt_grid >= least_tilt) & (tilt_grid <= largest_tilt)
    if not is_near.any():
        return np.full(signs.shape[1], -1.0)
    tilt, log_weights = tilt_grid[is_near], LOG_MIXTURE_WEIGHTS[is_near]
    x, below, above = _bound_cumulant(law, tilt)
    centre = _clipped_estimate(law, signs)[:, None]
    is_first_lower = below.at_zero + centre * below.slope <= above.at_zero + centre * above.slope
    at_zero = np.where(is_first_lower, below.at_zero, above.at_zero)
    slope = np.where(is_first_lower, below.slope, above.slope)
    terms = (x @ signs).T + log_weights - at_zero
    shape = terms.shape
    start = ((terms - goal) / slope).max(axis=1)
    lines = LinearMixture(start, slope, terms, slope * start[:, None], slope)
    return np.clip(lines.solve(np.zeros(shape[0]), goal) - _rounding_margin(law), -1.0, 1.0)


def _factors(law: Law, tilt: Floats) -> Floats:
    """Return x, the factor of a sign in W, shape (tilts, levels)."""
    holder_mean, non_holder_mean = _means(law)
    exponent = 2 * tilt[:, None] * law.coefficient * law.contrast
    growth = np.expm1(np.minimum(exponent, 4 * MAX_SIGN_TILT))
    denominator = holder_mean - (1 + growth) * non_holder_mean
    tanh = np.divide(growth, denominator, out=np.ones_like(growth), where=growth < denominator)
    x = np.arctanh(np.minimum(tanh, math.tanh(MAX_SIGN_TILT)))
    return np.minimum(x, MAX_TILT_FACTOR * tilt[:, None] * law.coefficient)


# Theorem 12 of docs/proofs/inversion.md
def _bound_cumulant(law: Law, tilt: Floats) -> tuple[Floats, _Line, _Line]:
    """Return x, shape (tilts, levels), and lines in theta above K, for S and for -S."""
    x, (holder_mean, non_holder_mean) = _factors(law, tilt), _means(law)
    base = (np.log1p((1 + non_holder_mean) / 2 * np.expm1(2 * x)) - x) @ law.counts
    tanh_x = np.tanh(x)
    mean_gap = holder_mean - non_holder_mean
    holder_gain = np.log1p(mean_gap * tanh_x / (1 + non_holder_mean * tanh_x))
    least_slope = (holder_gain / (law.coefficient * law.contrast)).min(axis=1) / 2
    through_end = _Line(base + holder_gain @ law.counts - least_slope, least_slope)
    return x, _Line(base + tilt, tilt), through_end


def _means(law: Law) -> tuple[Floats, Floats]:
    return np.minimum(law.offsets + law.contrast, 1.0), np.maximum(law.offsets - law.contrast, -1.0)


def _variance(law: Law, theta: Floats) -> Floats:
    """Return the variance of S if all levels have the same share of holders."""
    sign_variances = [(1 - mean) * (1 + mean) for mean in _means(law)]
    square = law.coefficient**2
    holder_variance, non_holder_variance = (law.counts @ (square * x) for x in sign_variances)
    min_variance = 1e-12 * law.proxy
    gain = holder_variance - non_holder_variance
    return np.maximum(min_variance, non_holder_variance + (1 + theta) / 2 * gain)


def _log_remainder(law: Law, tilt: Floats, edges: Floats) -> Floats:
    """Return an upper bound on ln R for each tilt, for all thetas between neighbouring edges."""
    from scipy.special import erfcx

    x = _factors(law, tilt)
    tanh = np.tanh(x)
    mean = [(tanh + m) / (1 + m * tanh) for m in _means(law)]
    holder_variance, non_holder_variance = (x**2 * (1 - m) * (1 + m) for m in mean)
    third = (x**2 * x * np.maximum(*(1 - (m**2) ** 2 for m in mean))) @ law.counts
    variance_gap = holder_variance - non_holder_variance
    worst_slope = (variance_gap / (law.coefficient * law.contrast)).min(axis=1)
    holders = np.where(worst_slope > 0, edges[:-1], edges[1:]) / 2 + 1 / 2
    least_variance = np.maximum(
        non_holder_variance @ law.counts + holders * worst_slope,
        np.minimum(holder_variance, non_holder_variance) @ law.counts,
    )
    least_variance = np.maximum(least_variance, 1e-60)
    berry_esseen = 2 * BERRY_ESSEEN * third / least_variance**1.5
    remainder: Floats = erfcx(np.sqrt(2 * least_variance)) + berry_esseen
    return np.log(np.minimum(remainder, 1.0))


def _rounding_margin(law: Law) -> float:
    return THETA_ROUNDING + law.offset_rounding
