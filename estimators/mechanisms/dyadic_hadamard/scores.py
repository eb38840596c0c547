"""Second moments and bounds of one report's score for each edge.

The score of a report for an edge t is the term that it adds to F(t) - t/B; it is unbiased given the
user's value x. Its law depends on x only through the shell of x as seen from t: shell s < h if x is
in the sibling of t's ancestor at depth s + 1, and shell h if x is in bin t. Theorem 1 of
docs/proofs/distributions.md.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np

from estimators.estimate import Floats
from estimators.interruption import checkpoint
from estimators.mechanisms.dyadic_hadamard.constants import LevelConstants
from estimators.mechanisms.dyadic_hadamard.haar import split_tree


class PathTerms(NamedTuple):
    """Terms of the inner edges t = 1 to B - 1, which are the same for all levels.

    `signs`, shape (B - 1, h): 1 if t is in the left child of the node at depth i that contains t,
    else -1; `signed`, shape (B - 1, h): the signs times w_i(t) = min(o, s - o) / s, the weight in
    F(t) of the Haar sum of each split on the edge's path, where s is the width in bins of that
    node, and o = t mod s; `products`, shape (B - 1, h (h + 1) / 2): the product of each two of
    `signed`, i <= k.
    """

    signs: Floats
    signed: Floats
    products: Floats


@functools.lru_cache(maxsize=16)
def path_terms(height: int) -> PathTerms:
    """Return the terms of a tree with B = 2^height bins."""
    edges = np.arange(1, 1 << height)[:, None]
    size = 1 << (height - np.arange(height))
    offset = edges % size
    signs = np.where(2 * offset < size, 1.0, -1.0)
    signed = signs * np.minimum(offset, size - offset) / size
    first, second = np.triu_indices(height)
    return PathTerms(signs, signed, signed[:, first] * signed[:, second])


@dataclasses.dataclass(frozen=True)
class ScoreTables:
    """The moments of the levels' scores, as coefficients of :class:`PathTerms`, and their bounds.

    `bins`: the number of bins; `levels`: the constants of all levels of the metric; `second`, shape
    (levels, h (h + 1) / 2, h + 1): the coefficients of `products` in Q0 = E[score^2] in each shell;
    `mean`, shape (levels, h, h + 1): the coefficients of `signed` in M = E[score] in each shell;
    `centred`, shape (levels, B - 1): b, a bound on abs(score - E[score]) for every law of x.
    """

    bins: int
    levels: tuple[LevelConstants, ...]
    second: Floats
    mean: Floats
    centred: Floats

    @classmethod
    def of(cls, bins: int, levels: tuple[LevelConstants, ...]) -> ScoreTables:
        """Return the tables of levels of one tree over `bins` bins."""
        second, mean = (np.array(x) for x in zip(*map(_moment_coefficients, levels), strict=True))
        return cls(bins, levels, second, mean, np.array([*map(_centred_sizes, levels)]))

    @property
    def height(self) -> int:
        """h, the height of the tree."""
        return self.levels[0].height

    def added(self, factors: Floats) -> tuple[Floats, Floats]:
        """Return the sums over levels of `factors` times Q0, and times M, at the inner edges.

        `factors`, shape (..., levels); the results have the shape (..., B - 1, h + 1).
        """
        second, mean = (np.tensordot(factors, table, 1) for table in (self.second, self.mean))
        terms = path_terms(self.height)
        return terms.products @ second, terms.signed @ mean

    def of_level(self, level: int, inner: Any = slice(None)) -> tuple[Floats, Floats]:
        """Return Q0 and M of one level at `inner` edges, shape (edges, h + 1)."""
        terms = path_terms(self.height)
        return terms.products[inner] @ self.second[level], terms.signed[inner] @ self.mean[level]


@functools.lru_cache(maxsize=256)
def _moment_coefficients(level: LevelConstants) -> tuple[Floats, Floats]:
    """Return the coefficients of a level's Q0 and M, as in :class:`ScoreTables`.

    In the code, for a report of depth j: A_i = w_i(t) omega_ji / Lam_i is the weight of split i,
    which `slopes` has without w_i; `full` has the mean score of a value in shell s, the sum of g_s
    (blocks) and f_s (hash, `fine`).
    """
    height, blocks, depths = level.height, level.block_bits, np.array(level.depths)
    splits, shells = np.arange(height), np.arange(height + 1)[:, None]
    chances = np.array([level.probability(depth) for depth in level.depths])
    nu, nu2 = np.array([level.collisions(depth) for depth in level.depths]).T
    a, slopes = level.honest, _slopes(level)
    full = slopes[:, None] * ((splits < shells) * 1.0 - (splits == shells))
    fine = full * (splits >= blocks)
    hashed = (1 - 3 * nu + 2 * nu2) / (1 - nu) ** 2
    square = np.tensordot(chances, full[..., None] * full[:, :, None], 1)
    square += np.tensordot(chances * (hashed - 1), fine[..., None] * fine[:, :, None], 1)
    spread = slopes**2 * 2.0 ** (depths[:, None] - splits) * (splits >= blocks)
    coarse = slopes**2 * 2.0**-splits * (splits < blocks)
    noise = (1 - a) * (coarse + spread / (level.symbols * (1 - nu))[:, None])
    of_hash = a * ((nu - nu2) / (1 - nu) ** 2)[:, None] * spread
    diagonal = chances @ noise + (chances @ of_hash) * (shells >= blocks)
    square[:, splits, splits] += diagonal / a
    first, second = np.triu_indices(height)
    doubled = np.where(first < second, 2.0, 1.0)
    return (square[:, first, second] * (doubled / a)).T, np.tensordot(chances, full, 1).T


def _slopes(level: LevelConstants) -> Floats:
    """Return omega_ji / Lam_i of the depths in use, shape (depths, h); 0 for i >= j."""
    splits, depths = np.arange(level.height), np.array(level.depths)[:, None]
    of_hash = np.array([[level.omega(depth, level.block_bits)] for depth in level.depths])
    omega = np.where(splits < level.block_bits, level.honest**2, of_hash)
    return np.where(splits < depths, omega, 0.0) / level.precision


@functools.lru_cache(maxsize=256)
def _centred_sizes(level: LevelConstants) -> Floats:
    """Return the row of a level in :attr:`ScoreTables.centred`.

    Of the mean scores `full` of a depth, the part of the hash is omega times numbers that do not
    depend on the depth, so their extremes are found for all depths in one pass over the splits.
    """
    checkpoint()  # the tables of other levels are kept
    blocks, steps = level.block_bits, path_terms(level.height).signed.T / level.precision[:, None]
    block_steps = level.honest**2 * steps[:blocks]
    of_blocks = block_steps.sum(axis=0)
    block = np.abs(np.cumsum(block_steps, axis=0) - 2 * block_steps).max(axis=0, initial=0.0)
    largest: Floats = np.zeros_like(of_blocks)
    path, total = np.zeros((2, *of_blocks.shape))
    low, high = np.full_like(path, np.inf), np.full_like(path, -np.inf)
    for split in range(blocks, level.height):
        fine = path - steps[split]
        path = path + steps[split]
        low, high = np.minimum(low, fine), np.maximum(high, fine)
        total += np.abs(fine) * 2.0**-split
        if not level.chances[depth := split + 1]:
            continue
        omega, nu = level.omega(depth, blocks), level.collisions(depth)[0]
        extremes = np.minimum(low, path), np.maximum(high, path)
        lowest, highest = (of_blocks + omega * extreme for extreme in extremes)
        hash_size = omega * (2.0**split * total + np.abs(path)) / (2 * (1 - nu))
        reach = np.maximum(block, np.abs(of_blocks) + hash_size) / level.honest
        largest = np.maximum(largest, reach + np.maximum(block, np.maximum(highest, -lowest)))
    return largest


@functools.lru_cache(maxsize=256)
def score_range(level: LevelConstants) -> tuple[Floats, Floats]:
    """Return the least and the greatest score that a report can have, each of shape (B - 1,)."""
    checkpoint()
    terms, blocks = path_terms(level.height), level.block_bits
    lowest, highest = np.full(len(terms.signs), np.inf), np.full(len(terms.signs), -np.inf)
    for depth, slopes in zip(level.depths, _slopes(level), strict=True):
        steps = terms.signed[:, :depth] * slopes[:depth]
        sums = np.cumsum(steps[:, :blocks], axis=1)
        of_blocks = sums[:, -1:].sum(axis=1)  # 0 without blocks
        block = np.column_stack([sums - 2 * steps[:, :blocks], of_blocks])
        sizes = np.abs(steps) * 2.0 ** (depth - np.arange(depth))
        low, high = _fine_range(sizes, terms.signs, level, depth)
        least = np.minimum(block.min(axis=1), of_blocks + low)
        greatest = np.maximum(block.max(axis=1), of_blocks + high)
        lowest = np.minimum(lowest, least / level.honest)
        highest = np.maximum(highest, greatest / level.honest)
    return lowest, highest


def _fine_range(
    sums: Floats, signs: Floats, level: LevelConstants, depth: int
) -> tuple[Floats, Floats]:
    """Return a times the least and the greatest score that the hash bits of a report can add.

    a is :attr:`LevelConstants.honest`. `sums`, shape (B - 1, depth): A_i times the number of nodes
    of this depth below split i; `signs`, shape (B - 1, h): from :func:`path_terms`. A row counts
    in one Haar sum on the path of an edge, at the split of its lowest bit. Of two rows and their
    sum, two have the same split i, and the third has a coarser split k. If the two count with the
    signs x and y, the third counts with x y, or with -x y in the right child of split k.
    """
    first, hashes = level.block_bits, level.hash_bits
    rows = (1 << (depth - first)) - 1
    scale = rows / (((1 << hashes) - 1) * (rows + 1))
    sizes = scale * sums
    if hashes == 1:
        greatest: Floats = sizes[:, first:].max(axis=1)
        return -greatest, greatest
    low, high = np.full(len(sums), np.inf), np.full(len(sums), -np.inf)
    for k in range(first, depth - 1):
        third, finer = signs[:, k] * sizes[:, k], sizes[:, k + 1 :].max(axis=1)
        low = np.minimum(low, np.minimum(third - 2 * finer, -third))
        high = np.maximum(high, np.maximum(third + 2 * finer, -third))
    return low, high


def haar_moments(levels: tuple[LevelConstants, ...], masses: list[Floats]) -> Floats:
    """Return E[d^2] for each Haar sum, where d is the term that one report adds to it.

    The result has shape (..., levels, nodes), depth by depth. `levels`: the constants of the
    levels; `masses`: the share of the users in each node, at the depths of the requested splits,
    and at least down to the depth of the blocks.
    """
    checkpoint()
    splits = min(len(masses), levels[0].height)
    sizes = 1 << np.arange(splits)
    constant, slope, of_block = np.repeat(
        np.stack([_moment_lines(level)[:, :splits] for level in levels], axis=1), sizes, axis=2
    )
    row = np.concatenate(masses[:splits], axis=-1)[..., None, :]
    by_bits = {bits: _block_masses(masses, bits, splits) for bits in {x.block_bits for x in levels}}
    blocks = np.stack([by_bits[level.block_bits] for level in levels], axis=-2)
    return np.asarray(constant + slope * row + of_block * blocks)


def _block_masses(masses: list[Floats], block_bits: int, splits: int) -> Floats:
    """Return the mass of the block of each node, depth by depth; zero above the blocks."""
    sizes = [1 << (split - block_bits) for split in range(block_bits, splits)]
    above = np.zeros((*masses[0].shape[:-1], (1 << min(block_bits, splits)) - 1))
    below = (masses[block_bits].repeat(size, axis=-1) for size in sizes)
    return np.concatenate([above, *below], axis=-1)


@functools.lru_cache(maxsize=256)
def _moment_lines(level: LevelConstants) -> Floats:
    """Return the coefficients of 1, the node's mass and the block's mass in E[d^2], (3, h)."""
    a, q, blocks = level.honest, level.symbols, level.block_bits
    lines = np.zeros((3, level.height))
    for split in range(level.height):
        for depth in level.depths:
            if depth <= split:
                continue
            nu, nu2 = level.collisions(depth)
            line = np.array([(1 - a) * 2.0**-split, a, 0.0])
            if split >= blocks:
                spread = 2.0 ** (depth - split)
                hashed = a / (1 - nu) ** 2
                line[0] = (1 - a) * spread / (q * (1 - nu))
                line[1:] = hashed * (1 - 3 * nu + 2 * nu2), hashed * (nu - nu2) * spread
            part = level.omega(depth, split) / level.precision[split]
            lines[:, split] += level.probability(depth) * part**2 / a**2 * line
    return lines


@functools.lru_cache(maxsize=256)
def haar_bounds(level: LevelConstants, splits: int) -> tuple[list[Floats], list[Floats]]:
    """Return upper bounds on E[d^2] and on abs(d), where d is one report's term in a Haar sum.

    The bounds hold for any values: the second moment grows with a node's share, which is at most 1.
    The result has, for each split i from 0 to `splits` - 1, an array of shape (2^i,).
    """
    full_masses = [np.ones(1 << i) for i in range(max(splits, level.block_bits + 1))]
    largest = []
    for split in range(splits):
        size = 0.0
        for depth in level.depths:
            if depth <= split:
                continue
            score = level.omega(depth, split) / level.precision[split] / level.honest
            if split >= level.block_bits:  # up to two of its rows count there
                rows, hashes = 1 << (depth - level.block_bits), (1 << level.hash_bits) - 1
                score *= 2.0 ** (depth - split) * (rows - 1) / (hashes * rows)
                score *= min(2, hashes, 1 << (split - level.block_bits))
            size = max(size, score)
        largest.append(np.full(1 << split, size))
    moments = split_tree(haar_moments((level,), full_masses)[0])
    return moments[:splits], largest
