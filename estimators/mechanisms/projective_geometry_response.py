"""Projective geometry response: one symbol, as informative as the best subset."""

from __future__ import annotations

import bisect
import functools
import itertools
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from estimators.bounds.shares.bets import CategorySets, SymbolKinds
from estimators.bounds.signs.law import blocks
from estimators.estimate import Array, Bools, Counts
from estimators.exact.difference_sets import DifferenceSet, geometric_sum, support_chances
from estimators.exact.finite_fields import prime_power
from estimators.exact.randomness import Bits
from estimators.exact.thresholds import at_exp
from estimators.mechanisms.mechanism import Epsilons, Levels, Reports
from estimators.mechanisms.shared.frequencies import SupportCounts
from estimators.mechanisms.shared.outputs import PointResponses, ReportedSymbols
from estimators.mechanisms.shared.signs import ReportedSigns

LARGEST_SHARE = 4
"""The most points for each category, K / k: more points allow a better d, but cost memory."""


class ProjectiveGeometryResponse(PointResponses, ReportedSymbols, SupportCounts):
    """A report is a point of a projective space, probably on the hyperplane of the user's category.

    At a level there are K = (d^t - 1) / (d - 1) points, those of the projective space over GF(d)
    with t coordinates, and K hyperplanes of s points. The report is uniform on the category's
    hyperplane with odds s e^epsilon to K - s, otherwise uniform off it. Category x has the
    hyperplane D + x modulo K, for a difference set D (see :mod:`estimators.exact.difference_sets`).
    Statistic of a level: the number of reports and the number for each point. Source: Feldman,
    Nelson, Nguyen and Talwar (2022); HIST, section 3.4.

    **Privacy.** Theorem 1 of docs/proofs/privacy.md with M = K and W = s.

    **Variance.** Theorem 5 of docs/proofs/mechanisms.md. See :func:`best_geometry` for d and t.

    **Decoding.** The supports of all categories are one cyclic correlation: O(K log K), in exact
    integers.

    Parameters
    ----------
    categories : int
        k, at least 2.

    Examples
    --------
    >>> from estimators.exact.randomness import SeededBits
    >>> mechanism = ProjectiveGeometryResponse([Fraction(1), Fraction(4)], categories=1000)
    >>> [(g.order, g.coordinates, g.points) for g in mechanism.geometries]
    [(4, 6, 1365), (53, 3, 2863)]
    >>> mechanism.randomize(np.full(4, 3), np.array([0, 0, 1, 1]), SeededBits(1))
    array([1315, 1252,  152,    7], dtype=uint16)
    """

    name = "projective_geometry_response"

    def __init__(self, epsilons: Epsilons, *, categories: int) -> None:
        self.geometries = [best_geometry(epsilon, categories) for epsilon in epsilons]
        """The difference set of each level."""
        self._set_spaces(epsilons, self.geometries)
        chances = [support_chances(e, g) for e, g in zip(epsilons, self.geometries, strict=True)]
        signs = ReportedSigns([p for p, _ in chances], [q for _, q in chances])
        super().__init__(epsilons, categories, signs)
        self._count_symbols([g.points for g in self.geometries])

    def randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        """Return the index of one point for each category index."""
        return self._respond(values, level.astype(np.int64), bits).astype(self.dtype)

    def support(self, table: Counts) -> Counts:
        """Return how many reports lie on the hyperplane of each category, shape (levels, k)."""
        return self.supports_of([table], None)[0]

    def supports_of(self, tables: Sequence[Counts], selected: Array | None) -> list[Counts]:
        """Return how many reports support each selected category (None: all) in each window."""
        chosen = np.arange(self.categories) if selected is None else selected
        support = np.zeros((len(tables), len(tables[0]), chosen.size), dtype=np.int64)
        used = np.flatnonzero(tables[0][:, 0]).tolist()
        for geometry in {self.geometries[level] for level in used}:
            levels = [level for level in used if self.geometries[level] == geometry]
            for part in blocks(len(tables), tables[0].size):
                counts = [table[levels, 1 : 1 + geometry.points] for table in tables[part]]
                sums = geometry.translated_sums(np.concatenate(counts), self.categories)
                support[part, levels] = sums[:, chosen].reshape(len(counts), len(levels), -1)
        return [*support]

    def report_kinds(self, level: int, sets: CategorySets) -> SymbolKinds:
        """Return on how many hyperplanes of each set's categories each point lies."""
        geometry = self.geometries[level]
        members = np.zeros((2, geometry.points), dtype=np.int64)
        for row, categories in zip(members, sets[:2], strict=True):
            row[-np.array(categories)] = 1
        supported = geometry.translated_sums(members, geometry.points)
        return SymbolKinds.of(sets.sizes, *supported[:, -np.arange(geometry.points)])

    def supports(self, reports: Reports, level: int, category: Any) -> Bools:
        """Return which reports lie on the category's hyperplane."""
        return self.geometries[level].contains(reports.astype(np.int64) - category)


@functools.lru_cache(maxsize=1024)
def best_geometry(epsilon: Fraction, categories: int) -> DifferenceSet:
    """Return the geometry of least variance if every category has the share 1/k, with k <= K <= 4k.

    For each number of coordinates from 3 on, it considers the nearest prime powers below and above
    e^epsilon + 1 whose K is in this range. With two coordinates a hyperplane is a single point, any
    K is possible, and the mechanism is randomized response over K = k symbols. All arithmetic is
    exact, because every device and the aggregator must agree.

    >>> for epsilon in (1, 4, 8):
    ...     geometry = best_geometry(Fraction(epsilon), 10**6)
    ...     print(geometry.order, geometry.coordinates, geometry.points)
    4 11 1398101
    43 5 3500201
    1999 3 3998001
    """

    def variance(geometry: DifferenceSet) -> Fraction:
        p, q = support_chances(epsilon, geometry)
        chance = q + (p - q) / categories
        return chance * (1 - chance) / (p - q) ** 2

    return min(_candidates(epsilon, categories), key=variance)


def _candidates(epsilon: Fraction, categories: int) -> Iterator[DifferenceSet]:
    yield DifferenceSet(categories - 1, 2)
    below = at_exp(epsilon, int) + 1
    for coordinates in itertools.count(3):
        smallest = _least_base(categories, coordinates)
        largest = _least_base(LARGEST_SHARE * categories + 1, coordinates) - 1
        if largest < 2:
            return
        for orders in (
            range(min(below, largest), smallest - 1, -1),
            range(max(below + 1, smallest), largest + 1),
        ):
            if (order := next(filter(prime_power, orders), None)) is not None:
                yield DifferenceSet(order, coordinates)


def _least_base(total: int, terms: int) -> int:
    """Return the least base from 1 on with 1 + base + ... + base^(terms - 1) >= total."""
    bases = range(1, total)
    return bases[bisect.bisect_left(bases, total, key=lambda base: geometric_sum(base, terms))]
