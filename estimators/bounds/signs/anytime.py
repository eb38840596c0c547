"""Bounds at all times, for running totals: Theorems 9 to 11 of docs/proofs/inversion.md."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from estimators.bounds.mixtures import (
    CENTRAL_TILT,
    LOG_MIXTURE_WEIGHTS,
    MIXTURE_TILTS,
    TILT_RATIO,
    TILTS_PER_SIDE,
    LinearMixture,
)
from estimators.bounds.signs.law import Law, blocks
from estimators.bounds.tolerances import LOG_P_SAFETY, LOG_P_TOLERANCE, THETA_ROUNDING
from estimators.estimate import Floats, Indices
from estimators.interruption import checkpoint

MIXTURE_TERMS, TERMS_BELOW_BEST = 6, 3
"""How many terms are summed, and how many of them have smaller tilts than the best; measured."""
MAX_TANGENT_ROUNDS = 6  # the most rounds of tangents; three are enough
POINTS_PER_BLOCK = 2**13  # sums that are computed at a time: a processor's cache holds them


def lower_limit(
    law: Law,
    observed: Floats,
    pivot_of_sum: Indices,
    point_of_sum: Indices,
    log_p: float,
    totals: Floats,
) -> Floats:
    """Return thetas that the mixture rejects as too small at this time; shape (k,).

    A theta is -1 if the mixture rejects none. `law`: the law of S, with the coefficients c_l / N,
    or the laws of several windows, in rows; `observed`, shape (k,): the sums S, ascending within
    each window; each window has equally many sums; `pivot_of_sum`, `point_of_sum`, shape (k,): the
    number, from 0 on, of each sum's group: the sums of a group share a tangent of the cumulants, or
    a plane that touches the mixture. Any groups of sums of a window give valid limits; `log_p`: ln
    p, for all times together; `totals`, shape (windows,): N from
    :func:`estimators.weights.total_weight`.
    """
    goal, pivots = LOG_P_SAFETY - log_p, _middles(observed, pivot_of_sum)
    window_of_sum = np.repeat(np.arange(totals.size), observed.size // totals.size)
    window = window_of_sum[np.searchsorted(pivot_of_sum, np.arange(pivots.size))]
    terms = _terms(law.of_rows(window), pivots, goal, totals[window])
    centre = np.clip(pivots, -1.0, 1.0)
    next_theta = np.maximum(centre - terms.width, (centre - 1) / 2)
    theta, active = next_theta.copy(), np.arange(pivots.size)
    value, slope = np.empty((2, *terms.tilts.shape))
    for _ in range(MAX_TANGENT_ROUNDS):
        checkpoint()
        theta[active] = next_theta[active]
        value[active], slope[active] = touch_cumulants(
            law.of_rows(window[active]), theta[active], terms.tilts[active]
        )
        lines = LinearMixture(theta, terms.tilts, terms.log_weights, value, slope)
        next_theta = lines.solve(pivots, goal)
        is_far = np.abs(next_theta - theta) > LOG_P_TOLERANCE * terms.width
        active = np.flatnonzero(np.isin(window, window[is_far]))
        if not active.size:
            break
    points = _middles(observed, point_of_sum)
    touched, rise = np.empty((2, points.size))
    pivot_of_point = pivot_of_sum[np.searchsorted(point_of_sum, np.arange(points.size))]
    for begin in range(0, points.size, POINTS_PER_BLOCK):
        block = slice(begin, begin + POINTS_PER_BLOCK)
        mixtures, sums = lines.of_rows(pivot_of_point[block]), points[block]
        touched[block], rise[block] = mixtures.plane(mixtures.solve(sums, goal), sums, goal)
    limits = touched[point_of_sum] + rise[point_of_sum] * (observed - points[point_of_sum])
    rounding = THETA_ROUNDING + law.of_rows(window_of_sum).offset_rounding
    return np.clip(limits - rounding, -1.0, 1.0)


def _middles(ascending: Floats, group: Indices) -> Floats:
    """Return the middle between the least and the largest sum of each group."""
    ends = [np.searchsorted(group, np.arange(group[-1] + 1), side) for side in ("left", "right")]
    return (ascending[ends[0]] + ascending[ends[1] - 1]) / 2


class _Terms(NamedTuple):
    """Tilts of S and log weights, shape (m, MIXTURE_TERMS), and a first guess of half-widths."""

    tilts: Floats
    log_weights: Floats
    width: Floats


def _terms(law: Law, pivots: Floats, goal: float, totals: Floats) -> _Terms:
    """Return the terms near the best tilt for a normal law with the variance near the limit."""
    score_width = np.sqrt(2 * (goal + 2))
    centre = np.clip(pivots, -1.0, 1.0)
    theta = np.maximum(centre - score_width * np.sqrt(law.worst_variance), (centre - 1) / 2)
    sd = np.sqrt(law.largest_variance(theta))
    best_tilt = np.minimum(score_width / sd, law.max_tilt) / (totals * CENTRAL_TILT)
    best_term = np.floor(np.log(best_tilt) / np.log(TILT_RATIO)).astype(int) + TILTS_PER_SIDE
    first_term = np.clip(best_term - TERMS_BELOW_BEST, 0, MIXTURE_TILTS.size - MIXTURE_TERMS)
    term_index = first_term[:, None] + np.arange(MIXTURE_TERMS)
    tilts = MIXTURE_TILTS[term_index] * totals[:, None]
    max_tilt = np.broadcast_to(law.max_tilt, pivots.shape)[:, None]
    is_too_steep = tilts > max_tilt
    return _Terms(
        np.minimum(tilts, max_tilt),
        np.where(is_too_steep, -np.inf, LOG_MIXTURE_WEIGHTS[term_index]),
        score_width * sd,
    )


def touch_cumulants(law: Law, theta: Floats, tilts: Floats) -> tuple[Floats, Floats]:
    """Return lines above the cumulants, for all means: the values at theta, and the slopes.

    `law`: the law of the reports; `theta`, shape (m,): where the lines touch, in [-1, 1]; `tilts`,
    shape (m, terms): on the scale of S. The results have this shape.
    """
    value, slope = np.empty((2, *tilts.shape))
    for part in blocks(theta.size, tilts.shape[1] * law.contrast.size):
        flat, touched = tilts[part].ravel(), np.repeat(theta[part], tilts.shape[1])
        laws = law.of_rows(np.repeat(np.arange(theta.size)[part], tilts.shape[1]))
        tangents = laws.tangent(touched, flat)
        if law.free:
            hoeffding = flat * touched + _hoeffding(laws, flat)
            is_smaller = hoeffding < tangents[0]
            tangents = (
                np.where(is_smaller, hoeffding, tangents[0]),
                np.where(is_smaller, flat, tangents[1]),
            )
        value[part], slope[part] = (x.reshape(-1, tilts.shape[1]) for x in tangents)
    return value, slope


def _hoeffding(law: Law, tilts: Floats) -> Floats:
    """Return upper bounds on ln E exp(tilt (S - theta)) by Hoeffding's lemma, for free means."""
    from estimators.exact import discrete_laplace

    cumulant: Floats = tilts**2 / 2 * law.proxy
    if law.rate is not None:
        step = law.unit * law.coefficient
        noise = discrete_laplace.cumulant(law.rate, tilts[:, None] * step)[0]
        cumulant = cumulant + np.vecdot(noise, law.counts)
    return cumulant
