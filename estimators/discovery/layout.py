"""What a report means: its group, the group's geometry, and the hashes of strings.

A string is reported in one of G + 1 groups. Group j of 1 to G hashes the first m_j bits of its code
word, group 0 the whole string, in one of t rows. The hash is a point of a projective space, and the
report is a point by projective geometry response.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from estimators.discovery.string_code import WIDTH
from estimators.estimate import Floats
from estimators.exact.difference_sets import DifferenceSet, geometric_sum, support_chances
from estimators.exact.finite_fields import prime_power
from estimators.exact.hashing import mix, row_constants
from estimators.exact.randomness import Words
from estimators.exact.thresholds import WORD

LARGEST = Fraction(6)
"""Levels above it report at it: the geometries that fit a table fit no larger epsilon."""
TREE_POINTS, ROW_POINTS = (2**13, 2**17), (128, 2048)
"""The least and the largest number of points."""
TREE_AIM, ROW_AIM = 2**15, 1536
SPARED = 1.03
"""What the variance may cost for a number of points nearer to the aim."""
TREE_CONSTANTS = 256
"""Constants of hashes that are reserved for the trees of levels; those of rows come after them."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_HALF, _LOW = np.uint64(32), np.uint64(2**32 - 1)


@dataclasses.dataclass(frozen=True)
class Geometry:
    """The space of a group's points at a level, with the law of a report.

    Parameters
    ----------
    space : DifferenceSet
        K points; the hyperplane of the point x is D + x.
    p, q : Fraction
        The chance that a report lies on the hyperplane of its point, and of any other one.
    """

    space: DifferenceSet
    p: Fraction
    q: Fraction

    @property
    def points(self) -> int:
        """K."""
        return self.space.points

    @functools.cached_property
    def contrast(self) -> float:
        """The difference p - q."""
        return float(self.p - self.q)

    @functools.cached_property
    def variance(self) -> float:
        """V: that of one report as an estimate of the frequency of a string that nobody holds.

        A (1 - A) / ((p - q)(1 - 1/K))^2 with A = s / K, over random points.
        """
        share = Fraction(self.space.size, self.points)
        scale = (self.p - self.q) * (1 - Fraction(1, self.points))
        return float(share * (1 - share) / scale**2)

    def frequencies(self, counts: NDArray[np.int64]) -> Floats:
        """Return the estimated frequency of each point, shape (rows, K): zero on average.

        (support - q n) / ((p - q) n) - 1/K, zero for a row without reports.
        """
        support = self.space.translated_sums(counts, self.points)
        n = counts.sum(axis=1, keepdims=True)
        raw = (support - float(self.q) * n) / (self.contrast * np.maximum(n, 1))
        result: Floats = np.where(n > 0, raw - 1 / self.points, 0.0)
        return result


@functools.lru_cache(maxsize=1024)
def best_geometry(epsilon: Fraction, limits: tuple[int, int], aim: int) -> Geometry:
    """Return the geometry of least variance within limits, or nearly so and nearer to an aim.

    Parameters
    ----------
    epsilon : Fraction
    limits : tuple of int
        The least and the largest number of points.
    aim : int
        Of the geometries within 3% of the least variance, that with its number of points nearest.

    Notes
    -----
    Doubles are correctly rounded functions of exact fractions here, so that every device finds the
    same geometry.

    Examples
    --------
    >>> for epsilon in (1, 4):
    ...     tree = best_geometry(Fraction(epsilon), TREE_POINTS, TREE_AIM).space
    ...     row = best_geometry(Fraction(epsilon), ROW_POINTS, ROW_AIM).space
    ...     print(tree.order, tree.coordinates, tree.points, row.order, row.coordinates, row.points)
    3 10 29524 4 6 1365
    41 4 70644 37 3 1407
    """
    found = [Geometry(s, *support_chances(epsilon, s)) for s in _spaces(epsilon, *limits)]
    least = min(geometry.variance for geometry in found)
    fitting = [geometry for geometry in found if geometry.variance <= SPARED * least]
    return min(fitting, key=lambda g: (abs(g.points - aim), g.variance, g.space.coordinates))


def _spaces(epsilon: Fraction, least: int, largest: int) -> Iterator[DifferenceSet]:
    odds = math.exp(epsilon)
    for coordinates in range(2, largest.bit_length() + 1):
        order = 2
        while (points := geometric_sum(order, coordinates)) <= largest:
            # as many points as there can be have (odds + d - 1)^2 / (4 odds (d - 1)) times the
            # least variance: beyond 2 none is worth a look
            near = (odds + order - 1) ** 2 <= 8 * odds * (order - 1)
            if points >= least and near and prime_power(order):
                yield DifferenceSet(order, coordinates)
            order += 1


def points_of(words: Words, points: int) -> NDArray[np.int64]:
    """Return floor(points * word / 2^64) for each word, exactly; `points` is below 2^31."""
    number = np.uint64(points)
    low = (words & _LOW) * number >> _HALF
    return (((words >> _HALF) * number + low) >> _HALF).astype(np.int64)


