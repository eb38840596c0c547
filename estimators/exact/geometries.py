"""The geometry of a level's reports: a projective space, and the law of a report in it.

A value is hashed to a point, and the report is a point by projective geometry response
(:mod:`estimators.mechanisms.projective_geometry_response`): on the hyperplane of the value's point,
or off it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from estimators.estimate import Bools, Counts, Floats, Integers
from estimators.exact.difference_sets import DifferenceSet, geometric_sum, support_chances
from estimators.exact.finite_fields import prime_power
from estimators.exact.hashing import hash_constants, mix
from estimators.exact.randomness import Words

LARGEST_EPSILON = Fraction(6)
"""Levels with a larger epsilon report at this one, because tables would have to be larger."""
VARIANCE_TOLERANCE = 1.03
"""The factor by which the variance may grow so that the number of points is nearer to the aim."""
_HALF_WORD, _LOW_WORD = np.uint64(32), np.uint64(2**32 - 1)
AT_A_TIME = 2**15
"""The number of points computed together: as many as the processor's cache holds."""


@dataclasses.dataclass(frozen=True)
class Geometry:
    """The space of a group's points at a level, with the law of a report.

    `epsilon`: that of a report, at most :data:`LARGEST_EPSILON`; `space`: a difference set D modulo
    K, the number of points; the hyperplane of the point x is D + x; `p`, `q`: the probabilities
    that a report is on the hyperplane of its point, and on that of another.
    """

    epsilon: Fraction
    space: DifferenceSet
    p: Fraction
    q: Fraction

    @property
    def points(self) -> int:
        """K, the number of points."""
        return self.space.points

    @functools.cached_property
    def variance(self) -> float:
        """V: the variance of one report's estimate of the frequency of a string nobody holds.

        It is A (1 - A) / ((p - q)(1 - 1/K))^2 with A = s / K, over random points.
        """
        share = Fraction(self.space.size, self.points)
        scale = (self.p - self.q) * (1 - Fraction(1, self.points))
        return float(share * (1 - share) / scale**2)

    def frequencies(self, counts: Integers) -> Floats:
        """Return the estimated frequency of each point minus 1/K, shape (rows, K).

        For n reports in a row it is (support - q n) / ((p - q) n) - 1/K; zero if n = 0.
        """
        support = self.space.translated_sums(counts, self.points)
        n = counts.sum(axis=1, keepdims=True)
        raw = (support - float(self.q) * n) / (float(self.p - self.q) * np.maximum(n, 1))
        return np.where(n > 0, raw - 1 / self.points, 0.0)


@functools.lru_cache(maxsize=1024)
def best_geometry(epsilon: Fraction, limits: tuple[int, int], aim: int) -> Geometry:
    """Return the geometry whose number of points is nearest to `aim`, of nearly the least variance.

    `epsilon`: above 0; from 6 on, the geometry is that of epsilon 6; `limits`: the smallest and the
    largest allowed number of points; `aim`: the preferred number of points, among geometries within
    3% of the least variance. Doubles here are correctly rounded functions of exact fractions, so
    that every device finds the same geometry.

    >>> for epsilon in (1, 4):
    ...     tree = best_geometry(Fraction(epsilon), (2**13, 2**17), 2**15).space
    ...     row = best_geometry(Fraction(epsilon), (128, 2048), 1536).space
    ...     print(tree.order, tree.coordinates, tree.points, row.order, row.coordinates, row.points)
    3 10 29524 4 6 1365
    41 4 70644 37 3 1407
    """
    epsilon = min(epsilon, LARGEST_EPSILON)
    spaces = _spaces(epsilon, *limits)
    geometries = [Geometry(epsilon, s, *support_chances(epsilon, s)) for s in spaces]
    largest_variance = VARIANCE_TOLERANCE * min(geometry.variance for geometry in geometries)
    fitting = [geometry for geometry in geometries if geometry.variance <= largest_variance]
    return min(fitting, key=lambda g: (abs(g.points - aim), g.variance, g.space.coordinates))


