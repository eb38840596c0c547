"""The meaning of a report: its group, the group's geometry, and the hashes of strings.

A string is reported in one of G + 1 groups. Group j of 1 to G hashes the first m_j bits of its code
word, group 0 the whole string, in one of t rows. The hash is a point of a projective space, and the
report is a point by projective geometry response.
"""

from __future__ import annotations

import dataclasses
import functools
from fractions import Fraction

import numpy as np

from estimators.discovery.string_code import CODE_BITS
from estimators.estimate import Integers
from estimators.exact.geometries import Geometry, HashedRows, best_geometry, points_of
from estimators.exact.hashing import hash_constants, mix
from estimators.exact.randomness import Words
from estimators.exact.thresholds import WORD

TREE_POINTS, ROW_POINTS = (2**13, 2**17), (128, 2048)
"""The least and the largest number of points of a prefix, and of a row of whole strings."""
TREE_AIM, ROW_AIM = 2**15, 1536
TREE_CONSTANTS = 256
"""The first 256 hash constants are for the levels' trees; those of rows follow."""
_GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)


@dataclasses.dataclass(frozen=True)
class DiscoveryLayout:
    """The groups of a metric, their positions in a report and in the statistic.

    `epsilons`: the levels, ascending; `depths`: m_1 < ... < m_G, at most 128; `rows`: t; `seed`:
    the seed, below 2^64, of the hashes, which are public.
    """

    epsilons: tuple[Fraction, ...]
    depths: tuple[int, ...]
    rows: int
    seed: int

    @functools.cached_property
    def trees(self) -> list[Geometry]:
        """The geometry of prefixes, per level."""
        return [best_geometry(epsilon, TREE_POINTS, TREE_AIM) for epsilon in self.epsilons]

    @functools.cached_property
    def sketches(self) -> list[Geometry]:
        """The geometry of a row of whole strings, per level."""
        return [best_geometry(epsilon, ROW_POINTS, ROW_AIM) for epsilon in self.epsilons]

    @functools.cached_property
    def tree_constants(self) -> Words:
        """The constant of each level's hash of prefixes."""
        return hash_constants(self.seed, np.arange(len(self.epsilons)))

    @functools.cached_property
    def hashed_rows(self) -> list[HashedRows]:
        """The rows of whole strings, per level."""
        return [
            HashedRows(sketch, self.rows, TREE_CONSTANTS + level * self.rows, self.seed)
            for level, sketch in enumerate(self.sketches)
        ]

    @functools.cached_property
    def symbols(self) -> list[int]:
        """The number of possible reports, per level."""
        groups = len(self.depths)
        levels = zip(self.trees, self.sketches, strict=True)
        return [groups * tree.points + self.rows * sketch.points for tree, sketch in levels]

    def tree_counts(self, cells: Integers, level: int) -> Integers:
        """Return the counts of the prefixes' points at a level, shape (G, K).

        `cells`: the number of reports of each symbol at the level.
        """
        points, groups = self.trees[level].points, len(self.depths)
        return cells[: groups * points].reshape(groups, points)

    def row_counts(self, cells: Integers, level: int) -> Integers:
        """Return the counts of the whole strings' points at a level, shape (t, K).

        `cells`: the number of reports of each symbol at the level.
        """
        first, points = len(self.depths) * self.trees[level].points, self.sketches[level].points
        return cells[first : first + self.rows * points].reshape(self.rows, points)

    # -- Hashes -------------------------------------------------------------------------------

    @functools.cached_property
    def widths(self) -> list[int]:
        """The number of bits that each group's prefix adds to the prefix of the group before."""
        return np.diff(self.depths, prepend=0).tolist()

    def blocks(self, bits: Words) -> Words:
        """Return, as numbers, the bits that each prefix adds to the shorter one, shape (n, G).

        `bits`, shape (n, 2): the 128 bits of each string.
        """
        blocks = np.zeros((len(bits), len(self.depths)), dtype=np.uint64)
        for group, (depth, width) in enumerate(zip(self.depths, self.widths, strict=True)):
            for bit in range(depth - width, depth):
                word, position = divmod(bit, 64)
                bit_values = bits[:, word] >> np.uint64(63 - position) & np.uint64(1)
                blocks[:, group] |= bit_values << np.uint64(depth - 1 - bit)
        return blocks

    def extended(self, hashes: Words, blocks: Words, group: int) -> Words:
        """Return the hashes of prefixes that are one block longer.

        `hashes`: the hashes of the prefixes without the block, zero for the first group; `blocks`:
        the new bits as numbers, in a shape that broadcasts with `hashes`; `group`: the index of the
        group of the longer prefixes, from 0.
        """
        tag = (group + 1) * int(_GOLDEN_RATIO) % WORD
        return mix(hashes ^ mix(blocks + np.uint64(tag)))

    def prefix_hashes(self, bits: Words) -> Words:
        """Return the hash of each prefix of some strings, shape (n, G), from their 128 bits."""
        blocks = self.blocks(bits)
        hashes, last = np.empty_like(blocks), np.zeros(len(bits), dtype=np.uint64)
        for group in range(len(self.depths)):
            last = hashes[:, group] = self.extended(last, blocks[:, group], group)
        return hashes

    def tree_points(self, hashes: Words, level: int) -> Integers:
        """Return the points of prefixes at a level, from their hashes."""
        return points_of(mix(hashes ^ self.tree_constants[level]), self.trees[level].points)


def depths_between(first: int, last: int, step: int) -> tuple[int, ...]:
    """Return the depths `first`, `first` + `step`, ..., `last`, which are numbers of bits.

    Raises ValueError unless 8 <= first <= last <= 128, first <= 16, and the steps, of 1 to 8, end
    at `last`.

    >>> depths_between(16, 32, 8)
    (16, 24, 32)
    """
    if not 8 <= first <= 16:
        raise ValueError(f"first = {first}: expected 8 to 16 bits")
    if not 1 <= step <= 8:
        raise ValueError(f"step = {step}: expected 1 to 8 bits")
    if not first <= last <= CODE_BITS or (last - first) % step:
        raise ValueError(
            f"last = {last}: expected {first} and whole steps of {step}, up to {CODE_BITS}"
        )
    return tuple(range(first, last + 1, step))
