"""Populations whose statistic is drawn from the exact law of the reports, and their true values.

Drawing the sums instead of the reports makes thousands of runs cheap; `test_laws.py` shows that the
real randomizers have this law. (For subsets, whose categories are not independent, it is the law of
each category's count. Where points of a geometry are drawn for hashes, reports are real ones.) For
an open vocabulary, the law depends on the seed of the hashes: `reseeded` sets another seed for each
run.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import hadamard
from scipy.stats import binom

from estimators import LocalMetric, define
from estimators.exact.hashing import buckets_and_signs
from estimators.exact.thresholds import WORD, flip_threshold
from estimators.mechanisms import (
    AutoFrequency,
    CountSketch,
    Grr,
    HadamardResponse,
    Laplace,
    Mechanism,
    Piecewise,
    PrefixTree,
    Projection,
    ProjectiveGeometryResponse,
    ProjectiveSketch,
    RecursiveHadamard,
    Repetition,
    mechanism_class,
)
from estimators.mechanisms.shared.frequencies import SupportCounts
from tests.support.reports.cases import summed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from estimators.estimate import Counts, Estimate, Floats

LEVELS = (0.25, 0.5, 1.0, 2.0, 4.0)
#: Options of a count sketch so small that collisions are frequent.
SKETCH = {"rows": 16, "buckets": 8}
#: Options of a projective sketch with frequent collisions.
POINTS = {"rows": 16, "points": 64}
#: Options of a prefix tree with one depth and few rows.
TREE = {"last": 16, "rows": 8}

Symbols = Grr | HadamardResponse | RecursiveHadamard | ProjectiveGeometryResponse | Projection


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
    options : tuple of pairs
        The mechanism's options.
    levels : tuple of float
    """

    mechanism: str
    theta: float | tuple[float, ...]
    counts: tuple[int, ...]
    options: tuple[tuple[str, int | str], ...] = ()
    levels: tuple[float, ...] = LEVELS

    @functools.cached_property
    def metric(self) -> LocalMetric:
        domain: dict[str, Any] = {"kind": "mean", "range": (-1, 1)}
        options = dict(self.options)
        if isinstance(self.theta, tuple):
            domain = {"kind": "frequency", "categories": len(self.theta)}
            if not mechanism_class(self.mechanism, "frequency").closed_vocabulary:
                domain |= {"categories": "open", "watch": self.names}
                if mechanism_class(self.mechanism, "frequency").discovers:
                    domain |= {"discover": True, "preset": "bytes"}
                    options = {**TREE, **options}
                else:
                    small = SKETCH if self.mechanism == "count_sketch" else POINTS
                    options = {**small, **options}
        domain |= {"levels": self.levels, "options": options}
        metric: LocalMetric = define(name="m", mechanism=self.mechanism, **domain)
        return metric

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the values of an open vocabulary."""
        return tuple(f"name {index}" for index in range(self.frequencies.size))

    def reseeded(self, seed: int) -> Population:
        """Return the population with the hashes of this seed, if its mechanism uses hashes."""
        if self.metric.mechanism_class.closed_vocabulary:
            return self
        return dataclasses.replace(self, options=(("seed", seed),))

    @property
    def frequencies(self) -> Floats:
        """The frequencies of the categories, or of -1 and +1 for a mean."""
        if isinstance(self.theta, tuple):
            return np.array(self.theta)
        return np.array([(1 - self.theta) / 2, (1 + self.theta) / 2])

    def held(self, rng: np.random.Generator) -> Counts:
        """Draw how many users of each level hold each value, shape (levels, values)."""
        return np.array([rng.multinomial(n, self.frequencies) for n in self.counts])

    def statistic(self, held: Counts, rng: np.random.Generator) -> Counts:
        """Draw the statistic of these users' reports from its exact law, or by drawing reports."""
        if isinstance(self.metric.randomizer, CountSketch):
            sketch = functools.partial(sketch_chances, self)
            return _symbols(self.metric.randomizer, sketch, held, rng).ravel()
        if isinstance(self.metric.randomizer, PrefixTree | ProjectiveSketch):
            values = np.repeat(np.tile(self.names, len(held)), held.ravel())
            level = np.repeat(np.arange(len(held)), held.sum(axis=1))
            return summed(self.metric, values, level, int(rng.integers(2**31)))
        return _table(self.metric.randomizer, held, rng).ravel()

    def truth(self, held: Counts, estimate: Estimate) -> float | Floats:
        """Return the true values, which the bounds have to cover."""
        if estimate.target == "population":
            return self.frequencies if isinstance(self.theta, tuple) else self.theta
        realised = held / np.maximum(held.sum(axis=1, keepdims=True), 1)
        shares: Floats = np.clip(
            estimate.weights @ realised, 0, 1
        )  # weights sum to 1 but for 2^-52
        return shares if isinstance(self.theta, tuple) else float(2 * shares[1] - 1)


