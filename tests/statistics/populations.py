"""Populations whose statistic is drawn from the exact law of the reports, and their truths.

Drawing the sums instead of the reports makes thousands of runs cheap; `test_laws.py` shows that the
real randomizers have this law. (For subsets, whose categories are not independent, it is the law of
each category's count.) What an open vocabulary's hashes do to it depends on their seed: `reseeded`
gives each run its own.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import hadamard

from estimators import Metric
from estimators.hashing import buckets_and_signs
from estimators.mechanisms import (
    MECHANISMS,
    CountSketch,
    Grr,
    HadamardResponse,
    Laplace,
    ProjectiveGeometryResponse,
)
from estimators.mechanisms.frequencies import SupportCounts
from estimators.thresholds import WORD, flip_threshold

if TYPE_CHECKING:
    from estimators.estimate import Counts, Estimate, Floats

LEVELS = (0.25, 0.5, 1.0, 2.0, 4.0)
#: Of a count sketch: small enough that collisions are frequent.
SKETCH = {"rows": 16, "buckets": 8}

Symbols = Grr | HadamardResponse | ProjectiveGeometryResponse


@dataclasses.dataclass(frozen=True)
class Population:
    """Users who hold +1 with probability (1 + theta) / 2, else -1; or categories with frequencies.

    Parameters
    ----------
    mechanism : str
    theta : float or tuple of float
        A mean in [-1, 1], or the frequencies of the categories.
    counts : tuple of int
        Reports per level.
    seed : int
        Of an open vocabulary's hashes.
    """

    mechanism: str
    theta: float | tuple[float, ...]
    counts: tuple[int, ...]
    seed: int = 0

    @functools.cached_property
    def metric(self) -> Metric:
        domain: dict[str, Any] = {"kind": "mean", "range": (-1, 1)}
        if isinstance(self.theta, tuple):
            domain = {"kind": "frequency", "categories": len(self.theta)}
            if not MECHANISMS[self.mechanism].closed_vocabulary:
                options = {**SKETCH, "seed": self.seed}
                domain |= {"categories": "open", "watch": self.names, "options": options}
        return Metric(name="m", mechanism=self.mechanism, levels=LEVELS, **domain)

    @property
    def names(self) -> tuple[str, ...]:
        """What the values of an open vocabulary are called."""
        return tuple(f"name {index}" for index in range(self.frequencies.size))

    def reseeded(self, seed: int) -> Population:
        """Return the population with hashes of its own, where its mechanism has any."""
        if MECHANISMS[self.mechanism].closed_vocabulary:
            return self
        return dataclasses.replace(self, seed=seed)

    @property
    def frequencies(self) -> Floats:
        """Of the categories; of -1 and +1 for a mean."""
        if isinstance(self.theta, tuple):
            return np.array(self.theta)
        return np.array([(1 - self.theta) / 2, (1 + self.theta) / 2])

    def held(self, rng: np.random.Generator) -> Counts:
        """Draw how many users of each level hold each value, shape (levels, values)."""
        return np.array([rng.multinomial(n, self.frequencies) for n in self.counts])

    def statistic(self, held: Counts, rng: np.random.Generator) -> Counts:
        """Draw the statistic of these users' reports from its exact law."""
        metric, n = self.metric, held.sum(axis=1)
        epsilons = metric.randomizer.epsilons
        if isinstance(metric.randomizer, Laplace):
            rates = np.array([float(e) for e in epsilons]) / (2 * metric.randomizer.grid)
            stop = -np.expm1(-rates)  # a discrete Laplace is a difference of two geometrics
            noise = rng.negative_binomial(np.maximum(n, 1), stop) - rng.negative_binomial(
                np.maximum(n, 1), stop
            )
            sums = metric.randomizer.grid * (held[:, 1] - held[:, 0]) + noise * (n > 0)
            return np.stack([n, sums, 0 * n, 0 * n], axis=1).ravel()
        if isinstance(metric.randomizer, Symbols | CountSketch):
            return self._symbols(held, rng)
        if isinstance(metric.randomizer, SupportCounts):
            own = held
            p, q = metric.randomizer.signs.p[:, None], metric.randomizer.signs.q[:, None]
        else:
            own = held[:, 1:]
            q = np.array([flip_threshold(e) / WORD for e in epsilons])[:, None]
            p = 1 - q
        ones = rng.binomial(own, p) + rng.binomial(n[:, None] - own, q)
        return np.concatenate([n[:, None], ones], axis=1).ravel()

    def _symbols(self, held: Counts, rng: np.random.Generator) -> Counts:
        """Draw the counts of reports of each symbol."""
        mechanism = self.metric.randomizer
        assert isinstance(mechanism, Symbols | CountSketch)
        table = np.zeros((len(LEVELS), mechanism.columns), dtype=np.int64)
        table[:, 0] = held.sum(axis=1)
        for level, row in enumerate(held):
            if isinstance(mechanism, CountSketch):
                chances = sketch_chances(self, level)
            else:
                chances = symbol_chances(mechanism, level)
            table[level, 1 : 1 + chances.shape[1]] = rng.multinomial(row, chances).sum(axis=0)
        return table.ravel()

    def truth(self, held: Counts, estimate: Estimate) -> float | Floats:
        """Return what the bounds have to cover."""
        if estimate.target == "population":
            return self.frequencies if isinstance(self.theta, tuple) else self.theta
        realised = held / np.maximum(held.sum(axis=1, keepdims=True), 1)
        shares: Floats = np.clip(
            estimate.weights @ realised, 0, 1
        )  # weights sum to 1 but for 2^-52
        return shares if isinstance(self.theta, tuple) else float(2 * shares[1] - 1)

    def reports(self, held: Counts, rng: np.random.Generator) -> tuple[Any, Any]:
        """Return values and levels of these users, in a random order."""
        level = np.repeat(np.arange(len(LEVELS)), held.sum(axis=1)).astype(np.uint8)
        index = np.concatenate([np.repeat(np.arange(held.shape[1]), row) for row in held])
        order = rng.permutation(level.size)
        values: Any = index if isinstance(self.theta, tuple) else 2.0 * index - 1
        if self.metric.categories == "open":
            values = np.array(self.names)[index]
        return values[order], level[order]


