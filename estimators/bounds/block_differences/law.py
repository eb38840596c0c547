"""The law of a sum of reports that are +1, -1 or 0, to the extent that the metric determines it."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from estimators.bounds.mixtures import LOG_MIXTURE_WEIGHTS, MIXTURE_TILTS
from estimators.bounds.signs.law import MAX_SIGN_TILT
from estimators.bounds.tolerances import LOG_P_SAFETY
from estimators.estimate import Floats, Limits

MAX_TILT_RATIO = 1.15  # the largest x over t s_l, if a holder cannot add t s_l c; measured
NEWTON_STEPS = 3  # steps from Jensen's bound, which is within a few percent
MAX_TANGENTS = 1024  # further tangents narrow a width by less than 0.1%


@dataclasses.dataclass(frozen=True)
class DifferenceLaw:
    """The law of S = sum of s_l D over independent reports of several levels, with E S = f.

    A report D is +1 or -1 in the category's block of symbols and 0 elsewhere. Of A = P(D != 0),
    only a range is known. Theorem 1 of docs/proofs/differences.md.

    `counts`, `coefficient`, shape (..., levels): reports per level, and s_l; all above zero; many
    windows have a row each; sum n_l s_l c_l = 1; `contrast`, shape (levels,): c_l, in (0, 1];
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

    def rows(self, windows: Any) -> DifferenceLaw:
        """Return the laws that a numpy index of windows selects; None makes one window a row."""
        changed = {"counts": self.counts[windows], "coefficient": self.coefficient[windows]}
        return dataclasses.replace(self, **changed)

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
        """Return e(f), the difference between the sum of s^2 A over all reports and Var S.

        `f`, shape (..., k).
        """
        square = self.counts * (self.coefficient * self.contrast) ** 2
        factor: Floats = square.sum(axis=-1, keepdims=True)
        if self.free:
            factor = 1 / self.counts.sum(axis=-1, keepdims=True)
        return factor * f**2

    # Theorem 6 of docs/proofs/differences.md
    @property
    def unexplained_share(self) -> float:
        """The least ratio, over all data, of Var S to (sum of s^2 A) - e(f)."""
        if self.fixed or not self.free:
            return 1.0
        spread = np.maximum(self.largest_share - self.contrast**2, 0)  # 0 for a huge epsilon
        return float((spread / self.largest_share).min())

    def tilts(self, tilt: Floats) -> tuple[Floats, Floats]:
        """Return the factors x of D and -D at each level, of shape (..., tilts, levels).

        `tilt`, shape (..., tilts): t, above 0. x is t s_l. For fixed values, x is larger, at most
        MAX_TILT_RATIO t s_l, so that a holder adds t s c (Theorem 2 (d) of
        docs/proofs/differences.md).
        """
        first_order = tilt[..., None] * self.coefficient[..., None, :]
        if not self.fixed:
            return first_order, first_order
        weight = first_order * self.contrast
        max_tanh = float(np.tanh(MAX_SIGN_TILT))
        above = np.minimum(np.expm1(np.minimum(weight, 1.0)) / self.contrast, max_tanh)
        below = np.minimum(-np.expm1(-weight) / self.contrast, max_tanh)
        cutoff = MAX_TILT_RATIO * first_order
        return np.minimum(np.arctanh(above), cutoff), np.minimum(np.arctanh(below), cutoff)

    # Theorem 2 of docs/proofs/differences.md
    def limits(self, tilt: Floats, above: Floats, below: Floats, refined: bool = True) -> Limits:
        """Return lower and upper limits of the frequencies that are not rejected, shapes (..., k).

        Parameters
        ----------
        tilt : ndarray of float64, shape (..., 1)
            t, above 0.
        above, below : ndarray of float64, shape (..., k)
            Values of K+(f) = sum ln(1 + c f tanh x) and K-(f) = sum ln(1 - c f tanh x), x from
            :meth:`tilts`.
        refined : bool
            Whether to improve Jensen's bound, which is within a few percent.

        Returns
        -------
        lower, upper : ndarray of float64, shape (..., k)
            In [0, 1], or [-1, 1]. K+(f) is at most `above` for all f up to `lower`, unless that is
            the least f. K-(f) is at most `below` for all f from `upper` on, unless that is 1.
        """
        if self.fixed:
            weight = self.coefficient * self.contrast
            plus, minus = (self.contrast * np.tanh(x[..., 0, :]) for x in self.tilts(tilt))
            lower = above / (np.log1p(plus) / weight).max(axis=-1, keepdims=True)
            upper = -below / (-np.log1p(-minus) / weight).min(axis=-1, keepdims=True)
            return np.clip(lower, 0, 1), np.clip(upper, 0, 1)
        z = tilt * self.coefficient
        total, tanh = self.counts.sum(axis=-1, keepdims=True), self.contrast * np.tanh(z)
        slope = (self.counts * tanh).sum(axis=-1, keepdims=True)
        lower, upper = total * np.expm1(above / total), -total * np.expm1(below / total)
        if not self.free:
            lower, upper = lower / slope, upper / slope
        elif self.signed:
            slack = tilt - slope
            lower, upper = (lower - slack) / tilt, (upper + slack) / tilt
        else:
            max_exponent = z.max(axis=-1, keepdims=True)
            lower = lower / tilt
            upper = upper / (tilt * np.tanh(max_exponent) / max_exponent)
        lower, upper = np.clip(lower, self.lowest, 1), np.clip(upper, self.lowest, 1)
        if refined and not (self.free or self.signed):
            lower, upper = self._newton(lower, above, tanh), self._newton(upper, below, -tanh)
        return lower, upper

    def _newton(self, f: Floats, goal: Floats, slopes: Floats) -> Floats:
        """Return f after steps of Newton's method for sum n ln(1 + slope f) = goal."""
        k = f.shape[-1]
        row = np.arange(math.prod(f.shape[:-1])).reshape(*f.shape[:-1], 1)
        for _ in range(NEWTON_STEPS):
            point, nearest = f, np.arange(f.size).reshape(f.shape)
            if k > MAX_TANGENTS:
                first = np.minimum((f <= 0).sum(axis=-1, keepdims=True), k - 1)
                ranks = first + (np.linspace(0, 1, MAX_TANGENTS) * (k - 1 - first)).astype(np.intp)
                point = np.take_along_axis(np.sort(f, axis=-1), ranks, axis=-1)
                # rows are moved apart, so that one search serves all of them
                middles = (point[..., 1:] + point[..., :-1]) / 2 + 2 * row
                nearest = np.searchsorted(middles.ravel(), f + 2 * row) + row
            grown = point[..., None] * slopes[..., None, :]
            value, slope = (
                np.vecdot(x, self.counts[..., None, :]).ravel()[nearest]
                for x in (np.log1p(grown), slopes[..., None, :] / (1 + grown))
            )
            f = np.clip(point.ravel()[nearest] + (goal - value) / slope, 0, 1)
        return f


