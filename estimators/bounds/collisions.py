r"""A bound, over the hashes, on the collisions in an estimate from a count sketch.

The sketch has t rows with independent, uniform bucket hashes g_j into M buckets and sign hashes
h_j, which were fixed before the data and do not depend on it. An estimate of the frequency f of the
value v has mean f + b,

    b = sum over x != v of f_x a_x,    a_x = 1/t sum over j of h_j(v) h_j(x) 1[g_j(x) = g_j(v)].

**The worst data** is one other value that all others hold. The weights f_x / (1 - f) of the sum b /
(1 - f) are at least 0 and sum to 1, so by Jensen's inequality E exp(z b / (1 - f)) is at most the
weighted mean of the E exp(z a_x), which are all the same: a term of a_x is zero with probability 1
- 1/M and else +-1/t with equal chances, independently of the others:

    E exp(z a_x) = (1 + (cosh(z/t) - 1) / M)^t.

By Markov's inequality P(b > (1 - f) B) <= p with B = min over z of [t ln(1 + (cosh(z/t) - 1) / M) +
ln(1/p)] / z, and as much on the other side. The variance of b is sum f_x^2 / (t M) for any data: if
no value is frequent, b is far below B.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from estimators.bounds.intervals import normal_quantile
from estimators.bounds.laws.difference_law import DifferenceLaw
from estimators.bounds.own_signs import own_sign_limits
from estimators.bounds.self_normalised import self_normalised_interval
from estimators.estimate import Floats
from estimators.question import Question

_RELATIVE_TILTS = np.geomspace(2.0**-12, 2.0**6, 1000)  # z / t, 1.3% apart
_COLLISION_SHARES = (0.5, 0.2, 0.05, 0.01, 0.001)
"""Shares of the failure probability that collisions may have; the noise has the rest."""


@functools.lru_cache(maxsize=256)
def collision_bound(rows: int, buckets: int, log_p: float) -> float:
    """Return B, at most 1: b exceeds (1 - f) B with probability at most p.

    Parameters
    ----------
    rows, buckets : int
        t and M.
    log_p : float
        ln p.

    Examples
    --------
    >>> round(collision_bound(512, 64, np.log(0.025)), 4)
    0.0155
    """
    cumulant = rows * np.log1p((np.cosh(_RELATIVE_TILTS) - 1) / buckets)
    return min(1.0, float(((cumulant - log_p) / (rows * _RELATIVE_TILTS)).min()))


@dataclasses.dataclass(frozen=True)
class Collisions:
    """The collisions in a sketch of t rows of M buckets."""

    rows: int
    buckets: int

    def limits(
        self,
        law: DifferenceLaw,
        observed: Floats,
        scatter: Floats,
        sizes: Floats,
        question: Question,
        total: float,
        *,
        free: bool,
    ) -> tuple[Floats, Floats]:
        """Return bounds on f for a question: those on f + b after subtracting b.

        Parameters
        ----------
        law : DifferenceLaw
            The law of f + b, signed.
        observed : ndarray of float64, shape (k,)
            S, for each of k strings.
        scatter : ndarray of float64, shape (k,)
            As in :func:`estimators.bounds.own_signs.own_sign_limits`.
        sizes, total
            As in :func:`estimators.bounds.self_normalised.self_normalised_interval`.
        question : Question
            The bound, its target and its failure probability.
        free : bool
            Whether each user may have a value, or a distribution, of their own.

        Returns
        -------
        lower, upper : ndarray of float64, shape (k,)
            Within [0, 1].

        Notes
        -----
        For a fixed number of reports there are two bounds, at half of p each: this one and that of
        :mod:`estimators.bounds.own_signs`, which measures the collisions in the data. The narrower
        one is used, on each side.

        Noise and collisions share p. The proportion depends on the counts and public constants
        alone; for all times it is the same at each. If all reports come from one distribution, b is
        the same at all times, too. If users have their own, b is always a weighted mean of theirs
        and at most the largest: the k-th user's may exceed its bound with probability p / (k (k +
        1)), which sums to p over all users to come.

        ``normal`` takes b for normal as well, with the variance 1 / (t M) of the worst data.
        """
        log_p = question.log_p(observed.size)
        if question.bound == "normal":
            noise = law.coefficient**2 @ sizes
            margin = normal_quantile(log_p) * np.sqrt(noise + 1 / (self.rows * self.buckets))
            return np.clip(observed - margin, 0, 1), np.clip(observed + margin, 0, 1)
        # of the levels' sums only the weighted total counts
        sums = observed / (law.coefficient * law.counts.size)[:, None]
        if question.bound == "anytime":
            report_count = float(law.counts.sum())
            log_users = math.log(report_count) + math.log1p(report_count) if free else 0.0
            noise_p = log_p + math.log1p(-_COLLISION_SHARES[0])
            limits = self_normalised_interval(law, sums, sizes, noise_p, total)
            return self._wider(*limits, log_p + math.log(_COLLISION_SHARES[0]) - log_users)
        log_p -= math.log(2)
        split = self._best_split(law, log_p)
        limits = self_normalised_interval(law, sums, sizes, log_p + math.log1p(-split))
        lower, upper = self._wider(*limits, log_p + math.log(split))
        low, high = own_sign_limits(law, observed, scatter, self.rows, log_p)
        return np.maximum(lower, low), np.minimum(upper, high)

    def _wider(self, lower: Floats, upper: Floats, log_p: float) -> tuple[Floats, Floats]:
        """Return bounds on f from those on f + b, where abs(b) <= (1 - f) B."""
        bias = collision_bound(self.rows, self.buckets, log_p)
        lower = (lower - bias) / max(1 - bias, 1e-12)
        return np.clip(lower, 0, 1), np.clip((upper + bias) / (1 + bias), 0, 1)

    def _best_split(self, law: DifferenceLaw, log_p: float) -> float:
        """Return the share of p for collisions with the least width at small frequencies."""
        variance = float(law.counts @ (law.coefficient**2 * law.least_share))

        def width(split: float) -> float:
            noise = math.sqrt(-2 * (log_p + math.log1p(-split)) * variance)
            return noise + collision_bound(self.rows, self.buckets, log_p + math.log(split))

        return min(_COLLISION_SHARES, key=width)
