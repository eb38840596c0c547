"""Randomized response over k categories, one of which is the report."""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.bounds.shares.bets import CategorySets
from estimators.bounds.shares.subsets import SubsetKinds
from estimators.estimate import Array, Bools
from estimators.exact.randomness import Bits
from estimators.exact.sampling import bernoulli, uniform_other
from estimators.mechanisms.mechanism import Epsilons, Levels, Reports
from estimators.mechanisms.shared.frequencies import SupportCounts
from estimators.mechanisms.shared.outputs import OutputSets, ReportedSymbols
from estimators.mechanisms.shared.signs import ReportedSigns


class Grr(OutputSets, ReportedSymbols, SupportCounts):
    """k-ary randomized response: a report is the user's category or, at random, another one.

    The report is the user's category with probability e^epsilon / (e^epsilon + k - 1), and
    otherwise uniform over the other k - 1 categories. It is an index of 1, 2 or 4 bytes. Statistic
    of a level: the number of reports and the number for each category. Source: HIST, section 2;
    Kairouz, Oh and Viswanath (2014). Theorem 1 of docs/proofs/privacy.md with M = k and W = 1. This
    is the best mechanism for k below about 3 e^epsilon + 2; its variance grows with k.

    Parameters
    ----------
    categories : int
        k, at least 2.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from estimators.exact.randomness import SeededBits
    >>> mechanism = Grr([Fraction(2)], categories=10)
    >>> mechanism.randomize(np.full(8, 3), np.zeros(8, dtype=int), SeededBits(1))
    array([3, 3, 5, 3, 8, 3, 3, 2], dtype=uint8)
    """

    name = "grr"
    memoizable = True

    def __init__(self, epsilons: Epsilons, *, categories: int) -> None:
        self._set_misses(epsilons, [1] * len(epsilons), [categories - 1] * len(epsilons))
        signs = ReportedSigns(*zip(*self.chances, strict=True))
        super().__init__(epsilons, categories, signs)
        self._count_symbols([categories] * len(epsilons))

    def randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        """Return a randomized category index for each category index."""
        reports = values.astype(self.dtype)
        missed = np.flatnonzero(bernoulli(bits, self._thresholds, level))
        bound = np.full(missed.size, self.categories, dtype=np.uint64)
        reports[missed] = uniform_other(bits, values[missed], bound).astype(self.dtype)
        return reports

    def report_kinds(self, level: int, sets: CategorySets) -> SubsetKinds:
        """Return the law of one report: it supports exactly one category."""
        return SubsetKinds.of(sets.sizes, self.categories, 1, float(self.signs.p[level]))

    def supports(self, reports: Reports, level: int, category: Any) -> Bools:
        """Return which reports name the category."""
        return np.asarray(reports == category)
