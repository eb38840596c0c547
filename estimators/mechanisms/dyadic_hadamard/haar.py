"""Computes the Haar sums of a level from its statistic, and the mass of each bin from Haar sums.

A Haar sum D[i][k] is the share of the users in the left half of node k at depth i, minus that in
the right half. Their estimates are unbiased, with errors that are uncorrelated for uniform data, so
the consistent tree of least squares is found without a matrix (Hay et al., 2010).
"""

from __future__ import annotations

import functools

import numpy as np

from estimators.estimate import Counts, Floats, Indices
from estimators.exact import hadamard
from estimators.interruption import checkpoint
from estimators.mechanisms.dyadic_hadamard.constants import LevelConstants

Tree = list[Floats]
"""An array for each depth: 2^i numbers at depth i, in the last axis; windows come before it."""


def split_tree(row: Floats) -> Tree:
    """Return the tree whose numbers the last axis of `row` contains, depth by depth."""
    height = (row.shape[-1] + 1).bit_length() - 1
    return [row[..., (1 << i) - 1 : (2 << i) - 1] for i in range(height)]


def haar_sums(levels: tuple[LevelConstants, ...], sums: Counts) -> Floats:
    """Return the unbiased Haar sums of levels, each times the level's number of reports.

    `sums`, shape (..., levels, 2 B): the statistics of windows; the columns 2^j to 2^(j+1) - 1
    belong to the depth j. The result has shape (..., levels, B - 1), depth by depth. A row of
    Hadamard's matrix counts in a single split, that of its lowest bit, so rows of all depths are
    added before each transform.
    """
    checkpoint()
    bins, tables = sums.shape[-1] // 2, [_haar_places(level) for level in levels]
    row_count = sums.size // (2 * bins)
    cell_index = np.stack([table[0] for table in tables])
    cell_index = np.tile(cell_index, (row_count // len(levels), 1))
    cell_index += 2 * bins * np.arange(row_count)[:, None]
    terms = sums * np.stack([table[1] for table in tables])
    added = np.bincount(cell_index.ravel(), terms.ravel(), sums.size).reshape(row_count, 2 * bins)
    haar = np.empty((row_count, bins - 1))
    block_bits = np.tile([level.block_bits for level in levels], row_count // len(levels))
    for bits in set(block_bits.tolist()):
        rows = np.flatnonzero(block_bits == bits)
        for split, places in enumerate(split_tree(np.arange(bins - 1))):
            if split >= bits:
                inputs = added[rows[:, None], places + 1].reshape(-1, 1 << (split - bits))
                sums_of_rows = hadamard.transform_floats(inputs).reshape(rows.size, -1)
                haar[rows[:, None], places] = sums_of_rows
        mass = added[rows, bins : bins + (1 << bits)]
        for split in range(bits - 1, -1, -1):
            haar[rows, (1 << split) - 1 : (2 << split) - 1] = mass[:, 0::2] - mass[:, 1::2]
            mass = mass[:, 0::2] + mass[:, 1::2]
    return haar.reshape(*sums.shape[:-1], bins - 1)


@functools.lru_cache(maxsize=256)
def _haar_places(level: LevelConstants) -> tuple[Indices, Floats]:
    """Return to which cell each of a level's sums is added, and its weight, each of shape (2 B,).

    The sum of row r of block b of depth j is added to the cell 2^i + (b, r without its lowest bit),
    where i is the split; row 0, the number of reports of a block, is added to the cell B + b.
    """
    c, m, bins = level.block_bits, level.hash_bits, 1 << level.height
    cell_index, weight = np.zeros(2 * bins, dtype=np.intp), np.zeros(2 * bins)
    for depth in level.depths:
        rows, block = 1 << (depth - c), np.arange(1 << c)[:, None]
        first = (1 << depth) + rows * block
        cell_index[first], weight[first] = bins + block, 1 / level.honest
        scale = (rows - 1) / (((1 << m) - 1) * level.honest) / rows
        for split in range(c, depth):
            low_bit, row = 1 << (depth - 1 - split), np.arange(1 << (split - c))
            cells = first + (2 * row + 1) * low_bit
            cell_index[cells] = (1 << split) + (block << (split - c)) + row
            weight[cells] = scale * 2 * low_bit * level.omega(depth, split) / level.precision[split]
    return cell_index, weight


def masses(haar: Tree) -> Tree:
    """Return the mass of each node at each depth, 0 to h, from Haar sums."""
    masses = [np.ones((*haar[0].shape[:-1], 1))]
    for split in haar:
        masses.append(_halves(masses[-1], split))
    return masses


def _halves(mass: Floats, difference: Floats) -> Floats:
    """Return the masses of the children of nodes, left and right in turn."""
    pairs: Floats = np.stack([mass + difference, mass - difference], axis=-1) / 2
    return pairs.reshape(*mass.shape[:-1], -1)


def cumulated(mass: Floats) -> Floats:
    """Return F at the B + 1 edges from the masses of B bins."""
    edges = np.zeros((*mass.shape[:-1], mass.shape[-1] + 1))
    np.cumsum(mass, axis=-1, out=edges[..., 1:])
    return edges


def clipped_masses(haar: Tree, bins: int) -> Tree:
    """Return the masses of the nodes, none below 0: each Haar sum is clipped to its node's mass.

    `bins`: the number of bins that a value can be in; later bins have no mass.
    """
    masses, width = [np.ones((*haar[0].shape[:-1], 1))], 1 << len(haar)
    for split in haar:
        width //= 2
        mass = masses[-1]
        right = width * (2 * np.arange(mass.shape[-1]) + 1)
        masses.append(_halves(mass, np.where(right >= bins, mass, np.clip(split, -mass, mass))))
    return masses


def smoothed(haar: Tree, variances: Tree) -> Tree:
    """Return Haar sums shrunk towards 0, which is towards nodes with equal halves.

    The shrinkage is empirical Bayes with one relative spread for each depth, estimated from the
    squares of its Haar sums minus the variances of their errors. The result is biased. `haar`: the
    Haar sums; `variances`: the variances of their errors.
    """
    shrunken: Tree = []
    mass = np.ones((*haar[0].shape[:-1], 1))
    for split, variance in zip(haar, variances, strict=True):
        square = mass**2
        total = np.maximum(square.sum(axis=-1, keepdims=True), 1e-300)
        spread = (split**2 - variance).sum(axis=-1, keepdims=True) / total
        signal = square * np.clip(spread, 0.0, 1.0)
        shrunk = split * signal / np.maximum(signal + variance, 1e-300)
        shrunken.append(np.clip(shrunk, -mass, mass))
        mass = _halves(mass, shrunken[-1])
    return shrunken
