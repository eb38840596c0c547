"""Second moments and bounds of one report's score for each edge.

The score of a report for an edge t is the term that it adds to F(t) - t/B; it is unbiased given the
user's value x. Its law depends on x only through the shell of x as seen from t: shell s < h if x is
in the sibling of t's ancestor at depth s + 1, and shell h if x is in bin t. Theorem 1 of
docs/proofs/distributions.md.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from estimators.estimate import Floats
from estimators.interruption import checkpoint
from estimators.mechanisms.dyadic_hadamard.constants import LevelConstants
from estimators.mechanisms.dyadic_hadamard.haar import split_tree


@dataclasses.dataclass(frozen=True)
class ScoreTables:
    """The moments of the scores of one level, for the inner edges t = 1 to B - 1.

    `second`, shape (B - 1, h + 1): Q0, E[score^2] in each shell; `mean`, shape (B - 1, h + 1): M,
    E[score] in each shell; `lowest`, `highest`, shape (B - 1,): the least and the largest score of
    a report; `centred`, shape (B - 1,): b, a bound on abs(score - E[score]) for every law of x.
    """

    second: Floats
    mean: Floats
    lowest: Floats
    highest: Floats
    centred: Floats


def path_weights(height: int) -> tuple[Floats, Floats]:
    """Return the weight in F, at each inner edge, of the Haar sum of each split on the edge's path.

    Returns `weights`, shape (B - 1, h): w_i(t) = min(o, s - o) / s, where s is the width in bins of
    the node at depth i that contains t, and o = t mod s; `signs`, shape (B - 1, h): 1 if t is in
    that node's left child, else -1. `height`: h, of a tree with B = 2^h bins.
    """
    edges = np.arange(1, 1 << height)[:, None]
    size = 1 << (height - np.arange(height))
    offset = edges % size
    weights: Floats = np.minimum(offset, size - offset) / size
    return weights, np.where(2 * offset < size, 1.0, -1.0)


@functools.lru_cache(maxsize=256)
def score_tables(level: LevelConstants) -> ScoreTables:
    """Return the moments of a level's scores, from their closed forms.

    In the code, for a report of depth j: A_i = w_i(t) omega_ji / Lam_i is the weight of split i;
    full_s is the mean score of a value in shell s, the sum of g_s (blocks) and f_s (hash).
    """
    checkpoint()  # the tables of other levels are kept
    height, blocks = level.height, level.block_bits
    weights, signs = path_weights(height)
    edges, shells = len(weights), np.arange(height + 1)
    second, mean = np.zeros((edges, height + 1)), np.zeros((edges, height + 1))
    lowest, highest = np.full(edges, np.inf), np.full(edges, -np.inf)
    centred = np.zeros(edges)
    a, q = level.honest, level.symbols
    for depth in level.depths:
        share = level.probability(depth)
        nu, nu2 = level.collisions(depth)
        omega = np.array([level.omega(depth, i) for i in range(depth)])
        parts = weights[:, :depth] * (omega / level.precision[:depth])
        signed = parts * signs[:, :depth]
        path_sums = np.concatenate([np.zeros((edges, 1)), np.cumsum(signed, axis=1)], axis=1)
        full = path_sums[:, np.minimum(shells, depth)]
        full[:, :depth] -= signed
        block = np.where(shells < blocks, full, path_sums[:, blocks : blocks + 1])
        fine = full - block
        squares = parts**2
        coarse = squares[:, :blocks] @ 2.0 ** -np.arange(blocks)
        spread = squares[:, blocks:] @ 2.0 ** (depth - np.arange(blocks, depth))
        block_square = full**2 - fine**2
        hashed = fine**2 * (1 - 3 * nu + 2 * nu2) + (nu - nu2) * spread[:, None]
        honest = np.where(shells < blocks, full**2, block_square + hashed / (1 - nu) ** 2)
        noise = (1 - a) * (coarse + spread / (q * (1 - nu)))
        second += share * (noise[:, None] + a * honest) / a**2
        mean += share * full
        finer = np.abs(fine[:, blocks:depth]) @ 2.0 ** (depth - 1 - np.arange(blocks, depth))
        total = finer + np.abs(fine[:, depth])
        hashed_reach = np.abs(path_sums[:, blocks]) + total / (2 * (1 - nu))
        reach = np.maximum(np.abs(block).max(axis=1), hashed_reach) / a
        low, high = _fine_range(parts * 2.0 ** (depth - np.arange(depth)), signs, level, depth)
        others_low = block[:, : blocks + 1].min(axis=1)
        others_high = block[:, : blocks + 1].max(axis=1)
        lowest = np.minimum(lowest, np.minimum(others_low, path_sums[:, blocks] + low) / a)
        highest = np.maximum(highest, np.maximum(others_high, path_sums[:, blocks] + high) / a)
        centred = np.maximum(centred, reach + np.abs(full).max(axis=1))
    return ScoreTables(second, mean, lowest, highest, centred)


def _fine_range(
    sums: Floats, signs: Floats, level: LevelConstants, depth: int
) -> tuple[Floats, Floats]:
    """Return a times the least and the greatest score that the hash bits of a report can add.

    a is :attr:`LevelConstants.honest`. `sums`, shape (B - 1, depth): A_i times the number of nodes
    of this depth below split i; `signs`, shape (B - 1, h): from :func:`path_weights`. A row counts
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
    moments: Floats = constant + slope * row + of_block * blocks
    return moments


def _block_masses(masses: list[Floats], block_bits: int, splits: int) -> Floats:
    """Return the mass of the block of each node, depth by depth; zero above the blocks."""
    sizes = [1 << (split - block_bits) for split in range(block_bits, splits)]
    above = np.zeros((*masses[0].shape[:-1], (1 << min(block_bits, splits)) - 1))
    below = (masses[block_bits].repeat(size, axis=-1) for size in sizes)
    return np.concatenate([above, *below], axis=-1)


@functools.lru_cache(maxsize=256)
def _moment_lines(level: LevelConstants) -> Floats:
    """Return coefficients of E[d^2] of each split: 1, mass of the node, of the block; (3, h)."""
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

    They hold for any values: the second moment grows with a node's share, which is at most 1. The
    result has, for each split i from 0 to `splits` - 1, an array of shape (2^i,).
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
