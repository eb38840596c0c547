"""Bounds for hashed values, whose estimates have errors due to collisions: differences.md."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from estimators.bounds.block_differences.law import DifferenceLaw, self_normalised_interval
from estimators.bounds.normal import normal_quantile
from estimators.bounds.signs.law import Law
from estimators.bounds.signs.limits import limits
from estimators.estimate import Floats, Limits
from estimators.question import Question

HashTable = tuple[int, int]
"""The rows and the points of a row, t and K, of one level."""
BISECTION_STEPS = 45
INTERFERENCE_SHARE, STATEMENT_SHARE = 0.7, 0.1
"""Shares of the failure probability: for collisions with other strings, and for each of three
further statements."""
_RELATIVE_TILTS = np.geomspace(2.0**-12, 2.0**6, 1000)  # z / t, 1.3% apart
_COLLISION_SHARES: Floats = np.array([0.5, 0.2, 0.05, 0.01, 0.001])
"""Shares of the failure probability that collisions may have; the noise has the rest."""
BIAS_SHARES = 0.5 ** np.arange(1.0, 13.0)
"""Shares of beta to try for the bias; the one with the least planned width is taken."""
ANYTIME_BIAS_SHARE = 1 / 8
"""The share for bounds at all times, which must not depend on the number of reports."""


# Theorem 11 of docs/proofs/differences.md
@functools.lru_cache(maxsize=1024)
def max_collision_share(rows: int, points: int, log_p: float) -> float:
    """Return a B, at most 1, that the share c of collisions exceeds with probability at most p.

    `rows`, `points`: t and K; `log_p`: ln p, where p is the probability that the bound is wrong.

    >>> round(max_collision_share(1024, 364, np.log(0.025)) - 1 / 364, 4)
    0.0055
    """
    cumulant = rows * np.log1p(np.expm1(_RELATIVE_TILTS) / points)
    return min(1.0, float(((cumulant - log_p) / (rows * _RELATIVE_TILTS)).min()))


# Theorem 12 of docs/proofs/differences.md
@functools.lru_cache(maxsize=1024)
def min_collision_share(rows: int, points: int, log_p: float) -> float:
    """Return a b, at least 0, such that the share c of collisions is below b with probability <= p.

    It is above 0 if t is much larger than K ln(1 / p). `rows`, `points`, `log_p`: as in
    :func:`max_collision_share`.

    >>> round(1 / 80 - min_collision_share(4659, 80, np.log(0.025)), 4)
    0.0042
    >>> min_collision_share(1024, 364, np.log(0.025))
    0.0
    """
    cumulant = rows * np.log1p(np.expm1(-_RELATIVE_TILTS) / points)
    return max(0.0, float(((log_p - cumulant) / (rows * _RELATIVE_TILTS)).max()))


# Theorem 13 of docs/proofs/differences.md
def collision_log_p(log_p: float, levels: int) -> float:
    """Return ln(p / (2 levels)): half of p is for collisions, and the levels share this half.

    For bounds at all times, `levels` counts all levels of the metric, because any may get reports.
    """
    return log_p - math.log(2 * levels)


# Theorem 9 of docs/proofs/differences.md
@functools.lru_cache(maxsize=256)
def collision_bound(rows: int, buckets: int, log_p: float) -> float:
    """Return a B, at most 1: b, due to collisions, exceeds (1 - f) B with probability at most p.

    `rows`, `buckets`: t and M; `log_p`: ln p, where p is the probability that the bound is wrong.

    >>> round(collision_bound(512, 64, np.log(0.025)), 4)
    0.0155
    """
    cumulant = rows * np.log1p((np.cosh(_RELATIVE_TILTS) - 1) / buckets)
    return min(1.0, float(((cumulant - log_p) / (rows * _RELATIVE_TILTS)).min()))


@dataclasses.dataclass(frozen=True)
class Collisions:
    """The errors due to collisions in a sketch of t rows of M buckets."""

    rows: int
    buckets: int

    def limits(
        self,
        law: DifferenceLaw,
        observed: Floats,
        scatter: Floats,
        sizes: Floats,
        question: Question,
        totals: Floats | float,
        *,
        free: bool,
    ) -> Limits:
        """Return bounds on f in [0, 1], shapes (..., k), from bounds on f + b and on b.

        b is the error due to collisions. For ``fixed``, :func:`own_sign_limits` may narrow the
        bounds. For ``normal``, b is taken to be normal, with the variance 1 / (t M) of the worst
        data. `law`: the law of f + b, signed; `observed`, shape (..., k): S, for each of k strings;
        `scatter`, shape (..., k): the sum of squares of the rows' deviations: C of Theorem 10;
        `sizes`, shape (..., levels, k): the sums of abs(D); `question`: the bound, its target and
        its failure probability; `totals`, shape (...): from
        :func:`estimators.weights.total_weight`, for ``anytime``; `free`: whether users may have
        different values, or distributions.
        """
        log_p = question.log_p(observed.shape[-1])
        if question.bound == "normal":
            noise = ((law.coefficient**2)[..., None, :] @ sizes)[..., 0, :]
            margin = normal_quantile(log_p) * np.sqrt(noise + 1 / (self.rows * self.buckets))
            return np.clip(observed - margin, 0, 1), np.clip(observed + margin, 0, 1)
        # only the weighted total of the levels' sums matters
        sums = observed[..., None, :] / (law.coefficient * law.counts.shape[-1])[..., None]
        if question.bound == "anytime":
            report_count = law.counts.sum(axis=-1, keepdims=True)
            log_users = free * (np.log(report_count) + np.log1p(report_count))
            noise_p = log_p + math.log1p(-_COLLISION_SHARES[0])
            limits = self_normalised_interval(law, sums, sizes, noise_p, totals)
            return self._wider(*limits, log_p + math.log(_COLLISION_SHARES[0]) - log_users)
        log_p -= math.log(2)
        split = self._best_split(law, log_p)
        limits = self_normalised_interval(law, sums, sizes, log_p + np.log1p(-split))
        lower, upper = self._wider(*limits, log_p + np.log(split))
        low, high = own_sign_limits(law, observed, scatter, self.rows, log_p)
        return np.maximum(lower, low), np.minimum(upper, high)

    def _wider(self, lower: Floats, upper: Floats, log_p: Floats) -> Limits:
        """Return bounds on f from those on f + b, where abs(b) <= (1 - f) B."""
        bias = self._bias(log_p)
        lower = (lower - bias) / np.maximum(1 - bias, 1e-12)
        return np.clip(lower, 0, 1), np.clip((upper + bias) / (1 + bias), 0, 1)

    def _bias(self, log_p: Floats) -> Floats:
        """Return :func:`collision_bound` for each ln p."""
        bounds = [collision_bound(self.rows, self.buckets, x) for x in log_p.ravel().tolist()]
        return np.array(bounds).reshape(log_p.shape)

    def _best_split(self, law: DifferenceLaw, log_p: float) -> Floats:
        """Return the share of p for collisions with the least width at small f, shape (..., 1)."""
        variance = np.vecdot(law.counts, law.coefficient**2 * law.least_share)[..., None]
        noise = np.sqrt(-2 * (log_p + np.log1p(-_COLLISION_SHARES)) * variance)
        width = noise + self._bias(log_p + np.log(_COLLISION_SHARES))
        return np.asarray(_COLLISION_SHARES[width.argmin(axis=-1, keepdims=True)])


# Theorem 10 of docs/proofs/differences.md
def own_sign_limits(
    law: DifferenceLaw, observed: Floats, scatter: Floats, rows: int, log_p: float
) -> Limits:
    """Return bounds on f for a fixed number of reports, (..., k); [0, 1] if rows are too few.

    `law`: the law of the reports; `observed`, `scatter`, shape (..., k): S and C, for each of k
    strings; `rows`: t; `log_p`: ln p, where p is the probability that the bound is wrong.
    """
    interference_factor = math.sqrt(-2 * (log_p + math.log(INTERFERENCE_SHARE)))
    log_inverse_p = -(log_p + math.log(STATEMENT_SHARE))
    remaining_slope = 1 - interference_factor / math.sqrt(rows)
    if remaining_slope <= 0:
        return np.zeros_like(observed), np.ones_like(observed)
    largest = law.coefficient.max(axis=-1, keepdims=True)
    unit = np.vecdot(law.counts, law.coefficient**2 * law.largest_share)[..., None]
    if law.free:
        share = law.largest_share / law.contrast
        unit = (law.coefficient * share).max(axis=-1, keepdims=True)

    def allowed(f: Floats) -> Floats:
        total = np.sqrt(2 * log_inverse_p * unit * f) + 2 / 3 * largest * log_inverse_p
        in_rows = log_inverse_p + math.log(2 * rows)
        row = np.sqrt(2 * in_rows * unit / rows * f) + 2 / 3 * largest * in_rows
        row *= math.sqrt(2 * log_inverse_p)
        return np.asarray(total + interference_factor * (row + np.sqrt(row**2 + scatter)))

    start = np.maximum(observed, 0)

    def last_rejected(rejected: Floats) -> Floats:
        """Return the rejected frequency next to the estimate, or the given end of [0, 1]."""
        accepted = np.minimum(start, 1)
        for _ in range(BISECTION_STEPS):
            middle = (rejected + accepted) / 2
            is_rejected = np.abs(start - middle) * remaining_slope > allowed(middle)
            rejected = np.where(is_rejected, middle, rejected)
            accepted = np.where(is_rejected, accepted, middle)
        return rejected

    return last_rejected(np.zeros_like(observed)), last_rejected(np.ones_like(observed))


def projection_limits(
    law: Law, observed: Floats, question: Question, total: float, rows: int, log_values: float
) -> Limits:
    """Return bounds on frequencies in [0, 1], shape (k,), for a question.

    With ``normal``, only the part of the bound for the noise is asymptotic. `law`, `observed`,
    `question`, `total`: as in :func:`estimators.bounds.limits`, for theta; `rows`: m;
    `log_values`: ln of the number of possible values.

    >>> law = Law(counts=np.array([1e4]), coefficient=np.array([1e-4]), contrast=np.ones(1))
    >>> lower, upper = projection_limits(
    ...     law, np.array([0.5]), Question(), 1e4, 10**5, np.log(1000))
    >>> float(lower[0].round(3)), float(upper[0].round(3))
    (0.476, 0.523)
    """
    always, log_p = question.bound == "anytime", question.log_p(observed.size)
    moves = always and not (question.target == "population" and question.weights != "uniform")
    shares = np.array([ANYTIME_BIAS_SHARE]) if always else BIAS_SHARES
    bias = np.sqrt(2 / rows * ((log_values if moves else 0.0) - log_p - np.log(shares)))
    noise = np.sqrt(2 * law.worst_variance * (-log_p - np.log1p(-shares)))
    best = int(np.argmin(bias + noise))
    lower, upper = limits(law, observed, question, log_p + math.log1p(-shares[best]), total)
    widest = float(bias[best])
    low = (lower - widest) / (1 - widest) if widest < 1 else np.zeros_like(lower)
    return np.clip(low, 0, 1), np.clip((upper + widest) / (1 + widest), 0, 1)
