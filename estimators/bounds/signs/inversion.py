"""The means that a sum does not reject: Theorems 1, 2 and 6 of docs/proofs/inversion.md."""

from __future__ import annotations

import numpy as np

from estimators.bounds.signs.law import Law, blocks
from estimators.bounds.signs.noise import log_laplace_remainder
from estimators.bounds.signs.tails import berry_esseen_bound, log_tail
from estimators.bounds.tolerances import LOG_P_SAFETY, LOG_P_TOLERANCE, THETA_ROUNDING
from estimators.estimate import Floats, Indices
from estimators.interruption import checkpoint

MAX_SEARCH_STEPS, MAX_MOMENT_STEPS = 40, 16
COUNT_ROUNDING = 1e-3  # far above what rounding can move a count by (below 1e-5 at 1e9 reports)
TANGENT_STEPS = 4
FIRST_ORDER = 0.005  # relative to a half-width: a tangent is accurate over this distance
RELATIVE_NOISE_TILTS = (0.85, 0.93)  # ratios to the tilt of Chernoff's bound for a normal law
SEARCH_STRIDE = 8  # each 8th limit is searched for first; the others start between these


# Theorem 1 of docs/proofs/inversion.md
def lower_limit(law: Law, observed: Floats, log_p: float, sizes: Indices | None = None) -> Floats:
    """Return a theta that each observed sum rejects as too small, shape (k,).

    It is -1 if a sum rejects none. `law`, `observed`, `log_p`: as in
    :func:`estimators.bounds.signs.limits.limits`; the sums ascend, or each of them has its own law;
    `sizes`, optional: the numbers of consecutive sums that have the same law, and ascend.
    """
    if law.is_binomial:
        limits = _clopper_pearson_limits(law, observed, log_p)
    else:
        if sizes is None:
            sizes = np.array([observed.size] if law.counts.ndim == 1 else [1] * observed.size)
        limits = _chernoff_limits(law, observed, log_p, sizes)[0]
        if not law.is_determined_by_mean:
            limits = _with_moments(law, observed, log_p - LOG_P_SAFETY, limits)
        if law.rate is not None:
            limits = np.maximum(limits, _noisy_limits(law, law.rate, observed, log_p, limits))
    return np.maximum(limits - (THETA_ROUNDING + law.offset_rounding), -1.0)


def _clopper_pearson_limits(law: Law, observed: Floats, log_p: float) -> Floats:
    """Return the limits of Clopper and Pearson: Theorem 2 of docs/proofs/inversion.md."""
    from scipy.special import betainc, betaincinv

    n, offset = np.broadcast_to(law.counts[..., 0], observed.shape), float(law.offsets[0])
    ones = (observed / law.coefficient[..., 0] + n * (1 + offset)) / 2
    ones = np.clip(np.ceil(ones - COUNT_ROUNDING), 0, n)  # sums between two counts: the upper
    has_ones = ones > 0
    goal = np.exp(log_p) * (1 - LOG_P_SAFETY)
    count, zeros = ones[has_ones], (n - ones)[has_ones] + 1
    probability = betaincinv(count, zeros, goal * (1 - LOG_P_SAFETY))
    proved = betainc(count, zeros, probability) <= goal
    limits = np.full_like(observed, -1.0)
    limits[has_ones] = np.where(
        proved, (2 * probability - 1 - offset) / float(law.contrast[0]), -1.0
    )
    return np.clip(limits, -1.0, 1.0)


def _chernoff_limits(
    law: Law, observed: Floats, log_p: float, sizes: Indices
) -> tuple[Floats, Floats]:
    """Return rejected thetas and their tilts; a few are found first, as guesses for the rest."""
    limits = np.empty((2, observed.size))
    is_many = np.repeat(sizes > 4 * SEARCH_STRIDE, sizes)
    few = np.flatnonzero(~is_many)
    if few.size:
        limits[:, few] = _search(law.of_rows(few), observed[few], log_p, None)
    if few.size == observed.size:
        return limits[0], limits[1]
    begins = np.cumsum(sizes) - sizes
    groups = [
        np.arange(begin, begin + size)
        for begin, size in zip(begins.tolist(), sizes.tolist(), strict=True)
        if size > 4 * SEARCH_STRIDE
    ]
    sparse_groups = [np.append(group[::SEARCH_STRIDE], group[-1]) for group in groups]
    sparse, sparse_sizes = np.concatenate(sparse_groups), np.array([*map(len, sparse_groups)])
    nearby = _chernoff_limits(law.of_rows(sparse), observed[sparse], log_p, sparse_sizes)
    ends, many = np.cumsum(sparse_sizes).tolist(), np.flatnonzero(is_many)
    start = np.empty((2, observed.size))
    for group, sparse_group, end in zip(groups, sparse_groups, ends, strict=True):
        part = slice(end - sparse_group.size, end)
        for row, values in enumerate(nearby):
            start[row, group] = np.interp(observed[group], observed[sparse_group], values[part])
    limits[:, many] = _search(law.of_rows(many), observed[many], log_p, start[:, many])
    return limits[0], limits[1]