# Theorem 3 of docs/proofs/differences.md
def self_normalised_interval(
    law: DifferenceLaw,
    sums: Floats,
    sizes: Floats,
    log_p: Floats | float,
    totals: Floats | float | None = None,
    *,
    refined: bool = True,
) -> Limits:
    """Return bounds on f, shape (..., k), each failing with probability at most p.

    `law`: the law of the reports; `sums`, `sizes`, shape (..., levels, k): the sums of D and of
    abs(D), for each of k categories; `log_p`, shape (..., 1): ln p, where p is the failure
    probability of each side; `totals`, shape (...), optional: from
    :func:`estimators.weights.total_weight`; with them the bounds hold at all times at once;
    `refined`: see :meth:`DifferenceLaw.limits`.

    >>> one = np.ones(1)
    >>> law = DifferenceLaw(1e4 * one, 1e-4 * one, one, 0.5 * one, one)
    >>> sums, sizes = np.array([[2000.0]]), np.array([[7000.0]])
    >>> lower, upper = self_normalised_interval(law, sums, sizes, np.log(0.025))
    >>> float(lower[0].round(4)), float(upper[0].round(4))
    (0.1778, 0.222)
    """
    tilts, log_shares = _tilts(law, log_p)
    if totals is not None:
        max_tilt = MAX_SIGN_TILT / law.coefficient.max(axis=-1, keepdims=True)
        least = np.where(np.isfinite(log_shares), tilts, np.inf).min(axis=-1, keepdims=True)
        grid = MIXTURE_TILTS * np.asarray(totals)[..., None]
        is_near = (grid >= least / 2) & (grid <= np.minimum(2 * tilts[..., :1], max_tilt))
        index = is_near.argmax(axis=-1)[..., None] + np.arange(is_near.sum(axis=-1).max(initial=0))
        index = np.minimum(index, MIXTURE_TILTS.size - 1)
        tilts, is_near = (np.take_along_axis(x, index, axis=-1) for x in (grid, is_near))
        log_shares = np.where(is_near, LOG_MIXTURE_WEIGHTS[index], -np.inf)
    shape = (*sums.shape[:-2], sums.shape[-1])
    lower, upper = np.full(shape, law.lowest), np.ones(shape)
    for number in range(tilts.shape[-1]):
        tilt, log_share = (x[..., number, None] for x in (tilts, log_shares))
        cost = LOG_P_SAFETY - log_p - log_share
        above, below = (x[..., 0, :] - cost for x in exponents(law, tilt, sums, sizes))
        low, high = law.limits(tilt, above, below, refined)
        is_used = np.isfinite(log_share)
        lower = np.where(is_used, np.maximum(lower, low), lower)
        upper = np.where(is_used, np.minimum(upper, high), upper)
    return lower, upper


