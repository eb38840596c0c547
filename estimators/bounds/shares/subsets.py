"""Bets on sums of supports of random subsets: Theorem 3 of docs/proofs/shares.md."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import NamedTuple

import numpy as np

from estimators.estimate import Floats

MOST_SUPPORTS, MOST_OF_ONE = 2**12, 2**7
"""Pairs of supports of a report, and supports of A or the rest of B where both are asked.

With more, a share of five levels may take more than 0.3 s.
"""
NEWTON_STEPS = 3
"""Of the exponents: what is left is added to the price, so that a factor stays fair."""


class SetSizes(NamedTuple):
    """The numbers of categories in A and in B without A, and whether B is everybody."""

    first: int
    second: int
    covers_all: bool

    def scores(
        self, supports: Floats, chance: float, contrast: float, reports: float = 1.0
    ) -> Floats:
        """Return the unbiased scores of A and of B, shape (..., 2).

        Parameters
        ----------
        supports : ndarray of float64, shape (..., 2)
            Of A and of B without A, by one report or by `reports` together.
        chance, contrast : float
            q, the probability of a support for a category that is not the user's, and p - q.
        reports : float
        """
        supported, in_base = supports[..., 0], supports.sum(axis=-1)
        first = (supported - reports * chance * self.first) / contrast
        base = (in_base - reports * chance * (self.first + self.second)) / contrast
        return np.stack([first, np.full_like(base, reports) if self.covers_all else base], axis=-1)


class SubsetKinds(NamedTuple):
    """Random subsets of `size` of k categories, with the own one in them with probability p."""

    sizes: SetSizes
    categories: int
    size: int
    p: float

    @property
    def chance(self) -> float:
        """q, the probability of a support for a category that is not the user's."""
        return (self.size - self.p) / (self.categories - 1)

    @property
    def shape(self) -> tuple[int, int]:
        """How many numbers of supports of A, and of B without A, a report can have.

        Raises ValueError for sets that are too large to go through.
        """
        first, second, covers_all = self.sizes
        most_first = min(self.size, first) + 1
        most_second = min(self.size, 0 if covers_all else second) + 1
        is_long = max(most_first, most_second) > MOST_OF_ONE and not covers_all
        if most_first * most_second > MOST_SUPPORTS or is_long:
            most = math.isqrt(MOST_SUPPORTS) - 1
            raise ValueError(
                f"the share of {first} categories among {first + second} of {self.categories}, by "
                f"subset_selection: expected fewer, at most {most} in A and {most} others in B, or "
                "a metric with mechanism = 'projective_geometry_response'"
            )
        return most_first, most_second

    @property
    def supports(self) -> Floats:
        """The pairs of supports that a report can have, shape (kinds, 2)."""
        return np.argwhere(support_chances(self).any(axis=0)).astype(np.float64)


@functools.lru_cache(maxsize=256)
def support_chances(kinds: SubsetKinds) -> Floats:
    """Return the chances of i supports of A and j of B without A, shape (types, i, j).

    They are given the user's type: in A, in B without A, in neither. Where B is everybody there are
    two types, and j is 0 only.

    >>> sizes = SetSizes(1, 1, covers_all=False)
    >>> support_chances(SubsetKinds(sizes, 4, 2, 0.7)).sum(axis=(1, 2)).round(9)
    array([1., 1., 1.])
    """
    first, second, covers_all = kinds.sizes
    groups = [first, 0 if covers_all else second, 0]
    groups[2] = kinds.categories - sum(groups)
    rows, shape = [], kinds.shape
    for user_type in filter(groups.__getitem__, range(3)):
        left = [count - (index == user_type) for index, count in enumerate(groups)]
        with_own = _hypergeometric(left, kinds.size - 1, shape)
        if user_type < 2:
            with_own = np.roll(with_own, 1, axis=user_type)  # the last has no chance
        missed = _hypergeometric(left, kinds.size, shape)
        rows.append(kinds.p * with_own + (1 - kinds.p) * missed)
    return np.array(rows)