# Theorem 5 of docs/proofs/inversion.md
def _with_moments(law: Law, observed: Floats, log_p: float, limits: Floats) -> Floats:
    """Return the given limits, or larger ones by Hoeffding, or by Berry and Esseen."""
    if law.rate is None:
        hoeffding = observed - np.sqrt(-2 * log_p * law.proxy)
        limits = np.maximum(limits, np.minimum(hoeffding, 1.0))
    for part in blocks(observed.size, law.contrast.size):
        limits[part] = _berry_esseen_limits(law.of_rows(part), observed[part], log_p, limits[part])
    return limits


def _berry_esseen_limits(law: Law, observed: Floats, log_p: float, limits: Floats) -> Floats:
    """Return the given limits, or larger ones by the theorem of Berry and Esseen."""
    limits, active = limits.copy(), np.arange(observed.size)
    theta = np.clip(limits + LOG_P_TOLERANCE / 16 * (observed - limits), -1.0, 1.0)
    high = np.full_like(theta, np.inf)  # from which theta on the theorem says nothing
    for _ in range(MAX_MOMENT_STEPS):
        checkpoint()
        bound = berry_esseen_bound(law, theta, observed, log_p)
        low = np.where(theta <= bound, np.maximum(limits[active], theta), limits[active])
        limits[active], high = low, np.where(np.isinf(bound), theta, high)
        # the bound hardly depends on theta: for a theta a little below it, the bound is above theta
        margin = LOG_P_TOLERANCE / 16 * np.maximum(observed - np.maximum(bound, low), 0.0)
        is_active = np.minimum(np.where(np.isinf(bound), high, bound), high) - low > 2 * margin
        if not is_active.any():
            break
        theta = np.where(np.isinf(bound), (low + high) / 2, np.clip(bound - margin, -1.0, 1.0))
        theta = np.where(theta < high, theta, (low + high) / 2)[is_active]
        active, observed, high = active[is_active], observed[is_active], high[is_active]
        law = law.of_rows(is_active)
    return limits


def _noisy_limits(law: Law, rate: Floats, observed: Floats, log_p: float, theta: Floats) -> Floats:
    """Return limits with the noise's remainder, from first limits: Theorem 6 of inversion.md."""
    step = law.unit * law.coefficient
    best_limit = np.full_like(theta, -1.0)
    normal = np.sqrt(-2 * log_p / law.largest_variance(theta))
    for relative_tilt in RELATIVE_NOISE_TILTS:
        tilt = np.minimum(relative_tilt * normal, law.max_tilt)
        log_remainder = log_laplace_remainder(law.counts, rate, step, tilt)
        goal, limit = tilt * observed + log_p - LOG_P_SAFETY - log_remainder, theta
        for _ in range(TANGENT_STEPS):
            value, slope = law.tangent(limit, tilt)
            limit = np.clip(limit + (goal - value) / slope, -1.0, 1.0)
        best_limit = np.maximum(best_limit, limit)
    return best_limit


def _search(law: Law, observed: Floats, log_p: float, start: Floats | None) -> Floats:
    """Return rejected thetas and their tilts, shape (2, k); `start`: first guesses, or None."""
    results = np.empty((2, observed.size))
    search = _search_remainder if law.is_determined_by_mean else _search_tangents
    for part in blocks(observed.size, law.contrast.size):
        nearby = None if start is None else start[:, part]
        results[:, part] = search(law.of_rows(part), observed[part], log_p, nearby)
    return results


