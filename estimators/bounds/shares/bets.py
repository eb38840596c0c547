"""Bets on the share that one set of categories has among another set.

A bet on the share r is about h = 1_A - r 1_B, whose mean is zero exactly if r is the share of A
among B. Each level offers factors of mean 1 + t s h, whatever the other users hold.
:class:`CountedReports` has the factors for counted reports, and
:mod:`estimators.bounds.shares.subsets` those for supports.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.bounds.piecewise.bets import MAX_STAKE
from estimators.bounds.shares.subsets import SetSizes, SubsetReports
from estimators.estimate import Floats, Indices


class CategorySets(NamedTuple):
    """The categories in A, those in B without A, and the number of all categories."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    categories: int

    @property
    def sizes(self) -> SetSizes:
        """The numbers of categories in the sets."""
        first, second = len(self.first), len(self.second)
        return SetSizes(first, second, covers_all=first + second == self.categories)


class SymbolKinds(NamedTuple):
    """Kinds of symbols by the categories that they support.

    `sizes`: the numbers of categories in the sets; `supports`, shape (kinds, 2): how many
    categories of A, and of B without A, a kind supports; `of_symbol`, shape (symbols,): the kind of
    each symbol.
    """

    sizes: SetSizes
    supports: Floats
    of_symbol: Indices

    @classmethod
    def of(cls, sizes: SetSizes, first: NDArray[Any], second: NDArray[Any]) -> SymbolKinds:
        """Return the kinds of symbols from how many categories of each set they support.

        `sizes`: the numbers of categories in the sets; `first`, `second`, shape (symbols,): how
        many categories of A, and of B without A, each symbol supports.
        """
        supports = np.stack([first, second], axis=-1).astype(np.float64)
        kinds, of_symbol = np.unique(supports, axis=0, return_inverse=True)
        return cls(sizes, kinds, of_symbol.ravel())


class CountedReports(NamedTuple):
    """Reports of all levels that are counted by kind, in windows with reports of the same levels.

    `counts`, shape (windows, kinds): how many reports are of each kind of a level, for all possible
    kinds; `first`, `base`, of this shape: s times the unbiased scores of A and of B; the score of B
    is 1 if B has all categories; `weight`, of this shape: s, the weight of one report.
    """

    counts: Floats
    first: Floats
    base: Floats
    weight: Floats

    def rows(self, windows: Any) -> CountedReports:
        """Return the reports of the windows that a numpy index selects."""
        return CountedReports(*(array[windows] for array in self))

    def scores(self, ratio: Floats) -> Floats:
        """Return s z = s (a - r b) of each kind, (windows, n, kinds), for `ratio`, (..., n)."""
        return self.first[:, None] - ratio[..., None] * self.base[:, None]

    def gains(self, tilts: Floats, ratio: Floats) -> Floats:
        """Return the sum of ln(1 + t s z), concave in the ratio, of the shape (windows, n).

        `tilts`, shape (windows,): t of each window; `ratio`, shape (windows, n): the ratios r.
        """
        terms = np.log1p(tilts[:, None, None] * self.scores(ratio))
        gains: Floats = np.vecdot(terms, self.counts[:, None])
        return gains


@dataclasses.dataclass(frozen=True)
class ShareBets:
    """The reports of windows that bets are about, and bets that a share is larger than r.

    `counted`: the reports of levels that count reports by kind; `subsets`: the reports of levels
    that keep only the sums of supports; `free`: whether users may have different shares; the bets
    are then about the weighted ratio.
    """

    counted: CountedReports
    subsets: Sequence[SubsetReports]
    free: bool

    @property
    def sums(self) -> Floats:
        """The unbiased shares of users in A and in B, shape (windows, 2)."""
        counts, first, base, _ = self.counted
        sums = np.stack([np.vecdot(counts, first), np.vecdot(counts, base)], axis=-1)
        for subset in self.subsets:
            sums += subset.sums
        return sums

    def rows(self, windows: Any) -> ShareBets:
        """Return the bets of the windows that a numpy index selects."""
        subsets = [subset.rows(windows) for subset in self.subsets]
        return ShareBets(self.counted.rows(windows), subsets, self.free)

    def mirrored(self) -> ShareBets:
        """Return the bets on B without A, whose share is 1 - r."""
        counted = self.counted._replace(first=self.counted.base - self.counted.first)
        return ShareBets(counted, [subset.mirrored() for subset in self.subsets], self.free)

    def subset_variances(self, ratio: Floats) -> Floats:
        """Return the least variance of the subsets' part of the sum, shape (windows, ratios)."""
        variance = np.zeros((len(self.counted.counts), ratio.size))
        for subset in self.subsets:
            variance += subset.score_variance(ratio)
        return variance

    def variances(self, ratio: Floats) -> Floats:
        """Return the variance of the sum of s z as reports show it, shape (windows, ratios)."""
        squares, counts = self.counted.scores(ratio) ** 2, self.counted.counts[:, None]
        variances: Floats = np.vecdot(squares, counts) + self.subset_variances(ratio)
        return np.maximum(variances, 1e-300)

    def max_tilts(self, edges: Floats) -> Floats:
        """Return the largest tilt between neighbouring edges, shape (windows, edges - 1)."""
        largest = np.abs(self.counted.scores(edges)).max(axis=-1, initial=0.0)
        for subset in self.subsets:
            np.maximum(largest, subset.largest_scores(edges), out=largest)
        tilts: Floats = MAX_STAKE / np.maximum(largest[:, :-1], largest[:, 1:])
        return tilts
