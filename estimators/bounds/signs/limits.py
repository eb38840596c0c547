"""Computes the interval for a question's bound and target, by the method that suits them."""

from __future__ import annotations

import numpy as np

from estimators.bounds.mixtures import deviation_bound
from estimators.bounds.normal import normal_quantile
from estimators.bounds.signs import anytime, inversion
from estimators.bounds.signs.law import Law
from estimators.bounds.signs.noise import Noise
from estimators.estimate import Bools, Floats, Indices, Limits
from estimators.question import Question

GROUP_WIDTH = 0.02
"""Sums whose distance is below this part of a half-width share a limit, which widens bounds by 1%
on average."""
PIVOT_SPACING, MAX_PIVOTS = 0.1, 64
"""The distance, in half-widths, of the sums for which tangents are computed, and the most such
sums; other sums share these tangents."""
POINT_SPACING = 0.01
"""Sums whose distance is below this part of a half-width share a plane, which widens bounds by less
than 0.01%."""


def limits(
    law: Law,
    observed: Floats,
    question: Question,
    log_p: float,
    total: float,
    noise: Noise | None = None,
) -> Limits:
    """Return bounds on theta in [-1, 1], shape (k,), for a question.

    `law`: the law of the reports; `observed`, shape (k,): the sums S, one for each category;
    `question`: the requested bound and target; `log_p`: ln p, where p is the failure probability of
    each side; `total`: from :func:`estimators.weights.total_weight`, for ``anytime``; `noise`,
    optional: the noise of S given the users' own values, for the target ``sample``. If it is None,
    the interval follows from `law`, which must then be free.
    """
    if not observed.size:  # a query of an open vocabulary may name no strings
        return observed, observed
    if question.panes != 1:
        return limits_over_panes(law, observed, question, log_p)
    if question.target == "sample" and noise is not None:
        if question.bound == "normal":
            margin = normal_quantile(log_p) * noise.variance**0.5
        elif question.bound == "anytime":
            margin = deviation_bound(noise.cumulant, noise.max_tilt, log_p, total)
        else:
            margin = noise.deviation(log_p)
        return np.clip(observed - margin, -1, 1), np.clip(observed + margin, -1, 1)
    if question.bound == "normal":
        return limits_over_panes(law, observed, question, log_p)
    return interval(law, observed, log_p, total if question.bound == "anytime" else None)


# Theorem 8 of docs/proofs/inversion.md
def limits_over_panes(law: Law, observed: Floats, question: Question, log_p: float) -> Limits:
    """Return bounds on theta from signs that are independent only within each of several panes.

    For ``normal`` the bounds are asymptotic, with the largest variance. If the number of panes is
    unknown, or if bounds must hold for all times, the result is [-1, 1]. `law`: without noise;
    `observed`, `question`, `log_p`: as in :func:`limits`.

    >>> law = Law(counts=np.array([4e4]), coefficient=np.array([1 / 4e4]), contrast=np.ones(1))
    >>> lower, upper = limits_over_panes(law, np.array([0.5]), Question(panes=4), np.log(0.025))
    >>> float(lower[0].round(4)), float(upper[0].round(4))
    (0.4728, 0.5272)
    """
    if question.panes is None or question.bound == "anytime":
        return np.full_like(observed, -1.0), np.full_like(observed, 1.0)
    if question.bound == "normal":
        variance = question.panes * law.largest_variance(np.clip(observed, -1, 1))
        margin = normal_quantile(log_p) * np.sqrt(variance)
    else:
        margin = np.full_like(observed, np.sqrt(-2 * log_p * question.panes * law.proxy))
    return np.clip(observed - margin, -1, 1), np.clip(observed + margin, -1, 1)


def interval(law: Law, observed: Floats, log_p: float, total: float | None = None) -> Limits:
    """Return bounds on theta in [-1, 1], shape (k,), each failing with probability at most p.

    With `total` they hold at all times at once. `law`, `observed`, `log_p`, `total`: as in
    :func:`limits`.

    >>> law = Law(counts=np.array([1e4]), coefficient=np.array([1e-4]), contrast=np.ones(1))
    >>> lower, upper = interval(law, np.array([0.5]), np.log(0.025))
    >>> float(lower[0].round(4)), float(upper[0].round(4))
    (0.4828, 0.5169)
    >>> lower, upper = interval(law, np.array([0.5]), np.log(0.025), total=1e4)
    >>> float(lower[0].round(3)), float(upper[0].round(3))
    (0.47, 0.529)
    """
    totals = None if total is None else np.array([total])
    lower, upper = intervals_of_categories(law, observed[None], log_p, totals)
    return lower[0], upper[0]


