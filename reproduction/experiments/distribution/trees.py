"""Rivals that report nodes of a tree over the bins: by unary or direct answers, or a Hadamard bit.

Simulations: their noise is numpy's, and nothing here may be used on anybody's data. Sources: Hay,
Rastogi, Miklau and Suciu (VLDB 2010) for consistency; Cormode, Kulkarni and Srivastava (VLDB 2019)
for trees of local reports and for HaarHRR; Wang, Blocki, Li and Jha (USENIX Security 2017) for OUE.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import NDArray

from estimators.estimate import Counts, Floats
from estimators.exact import hadamard
from estimators.mechanisms.dyadic_hadamard.haar import cumulated, masses

STEPS = 400
"""The steps of the iteration for the probabilities of depths, which converges long before."""


def fan_outs(bins: int, branching: int) -> list[int]:
    """Return the number of children of the nodes of each depth; the last ones may have fewer.

    Examples
    --------
    >>> fan_outs(64, 16)
    [16, 4]
    """
    fans = []
    while bins > 1:
        fans.append(min(branching, bins))
        bins //= fans[-1]
    return fans


def noise_of(nodes: int, epsilon: float) -> tuple[bool, float]:
    """Return whether OUE is better than k-ary randomized response, and the smaller variance.

    Variances are n Var for a share of 0. Ties go to OUE.

    Parameters
    ----------
    nodes : int
        The number k of possible answers.
    epsilon : float
        The level of all reports.
    """
    e = math.exp(epsilon)
    unary, direct = 4 * e / (e - 1) ** 2, (nodes - 2 + e) / (e - 1) ** 2
    return unary <= direct, min(unary, direct)


@functools.cache
def depth_probabilities(bins: int, branching: int, epsilon: float) -> tuple[Floats, Floats]:
    """Return the probabilities of depths that give F the least average variance, and precisions.

    Parameters
    ----------
    bins, branching : int
        The number of bins, and of children of a node.
    epsilon : float
        The level of all reports.

    Returns
    -------
    probabilities : ndarray of float64, shape (depths,)
        The probability of each depth.
    precision : ndarray of float64, shape (depths, depths)
        At i, j: the precision that one report of depth j + 1 gives to the shares of the children of
        split i; 0 for j < i.
    """
    fans = fan_outs(bins, branching)
    depths, sizes = len(fans), np.cumprod(fans)
    costs, precision = np.zeros(depths), np.zeros((depths, depths))
    for i, fan in enumerate(fans):
        child = bins // sizes[i]
        edges = np.arange(1, bins)[:, None]
        left = np.clip((edges % (child * fan) - child * np.arange(fan)) / child, 0, 1)
        costs[i] = left.var(axis=1).mean() * fan
        for j in range(i, depths):
            precision[i, j] = sizes[i] / sizes[j] / noise_of(int(sizes[j]), epsilon)[1]
    probabilities = np.full(depths, 1 / depths)
    for _ in range(STEPS):
        gains = (costs / (precision @ probabilities) ** 2) @ precision
        probabilities = probabilities * np.sqrt(gains)
        probabilities /= probabilities.sum()
    return probabilities, precision


def tree_cdf(
    counts: Counts, branching: int, epsilon: float, generator: np.random.Generator
) -> Floats:
    """Return F at the bins' edges, from a least-squares consistent tree; it may descend.

    Each user draws a depth and reports the node there, by OUE or k-ary randomized response. With as
    many children as bins the tree is a flat histogram.

    Parameters
    ----------
    counts : ndarray of int64, shape (bins,)
        How many users are in each bin; the number of bins is a power of two.
    branching : int
        The number of children, a power of two.
    epsilon : float
        The level of all reports.
    generator : numpy.random.Generator
        Draws the reports.

    Returns
    -------
    ndarray of float64, shape (bins + 1,)
        F, from 0 to 1.

    Notes
    -----
    The errors of one depth are exchangeable, so least squares weigh the differences between
    siblings by their precisions, from all depths below, and no matrix is solved.
    """
    fans = fan_outs(counts.size, branching)
    chances, precision = depth_probabilities(counts.size, branching, epsilon)
    of_split = [np.zeros(0)] * len(fans)
    weight = precision * chances
    weight /= weight.sum(axis=1, keepdims=True)
    undrawn, left = counts, 1.0
    for j, chance in enumerate(chances.tolist()):
        drawn = generator.binomial(undrawn, min(1.0, chance / left)) if left > 0 else undrawn
        undrawn, left = undrawn - drawn, left - chance
        nodes = drawn.reshape(math.prod(fans[: j + 1]), -1).sum(axis=1)
        mass = _frequencies(nodes, epsilon, generator)
        for i in range(j, -1, -1):
            table = mass.reshape(-1, fans[i])
            differences = weight[i, j] * (table - table.mean(axis=1, keepdims=True))
            of_split[i] = differences if j == i else of_split[i] + differences
            mass = table.sum(axis=1)
    mass = np.ones(1)
    for fan, differences in zip(fans, of_split, strict=True):
        mass = (mass[:, None] / fan + differences).reshape(-1)
    return cumulated(mass)


def _frequencies(nodes: Counts, epsilon: float, generator: np.random.Generator) -> Floats:
    """Return unbiased shares from randomized reports of users in these nodes."""
    users, k, e = int(nodes.sum()), nodes.size, math.exp(epsilon)
    if not users:
        return np.full(k, 1 / k)
    if noise_of(k, epsilon)[0]:
        true, false_chance = 0.5, 1 / (e + 1)
        counts = generator.binomial(nodes, true) + generator.binomial(users - nodes, false_chance)
    else:
        true, false_chance = e / (e + k - 1), 1 / (e + k - 1)
        truthful = generator.binomial(nodes, true - false_chance)
        counts = truthful + generator.multinomial(users - int(truthful.sum()), np.full(k, 1 / k))
    shares: Floats = (counts / users - false_chance) / (true - false_chance)
    return shares


def haar_hrr_cdf(counts: Counts, epsilon: float, generator: np.random.Generator) -> Floats:
    """Return F at the bins' edges, estimated by HaarHRR; it may descend.

    Each user draws one depth of the Haar transform, evenly. The vector of that depth is 1 or -1 at
    the user's node; one random Hadamard coefficient of it is reported by randomized response.

    Parameters
    ----------
    counts : ndarray of int64, shape (bins,)
        How many users are in each bin; the number of bins is a power of two.
    epsilon : float
        The level of all reports.
    generator : numpy.random.Generator
        Draws the reports.

    Returns
    -------
    ndarray of float64, shape (bins + 1,)
        F, from 0 to 1.
    """
    height = counts.size.bit_length() - 1
    values = np.repeat(np.arange(counts.size), counts)
    depth = generator.integers(0, height, values.size)
    lie = generator.random(values.size) < 1 / (math.exp(epsilon) + 1)
    haar = []
    for split in range(height):
        users_of_depth = np.flatnonzero(depth == split)
        node = values[users_of_depth] >> (height - split)
        right = values[users_of_depth] >> (height - split - 1) & 1
        row = generator.integers(0, 1 << split, users_of_depth.size)
        odd = hadamard.is_odd(row, node) ^ (right == 1) ^ lie[users_of_depth]
        sums = np.zeros(1 << split, dtype=np.int64)
        np.add.at(sums, row, 1 - 2 * odd.astype(np.int64))
        haar.append(
            hadamard.transform(sums[None])[0]
            / (math.tanh(epsilon / 2) * max(1, users_of_depth.size))
        )
    return cumulated(masses(haar)[-1])


def ascending(cdf: Floats) -> Floats:
    """Return the nearest ascending function in least squares, within [0, 1]."""
    from scipy.optimize import isotonic_regression

    fitted: NDArray[np.float64] = isotonic_regression(cdf).x
    return np.clip(fitted, 0, 1)