@functools.lru_cache(maxsize=64)
def symbol_chances(mechanism: Symbols, level: int) -> Floats:
    """Return the chance of each symbol for each category, from the definition."""
    e = float(np.exp(float(mechanism.epsilons[level])))
    k = np.arange(mechanism.categories)[:, None]
    if isinstance(mechanism, Grr):
        inside = np.eye(mechanism.categories, dtype=bool)
    elif isinstance(mechanism, ProjectiveGeometryResponse):
        geometry = mechanism.geometries[level]
        inside = np.isin((np.arange(geometry.points) - k) % geometry.points, geometry.members)
    else:
        blocks, size = mechanism.blocks[level], mechanism.block_sizes[level]
        symbol = np.arange(blocks * size)
        positive = hadamard(size)[1 + k[:, 0] // blocks][:, symbol % size] > 0
        inside = (symbol // size == k % blocks) & positive
    odds = np.where(inside, e, 1.0)
    chances: Floats = odds / odds.sum(axis=1, keepdims=True)
    return chances


def hashed(population: Population) -> tuple[Counts, Counts]:
    """Return the bucket and the sign of each name in each row, shape (names, rows)."""
    mechanism = population.metric.randomizer
    assert isinstance(mechanism, CountSketch)
    keys = population.metric.domain.own_units(np.array(population.names))
    bits = mechanism.buckets.bit_length() - 1
    bucket, negative = buckets_and_signs(keys[:, None], mechanism.constants, bits)
    return bucket, 1 - 2 * negative.astype(np.int64)


@functools.lru_cache(maxsize=64)
def sketch_chances(population: Population, level: int) -> Floats:
    """Return the chance of each symbol for each name, from the definition."""
    mechanism = population.metric.randomizer
    assert isinstance(mechanism, CountSketch)
    e, blocks = float(np.exp(LEVELS[level])), mechanism.blocks[level]
    size = mechanism.buckets // blocks
    bucket, sign = hashed(population)
    signs = sign[:, :, None] * hadamard(size)[:, bucket % size].transpose(1, 2, 0)
    shape = (len(bucket), mechanism.rows, blocks, size, 2)
    own = np.zeros(shape, dtype=bool)
    for name, row in np.ndindex(bucket.shape):
        own[name, row, bucket[name, row] // size] = signs[name, row][:, None] == (1, -1)
    chances: Floats = np.where(own, e, 1.0) / (e + 2 * blocks - 1) / (mechanism.rows * size)
    return chances.reshape(len(bucket), -1)


def covers(estimate: Estimate, truth: float | Floats) -> bool:
    """Return whether the bounds cover the truth, in every category."""
    return bool(np.all(estimate.lower <= truth) and np.all(truth <= estimate.upper))
