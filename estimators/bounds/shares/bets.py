"""Bets on reports that say how probable a set of categories is among another set.

A share r is bet on by h = 1_A - r 1_B: it is the share of A among B exactly where the mean of h is
zero. Each level offers factors of mean 1 + t s h, whatever the other users hold: the laws of
counted reports are in :class:`CountedReports`, those of supports in
:mod:`estimators.bounds.shares.subsets`.
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
    """The categories in A, those in B without A, and how many there are at all."""

    first: tuple[int, ...]
    second: tuple[int, ...]
    categories: int

    @property
    def sizes(self) -> SetSizes:
        """How many there are in each."""
        first, second = len(self.first), len(self.second)
        return SetSizes(first, second, covers_all=first + second == self.categories)


class SymbolKinds(NamedTuple):
    """Kinds of symbols by the categories that they support.

    `sizes`: of the sets; `supports`, shape (kinds, 2): of A and of B without A; `of_symbol`, shape
    (symbols,): the kind of each.
    """

    sizes: SetSizes
    supports: Floats
    of_symbol: Indices

    @classmethod
    def of(cls, sizes: SetSizes, first: NDArray[Any], second: NDArray[Any]) -> SymbolKinds:
        """Return the kinds of symbols from how many categories of each set they support.

        Parameters
        ----------
        sizes : SetSizes
        first, second : ndarray, shape (symbols,)
        """
        supports = np.stack([first, second], axis=-1).astype(np.float64)
        kinds, of_symbol = np.unique(supports, axis=0, return_inverse=True)
        return cls(sizes, kinds, of_symbol.ravel())


class CountedReports(NamedTuple):
    """Reports of all levels that are counted by kind, one row a kind of report of a level.

    Attributes
    ----------
    counts : ndarray of float64, shape (kinds,)
        How many reports are of each kind; a kind that no report has must be among them.
    first, base : ndarray of float64, shape (kinds,)
        s times the unbiased scores of A and of B; that of B is 1 where B is everybody.
    weight : ndarray of float64, shape (kinds,)
        s, the weight of one report.
    """

    counts: Floats
    first: Floats
    base: Floats
    weight: Floats

    @property
    def reports(self) -> float:
        """The number of reports."""
        return float(self.counts.sum())

    def scores(self, ratio: Floats) -> Floats:
        """Return s z = s (a - r b) of each kind, shape (..., kinds)."""
        return self.first - ratio[..., None] * self.base

    def gains(self, tilts: Floats, ratio: Floats) -> Floats:
        """Return the sum of ln(1 + t s z), concave in the ratio; tilts and ratios broadcast."""
        return np.log1p(tilts[..., None] * self.scores(ratio)) @ self.counts


@dataclasses.dataclass(frozen=True)
class ShareBets:
    """The reports that a share is bet on, in favour of a larger one.

    Parameters
    ----------
    counted : CountedReports
    subsets : sequence of SubsetReports
        Of the levels whose reports are known by their sum of supports alone.
    free : bool
        Whether users may have shares of their own, of which the weighted ratio is asked.
    """

    counted: CountedReports
    subsets: Sequence[SubsetReports]
    free: bool

    @property
    def sums(self) -> tuple[float, float]:
        """The unbiased shares of users in A and in B."""
        counted = self.counted
        sums = np.array([counted.counts @ counted.first, counted.counts @ counted.base])
        for subset in self.subsets:
            sums += subset.sums
        return float(sums[0]), float(sums[1])

    def mirrored(self) -> ShareBets:
        """Return the bets on B without A, whose share is 1 - r."""
        counted = self.counted._replace(first=self.counted.base - self.counted.first)
        return ShareBets(counted, [subset.mirrored() for subset in self.subsets], self.free)

    def max_tilts(self, edges: Floats) -> Floats:
        """Return the largest tilt between neighbouring edges, shape (edges - 1,)."""
        largest = np.abs(self.counted.scores(edges)).max(axis=-1, initial=0.0)
        for subset in self.subsets:
            np.maximum(largest, subset.largest_scores(edges), out=largest)
        tilts: Floats = MAX_STAKE / np.maximum(largest[:-1], largest[1:])
        return tilts
