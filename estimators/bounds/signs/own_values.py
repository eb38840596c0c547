"""Bounds on the mean of users' own signs: Theorems 12 to 14 of docs/proofs/inversion.md."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from estimators.bounds.mixtures import LOG_MIXTURE_WEIGHTS, MIXTURE_TILTS, TILT_RATIO, LinearMixture
from estimators.bounds.normal import BERRY_ESSEEN
from estimators.bounds.signs.law import MAX_SIGN_TILT, Law, blocks
from estimators.bounds.tolerances import LOG_P_SAFETY, THETA_ROUNDING
from estimators.estimate import Floats, Limits

SHARE_CELL_RATIO = 1.1
"""The ratio of the variances at a cell's ends: finer cells narrow a width by less than 0.5%."""
MAX_TILT_FACTOR = 1.5
"""The largest factor x of a sign, over t s_l; measured: with larger factors, W depends mostly on
the noisiest levels."""
MIXTURE_REACH = 4.0
"""For all times, tilts within this factor of the best one for a normal law are summed."""


class _Line(NamedTuple):
    """For each tilt, a line in theta above K: its value at theta = 0 and its slope."""

    at_zero: Floats
    slope: Floats


def own_value_limits(law: Law, signs: Floats, log_p: float, totals: Floats | None = None) -> Limits:
    """Return bounds on theta in [-1, 1], shape (windows, k), each wrong with probability <= p.

    `law`: the laws of the windows' signs, with an offset, in rows; `signs`, shape (windows, levels,
    k): the levels' sums of signs; `log_p`: ln p; `totals`, shape (windows,), optional: N of each
    window, for bounds at all times, as in :func:`estimators.bounds.signs.limits.limits`.

    >>> law = Law(np.array([[1e4]]), np.array([[2e-4]]), np.array([0.5]), offset=np.array([-0.25]))
    >>> lower, upper = own_value_limits(law, np.array([[[-2500.0]]]), np.log(0.025))
    >>> float(lower[0, 0].round(3)), float(upper[0, 0].round(3))
    (-0.034, 0.034)
    """
    lower, upper = np.empty((2, len(signs), signs.shape[-1]))
    for side, law_of_side, sign in ((lower, law, 1), (upper, law.mirrored(), -1)):
        ends = _variance(law_of_side, np.array([-1.0, 1.0]))
        log_ratio = np.abs(np.log(ends[:, 1] / ends[:, 0]))
        if totals is None:
            cells = np.maximum(np.ceil(log_ratio / math.log(SHARE_CELL_RATIO)), 1)
        else:  # about as many tilts as are near the best ones
            cells = 1 + np.ceil(
                (log_ratio / 2 + 2 * math.log(MIXTURE_REACH)) / math.log(TILT_RATIO)
            )
        for count in np.unique(cells).astype(int).tolist():
            rows = np.flatnonzero(cells == count)
            for part in blocks(rows.size, count * max(signs.shape[1:])):
                chosen = rows[part]
                parts = law_of_side.rows(chosen), sign * signs[chosen], log_p, ends[chosen]
                side[chosen] = sign * (
                    _fixed_limits(*parts, count)
                    if totals is None
                    else _anytime_limits(*parts, totals[chosen])
                )
    centre = _clipped_estimate(law, signs)
    return np.minimum(lower, centre), np.maximum(upper, centre)


def _clipped_estimate(law: Law, signs: Floats) -> Floats:
    """Return the estimates of theta, clipped to [-1, 1], shape (windows, k)."""
    expected = np.vecdot(law.coefficient * law.counts, law.offsets)
    estimate: Floats = (law.coefficient[:, None] @ signs)[:, 0] - expected[:, None]
    return np.clip(estimate, -1, 1)


