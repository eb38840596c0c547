"""Bets on sums of supports of random subsets: Theorems 3 and 7 of docs/proofs/shares.md.

A report of one category is a subset of one.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, NamedTuple

import numpy as np

from estimators.bounds.piecewise.bets import MAX_STAKE
from estimators.bounds.signs.law import blocks
from estimators.estimate import Floats

MOST_SUPPORTS, MOST_OF_ONE = 2**12, 2**7
"""The most pairs of supports of a report, and the most supports of A or of B without A.

With more, a share of five levels may take more than 0.3 s.
"""
MAX_FALL = 0.9
"""The most by which a tilt for users' own values lowers the factor of a report outside of B."""
LEAST_CHANCE = 2.0**-51
"""The least q in computations: from epsilon = 37 on, the true one is lost in rounding errors."""
NEWTON_STEPS, MAX_EXCESS = 3, 1e-13
"""Steps for the exponents, until their error, which is added to the price, has no effect."""


class SetSizes(NamedTuple):
    """The numbers of categories in A and in B without A, and whether B has all categories."""

    first: int
    second: int
    covers_all: bool

    def scores(
        self, supports: Floats, chance: float, contrast: float, reports: Floats | float = 1.0
    ) -> Floats:
        """Return the unbiased scores of A and of B, shape (..., 2).

        `supports`, shape (..., 2): the supports of A and of B without A, by one report or by
        `reports` together; `chance`, `contrast`: q, the probability of a support for a category
        that is not the user's, and p - q; `reports`: the number of reports whose supports are
        added.
        """
        supported, in_base = supports[..., 0], supports.sum(axis=-1)
        first = (supported - reports * chance * self.first) / contrast
        base = (in_base - reports * chance * (self.first + self.second)) / contrast
        return np.stack([first, np.full_like(base, reports) if self.covers_all else base], axis=-1)


class SubsetKinds(NamedTuple):
    """Random subsets of `size` of k categories, which contain the user's with probability p."""

    sizes: SetSizes
    categories: int
    size: int
    p: float

    @classmethod
    def of(cls, sizes: SetSizes, categories: int, size: int, p: float) -> SubsetKinds:
        """Return the kinds with p, or with the largest p for which q is not too small.

        `sizes`, `categories`, `size`, `p`: the attributes.
        """
        return cls(sizes, categories, size, min(p, size - (categories - 1) * LEAST_CHANCE))

    @property
    def chance(self) -> float:
        """q, the probability of a support for a category that is not the user's."""
        return (self.size - self.p) / (self.categories - 1)

    @property
    def shape(self) -> tuple[int, int]:
        """How many different numbers of supports of A, and of B without A, a report can have.

        Raises ValueError if there are too many pairs of numbers for the computation.
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
        return _possible_supports(self)


@functools.lru_cache(maxsize=256)
def support_chances(kinds: SubsetKinds) -> Floats:
    """Return the probabilities of i supports of A and j of B without A, shape (types, i, j).

    A user's type is: in A, in B without A, in neither. If B has all categories, there are only the
    first two types, and j is always 0.

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
            with_own = np.roll(with_own, 1, axis=user_type)  # the last probability is 0
        missed = _hypergeometric(left, kinds.size, shape)
        rows.append(kinds.p * with_own + (1 - kinds.p) * missed)
    return np.array(rows)


@functools.lru_cache(maxsize=256)
def _possible_supports(kinds: SubsetKinds) -> Floats:
    return np.argwhere(support_chances(kinds).any(axis=0)).astype(np.float64)