def intervals_of_windows(law: Law, observed: Floats, log_p: float) -> Limits:
    """Return :func:`interval` for the sum of signs of each window; the laws have no offset.

    `law`: the laws of the windows, in rows; `observed`, shape (windows,): the sums; `log_p`: as in
    :func:`limits`.
    """
    both_sides = law.rows(np.tile(np.arange(observed.size), 2))
    limits = inversion.lower_limit(both_sides, np.concatenate([observed, -observed]), log_p)
    return limits[: observed.size], -limits[observed.size :]


def intervals_of_categories(
    law: Law, observed: Floats, log_p: float, totals: Floats | None = None
) -> Limits:
    """Return :func:`interval` of the k sums of each of many windows, of shape (windows, k).

    `law`: the laws of the windows, in rows, or the law of a single window; `observed`, shape
    (windows, k): the sums; `log_p`: as in :func:`limits`; `totals`, shape (windows,), optional: N
    of each window, for bounds at all times.
    """
    mirrored, size = law.mirrored(), observed.shape[1]
    if mirrored is law:
        both_sides = np.concatenate([observed, -observed], axis=1)
        limits = _lower_limits(law, both_sides, log_p, totals)
        return limits[:, :size], -limits[:, size:]
    lower = _lower_limits(law, observed, log_p, totals)
    return lower, -_lower_limits(mirrored, -observed, log_p, totals)


def _lower_limits(law: Law, observed: Floats, log_p: float, totals: Floats | None) -> Floats:
    if observed.shape[1] == 1 and totals is None:
        return inversion.lower_limit(law, observed[:, 0], log_p)[:, None]
    order = np.argsort(observed, axis=1)
    ascending = np.take_along_axis(observed, order, axis=1)
    positions = _positions(law, ascending, log_p)
    if totals is None:
        starts = _starts(positions, GROUP_WIDTH)
        laws, sizes = law.of_rows(np.nonzero(starts)[0]), starts.sum(axis=1)
        limit = inversion.lower_limit(laws, ascending[starts], log_p, sizes)[_groups(starts)]
    else:
        spacing = np.maximum(PIVOT_SPACING, positions[:, -1:] / MAX_PIVOTS)
        pivots, points = (_groups(_starts(positions, x)) for x in (spacing, POINT_SPACING))
        limit = anytime.lower_limit(law, ascending.ravel(), pivots, points, log_p, totals)
    limits = np.empty_like(observed)
    np.put_along_axis(limits, order, limit.reshape(order.shape), axis=1)
    return limits


def _positions(law: Law, ascending: Floats, log_p: float) -> Floats:
    """Return approximately how many half-widths each sum is above the least sum of its window."""
    ranks = _ranks(ascending.shape[1])
    sampled, steps = ascending[:, ranks], np.diff(ascending, prepend=ascending[:, :1], axis=1)
    laws = law.of_rows(np.repeat(np.arange(len(ascending)), ranks.size))
    widths = _half_widths(laws, sampled.ravel(), log_p).reshape(sampled.shape)
    if ranks.size < ascending.shape[1]:
        sums = zip(ascending, sampled, widths, strict=True)
        widths = np.array([np.interp(*sums_of_window) for sums_of_window in sums])
    return np.cumsum(steps / widths, axis=1)


def _ranks(size: int) -> Indices:
    """Return the ranks of the sums whose half-widths are computed; others are interpolated."""
    return np.linspace(0, size - 1, min(size, MAX_PIVOTS)).astype(np.intp)


def _half_widths(law: Law, sums: Floats, log_p: float) -> Floats:
    return np.sqrt(-2 * log_p * law.largest_variance(np.clip(sums, -1, 1)))


def _starts(positions: Floats, width: Floats | float) -> Bools:
    """Return whether each position is the first of its window within its cell of `width`."""
    return np.diff(np.floor(positions / width), prepend=-1, axis=1) > 0


def _groups(starts: Bools) -> Indices:
    """Return the number of the group of each sum, of all windows in a row."""
    return np.cumsum(starts) - 1