def _hypergeometric(left: list[int], drawn: int, shape: tuple[int, int]) -> Floats:
    """Return the chances of i and j of the first two groups in a uniform subset, of `shape`."""
    from scipy.special import gammaln

    def log_choose(total: int, chosen: Floats) -> Floats:
        is_possible = (chosen >= 0) & (chosen <= total)
        clipped = np.where(is_possible, chosen, 0.0)
        logarithm = gammaln(total + 1) - gammaln(clipped + 1) - gammaln(total - clipped + 1)
        return np.where(is_possible, logarithm, -np.inf)

    i, j = np.arange(float(shape[0]))[:, None], np.arange(float(shape[1]))
    logarithm = log_choose(left[0], i) + log_choose(left[1], j)
    logarithm = logarithm + log_choose(left[2], drawn - i - j)
    chances = np.exp(logarithm - logarithm.max())
    normalized: Floats = chances / chances.sum()
    return normalized


class SubsetFactors(NamedTuple):
    """Fair factors exp(x i + y j - price) of one report, a row for each tilt and ratio.

    `exponents`: x and y, shape (..., 2); `price`, shape (...).
    """

    exponents: Floats
    price: Floats


@dataclasses.dataclass(frozen=True)
class SubsetReports:
    """The reports of one level that are known by their sums of supports.

    Parameters
    ----------
    kinds : SubsetKinds
    reports : float
        n.
    supports : ndarray of float64, shape (2,)
        The sums of the supports of A and of B without A.
    weight : float
        s, the weight of one report.
    """

    kinds: SubsetKinds
    reports: float
    supports: Floats
    weight: float

    def mirrored(self) -> SubsetReports:
        """Return the reports with A and B without A in each other's place."""
        first, second, covers_all = self.kinds.sizes
        kinds = self.kinds._replace(sizes=SetSizes(second, first, covers_all))
        return dataclasses.replace(self, kinds=kinds, supports=self.supports[::-1].copy())

    @property
    def sums(self) -> Floats:
        """The sums of the unbiased scores of A and of B, times s."""
        return self.weight * self._scores(self.supports, self.reports)

    def _scores(self, supports: Floats, reports: float = 1.0) -> Floats:
        chance = self.kinds.chance
        return self.kinds.sizes.scores(supports, chance, self.kinds.p - chance, reports)

    @functools.cached_property
    def _law(self) -> Floats:
        return support_chances(self.kinds)

    @functools.cached_property
    def _possible_supports(self) -> Floats:
        return self.kinds.supports

    def largest_scores(self, ratio: Floats) -> Floats:
        """Return the largest s |z| of a report, for each ratio."""
        first, base = self.weight * self._scores(self._possible_supports).T
        largest: Floats = np.abs(first - ratio[..., None] * base).max(axis=-1)
        return largest

    # Theorem 3 of docs/proofs/shares.md
    def factors(self, tilts: Floats, ratio: Floats) -> SubsetFactors:
        """Return factors of mean at most 1 + t s h, by Newton's method, for rows of both."""
        unknown = len(self._law) - 1
        values = np.stack([1 - ratio, -ratio, np.zeros_like(ratio)], axis=-1)[:, : unknown + 1]
        log_means = np.log1p((tilts * self.weight)[:, None] * values)
        wanted = log_means[:, :-1] - log_means[:, -1:]
        exponents = np.zeros((ratio.size, 2))
        exponents[:, :unknown] = wanted / (self.kinds.p - self.kinds.chance)
        for _ in range(NEWTON_STEPS):
            tilted = _TiltedSupports(self._law, exponents)
            logarithm, means = np.log(tilted.mass), tilted.means[..., :unknown]
            excess = logarithm[:, :-1] - logarithm[:, -1:] - wanted
            slopes = means[:, :-1] - means[:, -1:]
            exponents[:, :unknown] -= np.linalg.solve(slopes, excess[..., None])[..., 0]
        logarithm = np.log(_TiltedSupports(self._law, exponents).mass)
        return SubsetFactors(exponents, (logarithm - log_means).max(axis=-1))

    def gains(self, factors: SubsetFactors) -> Floats:
        """Return the logarithm of the product of all reports' factors."""
        return factors.exponents @ self.supports - self.reports * factors.price

    def moments(self, ends: SubsetFactors) -> tuple[Floats, Floats]:
        """Return the least variance of the sum of logarithms under tilted laws, and their range.

        `ends`: with an axis of two, the ends of blocks; between them exponents are interpolated.
        """
        supports = self._possible_supports.T
        change = ends.exponents[:, 1] - ends.exponents[:, 0]
        spread = np.ptp(ends.exponents @ supports, axis=-1).max(axis=-1)
        nearest = np.full(spread.shape, np.inf)
        for end in range(2):
            exponents = ends.exponents[:, end]
            covariances = _TiltedSupports(self._law, exponents).covariances
            deviation, distance = (np.sqrt(_variances(x, covariances)) for x in (exponents, change))
            remaining = np.maximum(deviation - distance / 2, 0.0).min(axis=-1)
            nearest = np.minimum(nearest, remaining)
        shrink = np.exp(-np.ptp(change @ supports, axis=-1) / 2)
        return self.reports * shrink * nearest**2, spread

    def score_variance(self, ratio: Floats) -> Floats:
        """Return n s^2 times the least variance of z given a type: about the noise of the level."""
        factor = np.full(ratio.shape, self.weight / (self.kinds.p - self.kinds.chance))
        second = np.zeros_like(ratio) if self.kinds.sizes.covers_all else -ratio * factor
        first = factor if self.kinds.sizes.covers_all else (1 - ratio) * factor
        covariances = _TiltedSupports(self._law, np.zeros((1, 2))).covariances
        variances = _variances(np.stack([first, second], axis=-1), covariances)
        noise: Floats = self.reports * variances.min(axis=-1)
        return noise