def _hypergeometric(left: list[int], drawn: int, shape: tuple[int, int]) -> Floats:
    """Return the probabilities that i and j of the first two groups are in a uniform subset.

    `left`: the sizes of three groups; `drawn`: that of the subset; `shape`: of the result.
    """
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
    """The reports of a level, in windows, of which only the sums of supports are kept.

    `kinds`: the law of a report; `reports`, shape (windows,): n; `supports`, shape (windows, 2):
    the sums of the supports of A and of B without A; `weight`, shape (windows,): s, the weight of
    one report; `of_values`: whether the share is that of the users' own values, so that factors
    have the mean exp(t s h); this is only for reports of one category.
    """

    kinds: SubsetKinds
    reports: Floats
    supports: Floats
    weight: Floats
    of_values: bool = False

    def rows(self, windows: Any) -> SubsetReports:
        """Return the reports of the windows that a numpy index selects."""
        arrays = self.reports[windows], self.supports[windows], self.weight[windows]
        return SubsetReports(self.kinds, *arrays, self.of_values)

    def mirrored(self) -> SubsetReports:
        """Return the reports with A and B without A exchanged."""
        first, second, covers_all = self.kinds.sizes
        kinds = self.kinds._replace(sizes=SetSizes(second, first, covers_all))
        return dataclasses.replace(self, kinds=kinds, supports=self.supports[:, ::-1])

    @property
    def sums(self) -> Floats:
        """The sums of the unbiased scores of A and of B, times s, shape (windows, 2)."""
        return self.weight[:, None] * self._scores(self.supports, self.reports)

    def _scores(self, supports: Floats, reports: Floats | float = 1.0) -> Floats:
        chance = self.kinds.chance
        return self.kinds.sizes.scores(supports, chance, self.kinds.p - chance, reports)

    @property
    def counts(self) -> Floats:
        """How many reports are of each kind, in the order of supports, if `kinds.size` is 1."""
        counts: Floats = self.supports @ self.kinds.supports.T
        counts[:, 0] = self.reports - counts[:, 1:].sum(axis=1)
        return counts

    def largest_scores(self, ratio: Floats) -> Floats:
        """Return MAX_STAKE over the largest tilt: the largest s |z| of a report, (windows, ratios).

        With `of_values`, it follows from Theorem 7 of docs/proofs/shares.md instead.
        """
        if self.of_values:
            odds = (self.kinds.p - self.kinds.chance) / (self.kinds.chance * self.kinds.categories)
            largest = np.full(ratio.shape, MAX_STAKE / math.log1p(MAX_FALL * odds))
        else:
            first, base = self._scores(self.kinds.supports).T
            largest = np.abs(first - ratio[..., None] * base).max(axis=-1)
        scores: Floats = np.multiply.outer(self.weight, largest)
        return scores

    # Theorems 3 and 7 of docs/proofs/shares.md
    def factors(self, tilts: Floats, ratio: Floats) -> SubsetFactors:
        """Return factors of mean at most 1 + t s h or, with `of_values`, exp(t s h).

        The former are found by Newton's method; the latter follow from the categories' scores.
        `tilts`, `ratio`, shape (windows,): t, and the ratio r in h.
        """
        stakes, unknown = tilts * self.weight, 1 if self.kinds.sizes.covers_all else 2
        values = np.stack([1 - ratio, -ratio, np.zeros_like(ratio)])[: unknown + 1]
        log_means = stakes * values if self.of_values else np.log1p(stakes * values)
        wanted = log_means[:-1] - log_means[-1]
        exponents, contrast = np.zeros((2, ratio.size)), self.kinds.p - self.kinds.chance
        if self.of_values:
            excess = np.expm1(wanted) / contrast
            outside = 1 - self.kinds.chance * (excess.T @ [*self.kinds.sizes[:unknown]])
            exponents[:unknown] = np.log1p(excess / outside)
        else:
            exponents[:unknown] = wanted / contrast
        for _ in range(0 if self.of_values else NEWTON_STEPS):
            mass, *means = _tilted_moments(self.kinds, exponents, 3)
            logarithm, slopes = np.log(mass), [mean[:-1] - mean[-1] for mean in means]
            excess = logarithm[:-1] - logarithm[-1] - wanted
            if np.abs(excess).max(initial=0.0) < MAX_EXCESS:
                break
            if unknown == 1:
                exponents[:1] -= excess / slopes[0]
            else:
                (a, c), (b, d) = slopes
                steps = d * excess[0] - b * excess[1], a * excess[1] - c * excess[0]
                exponents -= np.stack(steps) / (a * d - b * c)
        else:
            logarithm = np.log(_tilted_moments(self.kinds, exponents, 1)[0])
        return SubsetFactors(exponents.T, (logarithm - log_means).max(axis=0))

    def gains(self, factors: SubsetFactors) -> Floats:
        """Return the logarithm of the product of all reports' factors, shape (windows, ends)."""
        power: Floats = np.vecdot(factors.exponents, self.supports[:, None])
        return power - self.reports[:, None] * factors.price

    def moments(self, ends: SubsetFactors) -> tuple[Floats, Floats]:
        """Return the least tilted variance of the sum of log factors, and the largest range of one.

        `ends`: the factors at both ends of each block, on an axis of two; between the ends
        exponents are interpolated.
        """
        supports = self.kinds.supports.T
        exponents = ends.exponents.transpose(2, 1, 0)
        change = exponents[:, 1] - exponents[:, 0]
        spread = np.ptp(ends.exponents @ supports, axis=-1).max(axis=-1)
        moments = _tilted_moments(self.kinds, exponents.reshape(2, -1), 6)
        moments = moments.reshape(*moments.shape[:2], *exponents.shape[1:])
        deviation, distance = (
            np.sqrt(_variances(x, moments)) for x in (exponents, change[:, None])
        )
        nearest = np.maximum(deviation - distance / 2, 0.0).min(axis=(0, 1))
        shrink = np.exp(-np.ptp(change.T @ supports, axis=-1) / 2)
        return self.reports * shrink * nearest**2, spread

    def score_variance(self, ratio: Floats) -> Floats:
        """Return an approximate variance of a level's noise: n s^2 times that of z given a type.

        It is the least over the types; with `of_values`, it is the geometric mean of the least and
        the largest. Its shape is (windows, ratios).
        """
        factor = np.full(ratio.shape, 1 / (self.kinds.p - self.kinds.chance))
        second = np.zeros_like(ratio) if self.kinds.sizes.covers_all else -ratio * factor
        first = factor if self.kinds.sizes.covers_all else (1 - ratio) * factor
        variances = _variances(np.stack([first, second]), _moments_without_tilt(self.kinds))
        noise = variances.min(axis=0)
        if self.of_values:  # a guess between both: the tilt needs no proof
            noise = np.sqrt(noise * variances.max(axis=0))
        variance: Floats = np.multiply.outer(self.reports * self.weight**2, noise)
        return variance