@dataclasses.dataclass(frozen=True)
class Layout:
    """The groups of a metric, their places in a report and in the statistic.

    Parameters
    ----------
    epsilons : tuple of Fraction
        The levels, ascending.
    depths : tuple of int
        m_1 < ... < m_G, at most 128.
    rows : int
        t.
    seed : int
        Of the hashes, which are public; below 2^64.
    """

    epsilons: tuple[Fraction, ...]
    depths: tuple[int, ...]
    rows: int
    seed: int

    @functools.cached_property
    def trees(self) -> list[Geometry]:
        """The geometry of prefixes, per level."""
        return [best_geometry(min(e, LARGEST), TREE_POINTS, TREE_AIM) for e in self.epsilons]

    @functools.cached_property
    def sketches(self) -> list[Geometry]:
        """The geometry of a row of whole strings, per level."""
        return [best_geometry(min(e, LARGEST), ROW_POINTS, ROW_AIM) for e in self.epsilons]

    @functools.cached_property
    def tree_constants(self) -> Words:
        """The constant of each level's hash of prefixes."""
        return row_constants(self.seed, TREE_CONSTANTS)[: len(self.epsilons)]

    @functools.cached_property
    def row_constants(self) -> Words:
        """The constants of the hashes of whole strings, shape (levels, t)."""
        words = row_constants(self.seed, TREE_CONSTANTS + len(self.epsilons) * self.rows)
        return words[TREE_CONSTANTS:].reshape(len(self.epsilons), self.rows)

    @functools.cached_property
    def symbols(self) -> list[int]:
        """The number of possible reports, per level."""
        groups = len(self.depths)
        return [
            groups * tree.points + self.rows * sketch.points
            for tree, sketch in zip(self.trees, self.sketches, strict=True)
        ]

    def tree_counts(self, cells: NDArray[np.int64], level: int) -> NDArray[np.int64]:
        """Return the counts of the prefixes' points at a level, shape (G, K)."""
        points, groups = self.trees[level].points, len(self.depths)
        return cells[: groups * points].reshape(groups, points)

    def row_counts(self, cells: NDArray[np.int64], level: int) -> NDArray[np.int64]:
        """Return the counts of the whole strings' points at a level, shape (t, K)."""
        first, points = len(self.depths) * self.trees[level].points, self.sketches[level].points
        return cells[first : first + self.rows * points].reshape(self.rows, points)

    # -- Hashes -------------------------------------------------------------------------------

    @functools.cached_property
    def widths(self) -> list[int]:
        """The number of bits by which each group's prefix is longer than the one before."""
        return np.diff(self.depths, prepend=0).tolist()

    def blocks(self, bits: Words) -> Words:
        """Return the new bits of each prefix, as numbers.

        Parameters
        ----------
        bits : ndarray of uint64, shape (n, 2)
            128 bits a string.

        Returns
        -------
        ndarray of uint64, shape (n, G)
        """
        result = np.zeros((len(bits), len(self.depths)), dtype=np.uint64)
        for group, (depth, width) in enumerate(zip(self.depths, self.widths, strict=True)):
            for bit in range(depth - width, depth):
                word, place = divmod(bit, 64)
                one = bits[:, word] >> np.uint64(63 - place) & np.uint64(1)
                result[:, group] |= one << np.uint64(depth - 1 - bit)
        return result

    def extended(self, hashes: Words, blocks: Words, group: int) -> Words:
        """Return the hashes of prefixes that are one block longer.

        Parameters
        ----------
        hashes : ndarray of uint64
            Of the prefixes without the block; zero for the first group.
        blocks : ndarray of uint64
            Numbers of the new bits; of a shape that broadcasts with `hashes`.
        group : int
            From 0.
        """
        tag = (group + 1) * int(_GOLDEN) % WORD
        return mix(hashes ^ mix(blocks + np.uint64(tag)))

    def prefix_hashes(self, bits: Words) -> Words:
        """Return the hash of each prefix of some strings, shape (n, G), from their 128 bits."""
        blocks = self.blocks(bits)
        hashes, last = np.empty_like(blocks), np.zeros(len(bits), dtype=np.uint64)
        for group in range(len(self.depths)):
            last = hashes[:, group] = self.extended(last, blocks[:, group], group)
        return hashes

    def tree_points(self, hashes: Words, level: int) -> NDArray[np.int64]:
        """Return the points of prefixes at a level, from their hashes."""
        return points_of(mix(hashes ^ self.tree_constants[level]), self.trees[level].points)

    def row_points(self, keys: Words, level: int) -> NDArray[np.int64]:
        """Return the points of whole strings in each row at a level, shape (n, t)."""
        words = mix(keys[:, None] ^ self.row_constants[level])
        return points_of(words, self.sketches[level].points)

    def points_in_rows(self, keys: Words, row: NDArray[np.int64], level: int) -> NDArray[np.int64]:
        """Return the point of each whole string in a row of its own, shape (n,).

        Parameters
        ----------
        keys : ndarray of uint64, shape (n,)
        row : ndarray of int64, shape (n,)
        level : int
        """
        words = mix(keys ^ self.row_constants[level, row])
        return points_of(words, self.sketches[level].points)


def depths_between(first: int, last: int, step: int) -> tuple[int, ...]:
    """Return the depths first, first + step, ..., last.

    Parameters
    ----------
    first, last, step : int
        In bits.

    Raises
    ------
    ValueError
        Unless 8 <= first <= last <= 128, first <= 16, and the steps, of 1 to 8, end at `last`.

    Examples
    --------
    >>> depths_between(16, 32, 8)
    (16, 24, 32)
    """
    if not 8 <= first <= 16:
        raise ValueError(f"first = {first}: expected 8 to 16 bits")
    if not 1 <= step <= 8:
        raise ValueError(f"step = {step}: expected 1 to 8 bits")
    if not first <= last <= WIDTH or (last - first) % step:
        raise ValueError(
            f"last = {last}: expected {first} and whole steps of {step}, up to {WIDTH}"
        )
    return tuple(range(first, last + 1, step))
