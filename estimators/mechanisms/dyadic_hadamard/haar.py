"""From sums to a distribution: Haar sums of a level, and the mass of each bin from them.

A Haar sum D[i][k] is the share of the users in the left half of node k at depth i, minus that in
the right half. All are estimated without bias, and their errors are uncorrelated for uniform data,
so the least-squares solution of a consistent tree needs no matrix (Hay et al., 2010).
"""

from __future__ import annotations

import numpy as np

from estimators.estimate import Counts, Floats
from estimators.exact import hadamard
from estimators.interruption import checkpoint
from estimators.mechanisms.dyadic_hadamard.constants import LevelConstants

Tree = list[Floats]
"""An array for each depth: 2^i numbers at depth i."""


def haar_sums(level: LevelConstants, sums: Counts) -> Tree:
    """Return the unbiased Haar sums of one level, times its number of reports.

    `sums`, shape (2 B,): the statistic of the level: the array of depth j is at 2^j to 2^(j+1). The
    result has shape (2^i,) for depths i = 0 to h - 1.
    """
    a, c, m = level.honest, level.block_bits, level.hash_bits
    haar = [np.zeros(1 << split) for split in range(level.height)]
    checkpoint()
    for depth in level.depths:
        rows = 1 << (depth - c)
        table = sums[1 << depth : 2 << depth].reshape(1 << c, rows).copy()
        blocks = table[:, :1].astype(np.float64)
        table[:, 0] = 0  # row 0 counts reports, and is no part of the hash
        scale = (rows - 1) / (((1 << m) - 1) * a)
        nodes = (scale * hadamard.transform(table) + blocks / a) / rows
        mass = nodes.reshape(-1)
        for split in range(depth - 1, -1, -1):
            pairs = mass.reshape(-1, 2)
            weight = level.omega(depth, split) / level.precision[split]
            haar[split] += weight * (pairs[:, 0] - pairs[:, 1])
            mass = pairs.sum(axis=1)
    return haar


def masses(haar: Tree) -> Tree:
    """Return the mass of each node at each depth, 0 to h, from Haar sums."""
    masses = [np.ones(1)]
    for split in haar:
        halves = np.stack([masses[-1] + split, masses[-1] - split], axis=1) / 2
        masses.append(halves.reshape(-1))
    return masses


def cumulated(mass: Floats) -> Floats:
    """Return F at the B + 1 edges from the masses of B bins."""
    return np.concatenate([[0.0], np.cumsum(mass)])


def clipped_masses(haar: Tree, bins: int) -> Tree:
    """Return masses that are at least 0: each Haar sum is clipped to the mass of its node.

    `bins`: bins from here on have no mass.
    """
    masses, width = [np.ones(1)], 1 << len(haar)
    for split in haar:
        width //= 2
        mass = masses[-1]
        right = width * (2 * np.arange(mass.size) + 1)
        half = np.where(right >= bins, mass, np.clip(split, -mass, mass))
        masses.append(np.stack([mass + half, mass - half], axis=1).reshape(-1) / 2)
    return masses


def smoothed(haar: Tree, variances: Tree) -> Tree:
    """Return Haar sums shrunk towards even halves, as a Bayesian would with a common spread.

    The relative spread of a depth is what is left of the squares of its Haar sums after their noise
    is taken away. The result is biased. `haar`, `variances`: the Haar sums, and the variances of
    their errors.
    """
    shrunken: Tree = []
    mass = np.ones(1)
    for split, variance in zip(haar, variances, strict=True):
        total = max(float((mass**2).sum()), 1e-300)
        spread = min(1.0, max(0.0, float((split**2 - variance).sum()) / total))
        signal = mass**2 * spread
        shrunk = split * signal / np.maximum(signal + variance, 1e-300)
        half = np.clip(shrunk, -mass, mass)
        shrunken.append(half)
        mass = np.stack([mass + half, mass - half], axis=1).reshape(-1) / 2
    return shrunken