def exponents(
    law: DifferenceLaw, tilt: Floats, sums: Floats, sizes: Floats
) -> tuple[Floats, Floats]:
    """Return sum x D - sum abs(D) ln cosh x for D and for -D, each of shape (..., tilts, k).

    `law`, `sums`, `sizes`: as in :func:`self_normalised_interval`; `tilt`, shape (..., tilts): as
    in :meth:`DifferenceLaw.tilts`.
    """
    plus, minus = law.tilts(tilt)
    above, spent = plus @ sums, log_cosh(plus) @ sizes
    if minus is plus:
        return above - spent, -above - spent
    return above - spent, -(minus @ sums) - log_cosh(minus) @ sizes


def _tilts(law: DifferenceLaw, log_p: Floats | float) -> tuple[Floats, Floats]:
    """Return tilts for all possible variances; each is at least half of the one before.

    They have the shape (..., tilts), like the logarithms of their shares of p, which are -inf for
    tilts that a window does not need. One of the tilts is within a factor of sqrt 2 of the best,
    which costs at most 6% of the width.
    """
    weight = law.counts * law.coefficient**2
    # a larger tilt than this gives no better bounds, and loses digits
    size = law.coefficient.max(axis=-1, keepdims=True)
    min_variance = -2 * log_p * (size / MAX_SIGN_TILT) ** 2
    least = np.maximum((weight * law.least_share).sum(axis=-1, keepdims=True), min_variance)
    largest = (weight * law.largest_share).sum(axis=-1, keepdims=True)
    growth = np.maximum(largest, 2 * min_variance) / least
    steps = np.maximum(1, np.ceil(np.log2(growth) / 2))
    number = np.arange(steps.max(initial=1))
    variances = least * growth ** ((2 * number + 1) / (2 * steps))
    return np.sqrt(-2 * log_p / variances), np.where(number < steps, -np.log(steps), -np.inf)


def log_cosh(z: Floats) -> Floats:
    """Return ln cosh z for z >= 0, without overflow."""
    return np.asarray(z + np.log1p(np.exp(-2 * z)) - np.log(2))