@functools.lru_cache(maxsize=64)  # each has up to 0.6 MB
def _support_moments(kinds: SubsetKinds) -> Floats:
    """Return the terms of E 1, E i, E j, E i^2, E i j and E j^2, shape (6, types, i, j)."""
    law = support_chances(kinds)
    i, j = np.indices(law.shape[1:], dtype=np.float64)
    return np.stack([i**0, i, j, i * i, i * j, j * j])[:, None] * law


def _tilted_moments(kinds: SubsetKinds, exponents: Floats, count: int) -> Floats:
    """Return moments under the laws of supports with densities in proportion to exp(x i + y j).

    `kinds`: the law; `exponents`, shape (2, rows): x and y; `count`: how many of the moments of
    :func:`_support_moments` are returned. The first is E exp(x i + y j) under the law itself. The
    shape is (count, types, rows).
    """
    terms = _support_moments(kinds)[:count]
    moments = np.empty((*terms.shape[:2], exponents.shape[1]))
    for part in blocks(exponents.shape[1], terms[0, 0].size // 8):  # a longer block is quicker
        of_i, of_j = (
            np.exp(np.arange(float(number))[:, None] * exponent)
            for number, exponent in zip(terms.shape[2:], exponents[:, part], strict=True)
        )
        densities = (of_i[:, None] * of_j).reshape(-1, of_i.shape[1])
        summed = terms.reshape(-1, len(densities)) @ densities
        moments[..., part] = summed.reshape(*terms.shape[:2], -1)
    moments[1:] /= moments[0]
    return moments


@functools.lru_cache(maxsize=256)
def _moments_without_tilt(kinds: SubsetKinds) -> Floats:
    return _tilted_moments(kinds, np.zeros((2, 1)), 6)


def _variances(exponents: Floats, moments: Floats) -> Floats:
    """Return the variances of x i + y j, shape (types, ...)."""
    (x, y), (_, i, j, of_ii, of_ij, of_jj) = exponents, moments
    variance = x * x * (of_ii - i * i) + 2 * x * y * (of_ij - i * j) + y * y * (of_jj - j * j)
    return np.asarray(np.maximum(variance, 0.0))
