"""Reports of vectors, drawn by numpy from the exact law of `hemisphere`, `caps` and `lifted_caps`.

A report is one of k / 2 random directions or an opposite, ranked by the value; given its score Z
along the unit vector v it is uniform around v. So no other candidate need be drawn: the score of a
rank is an order statistic. `test_laws.py` shows that the real randomizers have this law.
"""

from collections.abc import Iterator

import numpy as np
from scipy.special import betainccinv

from estimators import LocalMetric
from estimators.estimate import Counts, Floats
from estimators.mechanisms import LiftedCaps
from estimators.mechanisms.lifted_caps import lift
from estimators.mechanisms.shared.ranked_directions import RankedDirections

CHUNK = 2**22  # coordinates of reports drawn at a time


def scores(mechanism: RankedDirections, level: int, n: int, rng: np.random.Generator) -> Floats:
    """Draw the scores <u, v> of n reports.

    The j-th largest of m absolute scores is exceeded with a chance of the law Beta(j, m - j + 1).
    Every pair has one candidate with this rank and one with the opposite score. The square of one
    coordinate of a uniform direction has the law Beta(1/2, (d - 1) / 2).
    """
    candidates, inside = mechanism.sets[level]
    pairs = candidates // 2
    missed = rng.random(n) < float(mechanism.chances[level][1]) * (candidates - inside)
    other = rng.integers(candidates - inside, size=n)
    negative = missed & (other >= pairs - inside)
    rank = np.where(missed, inside + other, rng.integers(inside, size=n))
    rank = np.where(negative, other - (pairs - inside), rank) + 1
    if mechanism.dimension == 1:
        size = np.ones(n)
    else:
        beyond = rng.beta(rank, pairs - rank + 1)
        size = np.sqrt(betainccinv(0.5, (mechanism.dimension - 1) / 2, beyond))
    drawn: Floats = np.where(negative, -size, size)
    return drawn


def vector_reports(
    mechanism: RankedDirections, values: Floats, level: int, rng: np.random.Generator
) -> Counts:
    """Draw one integer report for each row of `values` (in the unit ball) at a level; (n, d)."""
    wide = lift(values) if isinstance(mechanism, LiftedCaps) else values
    n, d = wide.shape
    length = np.linalg.norm(wide, axis=1)
    toward = np.where(rng.random(n) < (1 + np.minimum(length, 1)) / 2, 1.0, -1.0)
    nowhere = length == 0  # any direction does: a zero vector does not rank the candidates
    v = np.where(nowhere[:, None], np.eye(d)[0], wide / np.where(nowhere, 1, length)[:, None])
    z = scores(mechanism, level, n, rng)
    side = rng.normal(size=(n, d))
    side -= np.einsum("ij,ij->i", side, v)[:, None] * v
    width = np.sqrt(np.maximum(1 - z**2, 0)) / np.maximum(np.linalg.norm(side, axis=1), 1e-300)
    u = (toward * z)[:, None] * v + width[:, None] * side
    if nowhere.any():
        free = rng.normal(size=(int(nowhere.sum()), d))
        u[nowhere] = free / np.linalg.norm(free, axis=1)[:, None]
    reports: Counts = np.floor(u * mechanism.grid + rng.random(u.shape)).astype(np.int64)
    return reports


def vector_statistics(
    metric: LocalMetric, data: Floats, counts: tuple[int, ...], runs: int, seed: int
) -> Iterator[tuple[Counts, Floats]]:
    """Yield each run's statistic, and its users' mean at each level, shape (levels, d).

    Parameters
    ----------
    metric : LocalMetric
        A metric of vectors in the unit ball.
    data : ndarray of float64, shape (values, d) or (levels, values, d)
        The users' values, which are equally likely; with three axes, separate values for each
        level.
    counts : tuple of int
        The number of reports of each level.
    runs, seed : int
    """
    mechanism, rng = metric.randomizer, np.random.default_rng(seed)
    assert isinstance(mechanism, RankedDirections)
    wide = mechanism.dimension
    each = max(1, CHUNK // (max(counts) * wide))
    for start in range(0, runs, each):
        size = min(each, runs - start)
        tables = np.zeros((size, len(counts), mechanism.columns), dtype=np.int64)
        means = np.zeros((size, len(counts), data.shape[-1]))
        for level, n in enumerate(counts):
            if n == 0:
                continue
            values = data[level] if data.ndim == 3 else data
            held = values[rng.integers(len(values), size=size * n)]
            drawn = vector_reports(mechanism, held, level, rng).reshape(size, n, wide)
            tables[:, level, 0] = n
            tables[:, level, 1 : 1 + wide] = drawn.sum(axis=1)
            if mechanism.columns > 1 + wide:
                tables[:, level, 1 + wide :] = (drawn**2).sum(axis=1)
            means[:, level] = held.reshape(size, n, -1).mean(axis=1)
        for table, mean in zip(tables, means, strict=True):
            yield table.ravel(), mean