def _spaces(epsilon: Fraction, smallest: int, largest: int) -> Iterator[DifferenceSet]:
    odds = math.exp(epsilon)
    for coordinates in range(2, largest.bit_length() + 1):
        order = 2
        # beyond 6 odds + 1 no order is competitive: (odds + x)^2 <= 8 odds x needs x < 6 odds
        while order <= 6 * odds + 1 and (points := geometric_sum(order, coordinates)) <= largest:
            # with d = order and very many points, the variance is (odds + d - 1)^2 /
            # (4 odds (d - 1)) times the least: an order with a factor above 2 is not competitive
            is_competitive = (odds + order - 1) ** 2 <= 8 * odds * (order - 1)
            if points >= smallest and is_competitive and prime_power(order):
                yield DifferenceSet(order, coordinates)
            order += 1


def points_of(words: Words, points: int) -> Integers:
    """Return floor(points * word / 2^64) for each word, exactly; `points` is below 2^31."""
    number = np.uint64(points)
    high, low = words >> _HALF_WORD, words & _LOW_WORD
    high *= number
    low *= number
    low >>= _HALF_WORD
    high += low
    high >>= _HALF_WORD
    return high.view(np.int64)


@dataclasses.dataclass(frozen=True, eq=False)
class HashedRows:
    """The rows of one level: t hashes of keys to K points.

    `geometry`: the geometry of a row's points; `rows`: t; `first`: the index of the first row's
    hash; `seed`: the hashes' seed; the point of a key in a row is floor(K mix(key ^ constant) /
    2^64).
    """

    geometry: Geometry
    rows: int
    first: int
    seed: int

    @functools.cached_property
    def constants(self) -> Words:
        """The constants of the hashes, shape (t,)."""
        return self._constants_of(np.arange(self.rows))

    def _constants_of(self, row: Integers) -> Words:
        return hash_constants(self.seed, self.first + row)

    @property
    def symbols(self) -> int:
        """The number of possible reports, t K."""
        return self.rows * self.geometry.points

    def points(self, keys: Words) -> Integers:
        """Return the points of keys in each row, shape (n, t)."""
        return points_of(mix(keys[:, None] ^ self.constants), self.geometry.points)

    def points_in(self, row: Integers, keys: Words) -> Integers:
        """Return the point of each key in one row, shape (n,).

        `row`, shape (n,): the index of each key's row; `keys`, shape (n,).
        """
        return points_of(mix(keys ^ self._constants_of(row)), self.geometry.points)

    def supports(self, reports: Integers, key: int) -> Bools:
        """Return which reports are on the hyperplane of a key's point in their row.

        `reports`, shape (n,): those from t K on, which only other levels can have, support no key.
        """
        is_supported = np.zeros(reports.size, dtype=np.bool_)
        of_this_level = np.flatnonzero(reports < self.symbols)
        row, point = np.divmod(reports[of_this_level], self.geometry.points)
        key_points = self.points_in(row, np.full(row.size, key, dtype=np.uint64))
        is_supported[of_this_level] = self.geometry.space.contains(point - key_points)
        return is_supported

    def support(self, counts: Counts, keys: Words) -> Counts:
        """Return how many reports support each key, shape (k,).

        `counts`, shape (t, K): reports of each point in each row; `keys`, shape (k,).
        """
        geometry, support = self.geometry, np.empty(keys.size, dtype=np.int64)
        sums = geometry.space.translated_sums(counts, geometry.points).ravel()
        sums = sums.astype(np.min_scalar_type(sums.max()))  # a table that a cache holds
        first, step = np.arange(self.rows) * geometry.points, max(1, AT_A_TIME // self.rows)
        for begin in range(0, keys.size, step):
            cells = self.points(keys[begin : begin + step])
            cells += first
            support[begin : begin + step] = sums.take(cells).sum(axis=1, dtype=np.int64)
        return support