def _search_remainder(
    law: Law, observed: Floats, log_p: float, start: Floats | None
) -> tuple[Floats, Floats]:
    """Return rejected thetas and their tilts; `start`: first guesses, or None."""
    log_p_goal = log_p - LOG_P_SAFETY
    log_p_target = log_p_goal - LOG_P_TOLERANCE / 2
    # for a normal tail, the slope of ln p(theta) is this factor times that of the cumulant
    slope_factor = 1 + 1 / max(1.0, -2 * log_p - 2)
    sd = np.sqrt(law.worst_variance) * np.ones_like(observed)
    if law.offset is not None:  # rare categories have a far smaller variance than the worst
        sd = np.sqrt(law.largest_variance(np.clip(observed, -1, 1)))
    width = sd * np.sqrt(-2 * log_p)
    limits = np.full_like(observed, -1.0)
    active = np.arange(observed.size)
    low, high = limits.copy(), np.clip(observed, -1.0, 1.0)
    theta = np.maximum(high - width, (high - 1) / 2)
    high[observed > 1] = np.inf  # even a mean of 1 may be rejected
    tilt = np.minimum(law.max_tilt, np.sqrt(-2 * log_p) / sd)
    is_settled = np.zeros(observed.shape, dtype=np.bool_)
    if start is not None:
        theta, tilt, is_settled = np.minimum(start[0], high), start[1], ~is_settled
    tilts = tilt.copy()
    for _ in range(MAX_SEARCH_STEPS):
        checkpoint()
        cumulant = law.cumulant(theta, tilt)
        log_tails = log_tail(law, theta, tilt, observed, cumulant)
        rejected = log_tails <= log_p_goal
        low = np.where(rejected, np.maximum(low, theta), low)
        high = np.where(is_settled & ~rejected, np.minimum(high, theta), high)
        is_done = rejected & (log_tails >= log_p_goal - LOG_P_TOLERANCE)
        is_done |= (low >= 1) | (
            high - low <= LOG_P_TOLERANCE / 4 * np.maximum(observed - low, LOG_P_TOLERANCE * width)
        )
        next_theta = theta + (log_p_target - log_tails) / (cumulant.by_theta * slope_factor)
        is_inside = (next_theta > low) & (next_theta < high)
        bisected = np.where(next_theta <= low, low + (high - low) / 16, (low + high) / 2)
        next_theta = np.minimum(np.where(is_inside, next_theta, bisected), 1.0)
        next_theta = np.where(is_settled | rejected, next_theta, theta)
        expected_sum = cumulant.by_tilt + cumulant.cross * (next_theta - theta)
        curvature = np.maximum(cumulant.curvature, 1e-12 * law.worst_variance)
        next_tilt = tilt + (observed - expected_sum) / curvature
        next_tilt = np.minimum(np.clip(next_tilt, tilt / 8, tilt * 8), law.max_tilt)
        is_settled = np.abs(next_tilt - tilt) <= tilt / 4
        limits[active], tilts[active] = low, tilt
        is_active = ~is_done
        if not is_active.any():
            break
        active, observed, width = active[is_active], observed[is_active], width[is_active]
        low, high, is_settled = low[is_active], high[is_active], is_settled[is_active]
        theta, tilt = next_theta[is_active], next_tilt[is_active]
        law = law.of_rows(is_active)
    return limits, tilts


def _search_tangents(
    law: Law, observed: Floats, log_p: float, start: Floats | None
) -> tuple[Floats, Floats]:
    """Return rejected thetas by Chernoff's bound, and their tilts; `start`: first guesses, or None.

    A tangent is above the cumulant, so each of them rejects all thetas up to where it is small.
    """
    centre, score = np.clip(observed, -1.0, 1.0), np.sqrt(-2 * log_p)
    max_tilt = np.broadcast_to(law.max_tilt, observed.shape)
    if start is None:
        sd = np.sqrt(law.largest_variance(centre))
        theta = np.maximum(centre - score * sd, (centre - 1) / 2)
        tilt = np.minimum(max_tilt, score / sd)
    else:
        theta, tilt = np.clip(start[0], -1.0, 1.0), start[1]
    limits, tilts, last_tilt = np.full_like(theta, -1.0), tilt.copy(), tilt
    active, is_settled = np.arange(observed.size), np.full(observed.shape, start is not None)
    for _ in range(MAX_SEARCH_STEPS):
        checkpoint()
        cumulant = law.cumulant(theta, tilt)
        rejected = theta + (tilt * observed + log_p - LOG_P_SAFETY - cumulant.value) / (
            cumulant.by_theta
        )
        is_larger = rejected >= limits[active]
        larger = active[is_larger]
        limits[larger], tilts[larger] = np.minimum(rejected, 1.0)[is_larger], tilt[is_larger]
        goal = np.clip(rejected, -1.0, 1.0)
        next_theta = np.where(is_settled, goal, np.maximum(goal, theta))
        expected_sum = cumulant.by_tilt + cumulant.cross * (next_theta - theta)
        curvature = np.maximum(cumulant.curvature, 1e-12 * law.worst_variance)
        next_tilt = tilt + (observed - expected_sum) / curvature
        next_tilt = np.minimum(np.clip(next_tilt, tilt / 8, tilt * 8), max_tilt)
        is_back = (next_tilt - last_tilt) * (tilt - last_tilt) < 0
        next_tilt = np.where(is_back, np.sqrt(tilt * last_tilt), next_tilt)
        reach = FIRST_ORDER * np.minimum(np.abs(observed - goal), 1 + goal)
        is_active = np.abs(goal - theta) > reach
        slack = (observed - expected_sum) * (next_tilt - tilt)
        is_active |= slack > LOG_P_TOLERANCE / 4
        is_settled = np.abs(next_tilt - tilt) <= tilt / 4
        if not is_active.any():
            break
        active, observed, max_tilt = active[is_active], observed[is_active], max_tilt[is_active]
        theta, tilt, last_tilt = next_theta[is_active], next_tilt[is_active], tilt[is_active]
        is_settled, law = is_settled[is_active], law.of_rows(is_active)
    return limits, tilts