# Theorem 13 of docs/proofs/inversion.md
def _fixed_limits(law: Law, signs: Floats, log_p: float, ends: Floats, cells: int) -> Floats:
    """Return lower limits; `ends`: the variances at theta = -1, 1; `cells`: the number of cells."""
    variances = np.geomspace(ends[:, 0], ends[:, 1], cells + 1, axis=1)
    edges = np.tile([-1.0, 1.0], (len(ends), 1))
    if cells > 1:  # the variance is linear in theta
        edges = 2 * (variances - ends[:, :1]) / np.diff(ends) - 1
    edges[:, 0], edges[:, -1] = -1.0, 1.0
    middle = np.sqrt(variances[:, 1:] * variances[:, :-1])
    cost = np.full(middle.shape, -log_p)
    for _ in range(3):
        tilt = np.sqrt(np.maximum(2 * cost, 1.0) / middle)
        cost = LOG_P_SAFETY - log_p + _log_remainder(law, tilt, edges)
    x, *lines = _bound_cumulant(law, tilt)
    limits = np.empty((len(signs), signs.shape[-1]))
    for part in blocks(len(signs), cells * signs.shape[-1]):
        surplus = x[part] @ signs[part] - cost[part, :, None]
        line_limits = [
            (surplus - line.at_zero[part, :, None]) / line.slope[part, :, None] for line in lines
        ]
        cell_limits = np.maximum(*line_limits)
        is_accepted = cell_limits < edges[part, 1:, None]
        first_cell = np.argmax(is_accepted, axis=1)
        limit = np.take_along_axis(cell_limits, first_cell[:, None], axis=1)[:, 0]
        limit = np.maximum(limit, np.take_along_axis(edges[part], first_cell, axis=1))
        limits[part] = np.where(is_accepted.any(axis=1), limit, np.inf)
    return np.where(limits < np.inf, _clip(law, limits), 1.0)


# Theorem 14 of docs/proofs/inversion.md
def _anytime_limits(law: Law, signs: Floats, log_p: float, ends: Floats, totals: Floats) -> Floats:
    """Return lower limits; `ends`: the variances at theta = -1, 1; `totals`: N of each window."""
    goal = LOG_P_SAFETY - log_p
    best_tilts = np.sqrt(2 * (goal + 2) / ends)
    tilt = MIXTURE_TILTS * totals[:, None]
    is_near = tilt >= best_tilts.min(axis=1, keepdims=True) / MIXTURE_REACH
    is_near &= tilt <= best_tilts.max(axis=1, keepdims=True) * MIXTURE_REACH
    used = is_near.any(axis=0)
    log_weights = np.where(is_near, LOG_MIXTURE_WEIGHTS, -np.inf)[:, None, used]
    has_tilts = is_near.any(axis=1)[:, None]
    if not used.any():
        return np.full((len(signs), signs.shape[-1]), -1.0)
    x, *both = _bound_cumulant(law, tilt[:, used])
    below, above = (_Line(*(part[:, None] for part in line)) for line in both)
    centre = _clipped_estimate(law, signs)[..., None]
    is_first_lower = below.at_zero + centre * below.slope <= above.at_zero + centre * above.slope
    at_zero, slope = (np.where(is_first_lower, a, b) for a, b in zip(below, above, strict=True))
    terms = (x @ signs).swapaxes(1, 2) + log_weights - at_zero
    start = np.where(has_tilts, ((terms - goal) / slope).max(axis=-1), 0.0).ravel()
    slope, terms = (part.reshape(start.size, -1) for part in (slope, terms))
    lines = LinearMixture(start, slope, terms, slope * start[:, None], slope)
    limits = lines.solve(np.zeros(start.size), goal).reshape(centre.shape[:2])
    return np.where(has_tilts, _clip(law, limits), -1.0)


def _clip(law: Law, limits: Floats) -> Floats:
    """Return lower limits that allow for rounding, within [-1, 1]."""
    margin = THETA_ROUNDING + np.broadcast_to(law.offset_rounding, len(limits))
    return np.clip(limits - margin[:, None], -1.0, 1.0)