def _table(mechanism: Mechanism, held: Counts, rng: np.random.Generator) -> Counts:
    """Draw the table of a mechanism, given how many users of each level hold each value."""
    n, epsilons = held.sum(axis=1), mechanism.epsilons
    if isinstance(mechanism, AutoFrequency):
        table = np.zeros((len(n), mechanism.columns), dtype=np.int64)
        for level, child in enumerate(mechanism.children):
            table[level, : child.columns] = _table(child, held[level : level + 1], rng)[0]
        return table
    if isinstance(mechanism, Repetition):  # repeated reports are as those of more users
        table = _table(mechanism.repeated, held * np.array(mechanism.repeats)[:, None], rng)
        table[:, 0] = n
        return table
    if isinstance(mechanism, Laplace):
        rates = np.array([float(e) for e in epsilons]) / (2 * mechanism.grid)
        stop = -np.expm1(-rates)  # a discrete Laplace is a difference of two geometrics
        noise = rng.negative_binomial(np.maximum(n, 1), stop) - rng.negative_binomial(
            np.maximum(n, 1), stop
        )
        sums = mechanism.grid * (held[:, 1] - held[:, 0]) + noise * (n > 0)
        return np.stack([n, sums, 0 * n, 0 * n], axis=1)
    if isinstance(mechanism, Symbols | Piecewise):
        return _symbols(mechanism, functools.partial(symbol_chances, mechanism), held, rng)
    if isinstance(mechanism, SupportCounts):
        own = held
        p, q = mechanism.signs.p[:, None], mechanism.signs.q[:, None]
    else:
        own = held[:, 1:]
        q = np.array([flip_threshold(e) / WORD for e in epsilons])[:, None]
        p = 1 - q
    ones = rng.binomial(own, p) + rng.binomial(n[:, None] - own, q)
    return np.concatenate([n[:, None], ones], axis=1)


def _symbols(
    mechanism: Mechanism, chances: Callable[[int], Floats], held: Counts, rng: np.random.Generator
) -> Counts:
    """Draw the counts of reports of each symbol, by their chances at a level for each value."""
    table = np.zeros((len(held), mechanism.columns), dtype=np.int64)
    table[:, 0] = held.sum(axis=1)
    for level, row in enumerate(held):
        tally = rng.multinomial(row, chances(level)).sum(axis=0)
        cells = tally[1::2] - tally[::2] if isinstance(mechanism, Projection) else tally
        table[level, 1 : 1 + cells.size] = cells
    return table


@functools.lru_cache(maxsize=64)
def symbol_chances(mechanism: Symbols | Piecewise, level: int) -> Floats:
    """Return the chance of each symbol for each category, or for -1 and 1, from the definition."""
    e = float(np.exp(float(mechanism.epsilons[level])))
    if isinstance(mechanism, Piecewise):
        symbol, shape = np.arange(mechanism.columns - 1), mechanism.shapes[level]
        ends = np.array([[0], [len(shape.z) - shape.window]])
        odds = np.where((symbol >= ends) & (symbol < ends + shape.window), e, 1.0)
        odds[:, len(shape.z) :] = 0.0
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))
    k = np.arange(mechanism.categories)[:, None]
    if isinstance(mechanism, Projection):
        if mechanism.random:
            columns = mechanism.positive(np.arange(mechanism.rows)[:, None], k[:, 0])
        else:
            columns = hadamard(mechanism.rows)[:, 1 : 1 + k.size] > 0
        inside = np.stack([~columns, columns], axis=1).reshape(-1, k.size).T
    elif isinstance(mechanism, Grr):
        inside = np.eye(mechanism.categories, dtype=bool)
    elif isinstance(mechanism, ProjectiveGeometryResponse):
        geometry = mechanism.geometries[level]
        inside = np.isin((np.arange(geometry.points) - k) % geometry.points, geometry.members)
    else:
        blocks, symbol = mechanism.blocks[level], np.arange(mechanism.symbols[level])
        assert isinstance(mechanism, HadamardResponse | RecursiveHadamard)
        if isinstance(mechanism, RecursiveHadamard):
            row, rest = np.divmod(symbol, 2 * blocks)
            own = rest == 2 * (k % blocks) + (hadamard(mechanism.rows[level])[row, k // blocks] < 0)
            public = np.where(own, e, 1.0) / mechanism.rows[level]
            return np.asarray(public / (e + 2 * blocks - 1))
        size = mechanism.block_sizes[level]
        positive = hadamard(size)[1 + k[:, 0] // blocks][:, symbol % size] > 0
        inside = (symbol // size == k % blocks) & positive
    odds = np.where(inside, e, 1.0)
    chances: Floats = odds / odds.sum(axis=1, keepdims=True)
    return chances


def hashed(population: Population) -> tuple[Counts, Counts]:
    """Return the bucket and the sign of each name in each row, shape (names, rows)."""
    mechanism = population.metric.randomizer
    assert isinstance(mechanism, CountSketch)
    keys = population.metric.domain.to_unit(np.array(population.names))
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
    name, row = np.indices(bucket.shape)
    own[name, row, bucket // size] = signs[..., None] == (1, -1)
    chances: Floats = np.where(own, e, 1.0) / (e + 2 * blocks - 1) / (mechanism.rows * size)
    return chances.reshape(len(bucket), -1)


def covers(estimate: Estimate, truth: float | Floats) -> bool:
    """Return whether the bounds cover the truth, in every category."""
    return bool(np.all(estimate.lower <= truth) and np.all(truth <= estimate.upper))


def few_misses(
    misses: list[int], runs: int, questions: Sequence[dict[str, Any]], statements: int = 1
) -> bool:
    """Return whether the misses are at most the number that one of 10^4 seeds exceeds at beta.

    Each of an answer's statements may be wrong with probability beta.
    """
    return all(
        count <= binom.isf(1e-4, runs, min(1, statements * question["beta"]))
        for count, question in zip(misses, questions, strict=True)
    )