class _TiltedSupports:
    """The laws of supports with densities in proportion to exp(x i + y j), for rows of x and y."""

    def __init__(self, chances: Floats, exponents: Floats) -> None:
        types, *shape = chances.shape
        flat = chances.transpose(1, 0, 2).reshape(shape[0], -1)
        self._steps = [np.arange(float(count)) for count in shape]
        first, self._second = (
            np.exp(exponents[:, [axis]] * steps) for axis, steps in enumerate(self._steps)
        )
        powers = first * self._steps[0] ** np.arange(3.0)[:, None, None]
        self._first = (powers @ flat).reshape(3, -1, types, shape[1])
        self.mass = self._moment(0, 0)
        """E exp(x i + y j) given each type, shape (rows, types)."""

    def _moment(self, of_first: int, of_second: int) -> Floats:
        second = self._second * self._steps[1] ** of_second
        moment: Floats = np.vecdot(self._first[of_first], second[:, None])
        return moment

    @functools.cached_property
    def means(self) -> Floats:
        """The means of i and j, shape (rows, types, 2)."""
        moments = np.stack([self._moment(1, 0), self._moment(0, 1)], axis=-1)
        return moments / self.mass[..., None]

    @property
    def covariances(self) -> tuple[Floats, Floats, Floats]:
        """The variance of i, the covariance of i and j, the variance of j, each (rows, types)."""
        i, j = np.moveaxis(self.means, -1, 0)
        return (
            self._moment(2, 0) / self.mass - i * i,
            self._moment(1, 1) / self.mass - i * j,
            self._moment(0, 2) / self.mass - j * j,
        )


def _variances(exponents: Floats, covariances: tuple[Floats, Floats, Floats]) -> Floats:
    """Return the variances of x i + y j, shape (rows, types)."""
    x, y = exponents[:, 0, None], exponents[:, 1, None]
    of_i, of_both, of_j = covariances
    return np.maximum(x * x * of_i + 2 * x * y * of_both + y * y * of_j, 0.0)
