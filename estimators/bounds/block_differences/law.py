"""The law of a sum of reports that are +1, -1 or 0, to the extent that the metric determines it."""

from __future__ import annotations

import dataclasses

import numpy as np

from estimators.bounds.mixtures import LOG_MIXTURE_WEIGHTS, MIXTURE_TILTS
from estimators.bounds.signs.law import MAX_SIGN_TILT
from estimators.bounds.tolerances import LOG_P_SAFETY
from estimators.estimate import Floats, Limits

MAX_TILT_RATIO = 1.15  # the largest x over t s_l, if a holder cannot add t s_l c; measured
NEWTON_STEPS = 2  # steps from Jensen's bound, which is within a few percent
MAX_TANGENTS = 64  # further tangents narrow a width by less than 0.1%


@dataclasses.dataclass(frozen=True)
class DifferenceLaw:
    """The law of S = sum of s_l D over independent reports of several levels, with E S = f.

    A report D is +1 or -1 in the category's block of symbols and 0 elsewhere. Of A = P(D != 0),
    only a range is known. Theorem 1 of docs/proofs/differences.md.

    `counts`, shape (levels,): reports per level, each above zero; `coefficient`, shape (levels,):
    s_l, above zero; sum n_l s_l c_l = 1; `contrast`, shape (levels,): c_l, in (0, 1];
    `least_share`, `largest_share`, shape (levels,): the range of A over all data. If a user holds
    the category with probability f_i, A is at least `largest_share` - c (1 - f_i); `free`: whether
    levels may have different frequencies; f is then their mean, weighted by n s c; `fixed`: whether
    the users' categories are not random; f is then the weighted share of holders; `signed`: whether
    f can be negative, down to -1, like a frequency plus the effect of hash collisions; it excludes
    `fixed`.
    """

    counts: Floats
    coefficient: Floats
    contrast: Floats
    least_share: Floats
    largest_share: Floats
    free: bool = False
    fixed: bool = False
    signed: bool = False

    @property
    def lowest(self) -> float:
        """The least possible value of f."""
        return -1.0 if self.signed else 0.0

    @property
    def has_single_block(self) -> bool:
        """Whether all categories are in one block, so that D is never 0: a sign with mean c f."""
        return bool(np.all(self.least_share > 1 - 1e-12))

    # Theorem 6 of docs/proofs/differences.md
    def explained_variance(self, f: Floats) -> Floats:
        """Return e(f), the difference between the sum of s^2 A over all reports and Var S."""
        if self.free:
            return f**2 / float(self.counts.sum())
        return float(self.counts @ (self.coefficient * self.contrast) ** 2) * f**2

    # Theorem 6 of docs/proofs/differences.md
    @property
    def unexplained_share(self) -> float:
        """The least ratio, over all data, of Var S to (sum of s^2 A) - e(f)."""
        if self.fixed or not self.free:
            return 1.0
        spread = np.maximum(self.largest_share - self.contrast**2, 0)  # 0 for a huge epsilon
        return float((spread / self.largest_share).min())

    def tilts(self, tilt: Floats) -> tuple[Floats, Floats]:
        """Return the factors x of D and -D at each level, of shape (tilts, levels).

        x is t s_l. For fixed values, x is larger, at most MAX_TILT_RATIO t s_l, so that a holder
        adds t s c (Theorem 2 (d) of docs/proofs/differences.md).
        """
        first_order = tilt[:, None] * self.coefficient
        if not self.fixed:
            return first_order, first_order
        weight = first_order * self.contrast
        max_tanh = float(np.tanh(MAX_SIGN_TILT))
        above = np.minimum(np.expm1(np.minimum(weight, 1.0)) / self.contrast, max_tanh)
        below = np.minimum(-np.expm1(-weight) / self.contrast, max_tanh)
        cutoff = MAX_TILT_RATIO * first_order
        return np.minimum(np.arctanh(above), cutoff), np.minimum(np.arctanh(below), cutoff)

    # Theorem 2 of docs/proofs/differences.md
    def limits(self, tilt: float, above: Floats, below: Floats, refined: bool = True) -> Limits:
        """Return lower and upper limits of the frequencies that are not rejected, shapes (k,).

        Parameters
        ----------
        tilt : float
            t, above 0.
        above, below : ndarray of float64, shape (k,)
            Values of K+(f) = sum ln(1 + c f tanh x) and K-(f) = sum ln(1 - c f tanh x), x from
            :meth:`tilts`.
        refined : bool
            Whether to improve Jensen's bound, which is within a few percent.

        Returns
        -------
        lower, upper : ndarray of float64, shape (k,)
            In [0, 1], or [-1, 1]. K+(f) is at most `above` for all f up to `lower`, unless that is
            the least f. K-(f) is at most `below` for all f from `upper` on, unless that is 1.
        """
        if self.fixed:
            weight = self.coefficient * self.contrast
            plus, minus = (self.contrast * np.tanh(x[0]) for x in self.tilts(np.array([tilt])))
            lower = above / float((np.log1p(plus) / weight).max())
            upper = -below / float((-np.log1p(-minus) / weight).min())
            return np.clip(lower, 0, 1), np.clip(upper, 0, 1)
        z = tilt * self.coefficient
        total, tanh = float(self.counts.sum()), self.contrast * np.tanh(z)
        slope = float(self.counts @ tanh)
        lower, upper = total * np.expm1(above / total), -total * np.expm1(below / total)
        if not self.free:
            lower, upper = lower / slope, upper / slope
        elif self.signed:
            slack = tilt - slope
            lower, upper = (lower - slack) / tilt, (upper + slack) / tilt
        else:
            max_exponent = float(z.max())
            lower = lower / tilt
            upper = upper / (tilt * float(np.tanh(max_exponent)) / max_exponent)
        lower, upper = np.clip(lower, self.lowest, 1), np.clip(upper, self.lowest, 1)
        if refined and not (self.free or self.signed):
            positive = np.flatnonzero(lower > 0)
            lower[positive] = self._newton(lower[positive], above[positive], tanh)
            upper = self._newton(upper, below, -tanh)
        return lower, upper

    def _newton(self, f: Floats, goal: Floats, slopes: Floats) -> Floats:
        """Return f after steps of Newton's method for sum n ln(1 + slope f) = goal."""
        for _ in range(NEWTON_STEPS):
            point, nearest = f, np.arange(f.size)
            if f.size > MAX_TANGENTS:
                ranks = np.linspace(0, f.size - 1, MAX_TANGENTS).astype(np.intp)
                point = np.sort(f)[ranks]
                nearest = np.searchsorted((point[1:] + point[:-1]) / 2, f)
            grown = point[:, None] * slopes
            value, slope = np.log1p(grown) @ self.counts, (slopes / (1 + grown)) @ self.counts
            f = np.clip(point[nearest] + ((goal - value[nearest]) / slope[nearest]), 0, 1)
        return f