def _factors(law: Law, tilt: Floats) -> Floats:
    """Return x, the factor of a sign in W, shape (windows, tilts, levels)."""
    holder_mean, non_holder_mean = _means(law)
    scaled = tilt[..., None] * law.coefficient[:, None]
    growth = np.expm1(np.minimum(2 * scaled * law.contrast, 4 * MAX_SIGN_TILT))
    denominator = holder_mean - (1 + growth) * non_holder_mean
    tanh = np.divide(growth, denominator, out=np.ones_like(growth), where=growth < denominator)
    x = np.arctanh(np.minimum(tanh, math.tanh(MAX_SIGN_TILT)))
    return np.minimum(x, MAX_TILT_FACTOR * scaled)


# Theorem 12 of docs/proofs/inversion.md
def _bound_cumulant(law: Law, tilt: Floats) -> tuple[Floats, _Line, _Line]:
    """Return x, shape (windows, tilts, levels), and two lines in theta that are both above K."""
    x, (holder_mean, non_holder_mean) = _factors(law, tilt), _means(law)
    counts, scale = law.counts[:, None], (law.coefficient * law.contrast)[:, None]
    base = np.vecdot(np.log1p((1 + non_holder_mean) / 2 * np.expm1(2 * x)) - x, counts)
    tanh_x = np.tanh(x)
    mean_gap = holder_mean - non_holder_mean
    holder_gain = np.log1p(mean_gap * tanh_x / (1 + non_holder_mean * tanh_x))
    least_slope = (holder_gain / scale).min(axis=-1) / 2
    through_end = _Line(base + np.vecdot(holder_gain, counts) - least_slope, least_slope)
    return x, _Line(base + tilt, tilt), through_end


def _means(law: Law) -> tuple[Floats, Floats]:
    return np.minimum(law.offsets + law.contrast, 1.0), np.maximum(law.offsets - law.contrast, -1.0)


def _variance(law: Law, theta: Floats) -> Floats:
    """Return the variance of S if all levels have the same share of holders, (windows, thetas)."""
    sign_variances = [(1 - mean) * (1 + mean) for mean in _means(law)]
    square = law.coefficient**2 * law.counts
    holder_variance, non_holder_variance = (np.vecdot(square, x)[:, None] for x in sign_variances)
    min_variance = 1e-12 * square.sum(axis=1, keepdims=True)
    gain = holder_variance - non_holder_variance
    variance: Floats = np.maximum(min_variance, non_holder_variance + (1 + theta) / 2 * gain)
    return variance


def _log_remainder(law: Law, tilt: Floats, edges: Floats) -> Floats:
    """Return an upper bound on ln R for each tilt, for all thetas between neighbouring edges."""
    from scipy.special import erfcx

    x = _factors(law, tilt)
    tanh = np.tanh(x)
    mean = [(tanh + m) / (1 + m * tanh) for m in _means(law)]
    holder_variance, non_holder_variance = (x**2 * (1 - m) * (1 + m) for m in mean)
    counts = law.counts[:, None]
    third = np.vecdot(x**2 * x * np.maximum(*(1 - (m**2) ** 2 for m in mean)), counts)
    variance_gap = holder_variance - non_holder_variance
    worst_slope = (variance_gap / (law.coefficient * law.contrast)[:, None]).min(axis=-1)
    holders = np.where(worst_slope > 0, edges[:, :-1], edges[:, 1:]) / 2 + 1 / 2
    least_variance = np.maximum(
        np.vecdot(non_holder_variance, counts) + holders * worst_slope,
        np.vecdot(np.minimum(holder_variance, non_holder_variance), counts),
    )
    least_variance = np.maximum(least_variance, 1e-60)
    berry_esseen = 2 * BERRY_ESSEEN * third / least_variance**1.5
    remainder: Floats = erfcx(np.sqrt(2 * least_variance)) + berry_esseen
    return np.log(np.minimum(remainder, 1.0))