# Theorem 3 of docs/proofs/differences.md
def self_normalised_interval(
    law: DifferenceLaw,
    sums: Floats,
    sizes: Floats,
    log_p: float,
    total: float | None = None,
    *,
    refined: bool = True,
) -> Limits:
    """Return bounds on f, shape (k,), each failing with probability at most p.

    `law`: the law of the reports; `sums`, `sizes`, shape (levels, k): the sums of D and of abs(D),
    for each of k categories; `log_p`: ln p, where p is the failure probability of each side;
    `total`, optional: from :func:`estimators.weights.total_weight`; with it the bounds hold at all
    times at once; `refined`: see :meth:`DifferenceLaw.limits`.

    >>> one = np.ones(1)
    >>> law = DifferenceLaw(1e4 * one, 1e-4 * one, one, 0.5 * one, one)
    >>> sums, sizes = np.array([[2000.0]]), np.array([[7000.0]])
    >>> lower, upper = self_normalised_interval(law, sums, sizes, np.log(0.025))
    >>> float(lower[0].round(4)), float(upper[0].round(4))
    (0.1778, 0.222)
    """
    tilts = _tilts(law, log_p)
    log_shares = np.full(len(tilts), -np.log(len(tilts)))
    if total is not None:
        max_tilt = MAX_SIGN_TILT / float(law.coefficient.max())
        tilt_grid = MIXTURE_TILTS * total
        is_near = (tilt_grid >= tilts.min() / 2) & (tilt_grid <= min(2 * tilts.max(), max_tilt))
        tilts, log_shares = tilt_grid[is_near], LOG_MIXTURE_WEIGHTS[is_near]
    lower, upper = np.full(sums.shape[1], law.lowest), np.ones(sums.shape[1])
    for tilt_number, tilt in enumerate(tilts.tolist()):
        above, below = exponents(law, tilts[tilt_number : tilt_number + 1], sums, sizes)
        cost = LOG_P_SAFETY - log_p - float(log_shares[tilt_number])
        low, high = law.limits(tilt, above[0] - cost, below[0] - cost, refined)
        lower, upper = np.maximum(lower, low), np.minimum(upper, high)
    return lower, upper


def exponents(
    law: DifferenceLaw, tilt: Floats, sums: Floats, sizes: Floats
) -> tuple[Floats, Floats]:
    """Return sum x D - sum abs(D) ln cosh x for D and for -D, each of shape (tilts, k).

    `law`, `sums`, `sizes`: as in :func:`self_normalised_interval`; `tilt`, shape (tilts,): as in
    :meth:`DifferenceLaw.tilts`.
    """
    plus, minus = law.tilts(tilt)
    above, spent = plus @ sums, log_cosh(plus) @ sizes
    if minus is plus:
        return above - spent, -above - spent
    return above - spent, -(minus @ sums) - log_cosh(minus) @ sizes


def _tilts(law: DifferenceLaw, log_p: float) -> Floats:
    """Return tilts for all possible variances; each is at least half of the one before.

    One of them is within a factor of sqrt 2 of the best, which costs at most 6% of the width.
    """
    weight = law.counts * law.coefficient**2
    # a larger tilt than this gives no better bounds, and loses digits
    min_variance = -2 * log_p * (float(law.coefficient.max()) / MAX_SIGN_TILT) ** 2
    least_variance = max(float(weight @ law.least_share), min_variance)
    largest_variance = max(float(weight @ law.largest_share), 2 * min_variance)
    steps = max(1, int(np.ceil(np.log2(largest_variance / least_variance) / 2)))
    variance_grid = np.geomspace(least_variance, largest_variance, 2 * steps + 1)[1::2]
    return np.sqrt(-2 * log_p / variance_grid)


def log_cosh(z: Floats) -> Floats:
    """Return ln cosh z for z >= 0, without overflow."""
    log_cosh_z: Floats = z + np.log1p(np.exp(-2 * z)) - np.log(2)
    return log_cosh_z
