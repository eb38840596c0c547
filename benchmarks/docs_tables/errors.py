"""Measure the errors of the frequency mechanisms against their theoretical standard deviations.

``python -m benchmarks.docs_tables.errors`` prints the table of docs/mechanisms.md: over a grid of
levels, numbers of categories and data, the largest deviation of the root mean square error (each
category's in units of its standard deviation, pooled) and of the mean largest error (l_inf) from
what theory says. Users are drawn anew for each run; estimates are per level, weighted by `optimal`
weights.

The expected largest error is that of a normal law with the theoretical covariance. Given the data,
categories are taken to be uncorrelated but where :func:`covariance` says otherwise. With 10^7
reports, the rarest report of the grid is expected 2,500 times.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import types
from typing import Any, NamedTuple

import numpy as np

from benchmarks.docs_tables import print_table
from estimators.estimate import Counts, Floats
from estimators.limits import MOST_LEVELS
from estimators.mechanisms import (
    Grr,
    HadamardResponse,
    ProjectiveGeometryResponse,
    SubsetSelection,
    mechanism_class,
    mechanisms_for,
)
from estimators.mechanisms.shared.block_differences import BlockDifferences
from estimators.mechanisms.shared.frequencies import SupportCounts
from estimators.weights import level_weights
from tests.support.reports.cases import COMPOSITE, exact
from tests.support.reports.populations import Population, Symbols, symbol_cells, symbol_chances

REPORTS = 10**7
MIXED = (0.25, 0.5, 1.0, 2.0, 4.0)
LEVELS: tuple[tuple[float, ...], ...] = ((0.1,), (0.5,), (1.0,), (2.0,), (4.0,), (8.0,), MIXED)
SIZES = (2, 17, 100, 1000)
DATA = ("uniform", "Zipf 1.1", "point mass")
NAMES = [
    name
    for name, mechanism in mechanisms_for("frequency").items()
    if name not in COMPOSITE and issubclass(mechanism, SupportCounts | BlockDifferences)
]
"""Those that randomize by themselves: `auto` and `repetition` hand their reports to these."""

LEAST_RUNS = 400
PRECISION = 0.01
"""Standard error of the mean largest error that is aimed at: a tolerance of 5% is five of them."""
MAX_DRAWN_SUBSETS = 1000
"""Subsets of a size, up to which whole ones are drawn; the categories of more are uncorrelated."""
CELLS = 2**21  # of a table of runs at a time


def frequencies(data: str, categories: int) -> Floats:
    """Return the frequencies of the categories."""
    rank = np.arange(1.0, categories + 1)
    odds = {"uniform": rank**0, "Zipf 1.1": rank**-1.1, "point mass": (rank == 1).astype(float)}
    result: Floats = odds[data] / odds[data].sum()
    return result


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runs(Population):
    """Independent runs at one level: to the mechanism, each is a level of its own."""

    epsilon: float
    runs: int

    @functools.cached_property
    def metric(self) -> Any:
        constructor: Any = mechanism_class(self.mechanism, "frequency")
        epsilons = [exact(self.epsilon)] * self.runs
        return types.SimpleNamespace(
            randomizer=constructor(epsilons, categories=len(self.frequencies))
        )

    def _symbols(self, rng: np.random.Generator) -> Counts:
        """Draw symbols from their mixture over the categories: the law of users drawn anew."""
        mechanism = self.metric.randomizer
        chances = self.frequencies @ symbol_chances.__wrapped__(mechanism, 0)
        tally = rng.multinomial(self.counts[0], chances / chances.sum(), size=self.runs)
        cells = symbol_cells(mechanism, tally)
        unused = np.zeros((self.runs, mechanism.columns - 1 - cells.shape[1]), dtype=np.int64)
        return np.concatenate([tally.sum(axis=1)[:, None], cells, unused], axis=1).ravel()

    @property
    def one_of_few(self) -> bool:
        """Whether a report is one of a few subsets, which are drawn whole."""
        mechanism = self.metric.randomizer
        if not isinstance(mechanism, SubsetSelection):
            return False
        return math.comb(mechanism.categories, mechanism.sizes[0]) <= MAX_DRAWN_SUBSETS

    def _subsets(self, rng: np.random.Generator) -> Counts:
        """Draw whole subsets."""
        mechanism, k = self.metric.randomizer, self.frequencies.size
        subsets = np.array(list(itertools.combinations(range(k), mechanism.sizes[0])))
        members = np.zeros((len(subsets), k))
        np.put_along_axis(members, subsets, 1, axis=1)
        share, true_share = members @ self.frequencies, mechanism.signs.p[0]
        with_own, without = members[:, 0].sum(), (1 - members[:, 0]).sum()
        chances = true_share * share / with_own + (1 - true_share) * (1 - share) / without
        tally = rng.multinomial(self.counts[0], chances / chances.sum(), size=self.runs)
        ones = (tally @ members).astype(np.int64)
        return np.concatenate([tally.sum(axis=1)[:, None], ones], axis=1).ravel()

    def estimates(self, rng: np.random.Generator) -> Floats:
        """Draw the runs and return their estimates, shape (runs, k)."""
        mechanism, n = self.metric.randomizer, self.counts[0]
        if self.one_of_few:
            statistic = self._subsets(rng)
        elif isinstance(mechanism, Symbols):
            statistic = self._symbols(rng)
        else:
            held = rng.multinomial(n, self.frequencies, size=self.runs)
            statistic = self.statistic(held, rng)
        table = statistic.reshape(self.runs, -1)
        if isinstance(mechanism, BlockDifferences):
            signs, _ = mechanism.differences(table, np.arange(self.runs))
            frequencies: Floats = signs / (n * mechanism.contrast[0])
            return frequencies
        assert isinstance(mechanism, SupportCounts)
        return (1 + mechanism.signs.means(table[:, 0], mechanism.support(table))) / 2


def covariance(runs: Runs) -> Floats:
    """Return the covariance of the estimate from one report of a user drawn anew, shape (k, k).

    Where the noise of categories is uncorrelated given the data, -f_u f_v. `grr` names one category
    only; so does a subset of few. A symbol of `hadamard_response` in the block of u and v tells
    whether their rows agree: if category w has the product of the two rows, f_w / c more.
    """
    mechanism, f = runs.metric.randomizer, runs.frequencies
    k, categories = f.size, np.arange(f.size)
    result = -np.outer(f, f)
    if isinstance(mechanism, Grr) or runs.one_of_few:
        size = 1 if isinstance(mechanism, Grr) else mechanism.sizes[0]
        p, q = mechanism.signs.p[0], mechanism.signs.q[0]
        true_pair = p * (size - 1) / (k - 1)
        false_pair = (p * (size - 2) + (1 - p) * size) * (size - 1) / (k - 1) / max(k - 2, 1)
        held, chance = f[:, None] + f, q + f * (p - q)
        pair_chance = held * true_pair + (1 - held) * false_pair
        result = (pair_chance - np.outer(chance, chance)) / (p - q) ** 2
    elif isinstance(mechanism, ProjectiveGeometryResponse):
        chances = symbol_chances.__wrapped__(mechanism, 0)
        members = (chances > chances.min(axis=1, keepdims=True)).astype(np.float32)
        pair_chance = (members * (f @ chances).astype(np.float32)) @ members.T
        chance = np.diag(pair_chance)
        contrast = mechanism.signs.p[0] - mechanism.signs.q[0]
        result = (pair_chance - np.outer(chance, chance)).astype(np.float64) / contrast**2
    elif isinstance(mechanism, HadamardResponse):
        blocks = mechanism.blocks[0]
        row, block = 1 + categories // blocks, categories % blocks
        product = ((row[:, None] ^ row) - 1) * blocks + block
        together = (block[:, None] == block) & (product >= 0) & (product < k)
        result += np.where(together, f[np.clip(product, 0, k - 1)], 0) / mechanism.contrast[0]
    result[categories, categories] = variances(mechanism, f)
    return result


def variances(mechanism: SupportCounts | BlockDifferences, f: Floats) -> Floats:
    """Return the variance of one report's estimate of each category, at level 0.

    chance (1 - chance) / (p - q)^2 for the chance of support of each category; for block
    differences (A - (c f)^2) / c^2, A the chance of the category's block.
    """
    if isinstance(mechanism, BlockDifferences):
        contrast, blocks = mechanism.contrast[0], mechanism.blocks[0]
        share = np.array([f[x % blocks :: blocks].sum() for x in range(f.size)])
        chance = 2 * mechanism.p_else[0] + share * contrast
        return np.asarray((chance - (contrast * f) ** 2) / contrast**2)
    p, q = mechanism.signs.p[0], mechanism.signs.q[0]
    chance = q + f * (p - q)
    return np.asarray(chance * (1 - chance) / (p - q) ** 2)


def largest_error(spread: Floats, rng: np.random.Generator) -> tuple[float, float]:
    """Return the mean of max abs(X) for X normal with this covariance, and its relative deviation.

    By simulation to a standard error of 0.25%, with abs(X) of the largest variance, whose mean is
    known, as the control variate.
    """
    top = int(np.argmax(np.diag(spread)))
    # a thousandth of the standard deviation more: frequencies that sum to 1 have no inverse
    root = np.linalg.cholesky(spread + np.diag(1e-6 * np.diag(spread)))
    mean_of_top = np.sqrt(spread[top, top] * 2 / np.pi)
    largest, excess = np.zeros(0), np.zeros(0)
    while True:
        drawn = np.abs(rng.standard_normal((1000, len(spread))) @ root.T)
        largest = np.append(largest, drawn.max(axis=1))
        excess = np.append(excess, drawn.max(axis=1) - drawn[:, top])
        mean = float(mean_of_top + excess.mean())
        if excess.std() <= 0.0025 * mean * np.sqrt(excess.size):
            return mean, float(largest.std()) / mean


class Deviations(NamedTuple):
    """What was measured over what theory says."""

    root_mean_square: float
    largest: float
    runs: int


def measure(name: str, levels: tuple[float, ...], categories: int, data: str) -> Deviations:
    """Return the ratio of the errors measured to the theoretical ones, for one cell of the grid."""
    rng = np.random.default_rng([categories, round(10 * levels[0]), DATA.index(data)])
    f, n = frequencies(data, categories), REPORTS // len(levels)
    mixed = Population(name, tuple(f), (), levels=levels).metric.randomizer
    assert isinstance(mixed, SupportCounts | BlockDifferences)
    shares = level_weights("optimal", np.full(len(levels), n), mixed.facts)

    def runs_of(epsilon: float, runs: int) -> Runs:
        return Runs(name, tuple(f), (n,), epsilon=epsilon, runs=runs)

    single = [covariance(runs_of(epsilon, 1)) / n for epsilon in levels]
    spread = sum(s**2 * c for s, c in zip(shares.tolist(), single, strict=True))
    expected, relative = largest_error(np.asarray(spread), rng)
    runs = max(
        LEAST_RUNS, round((relative / PRECISION) ** 2), round(0.5 / PRECISION**2 / categories)
    )
    squares, largest, left = 0.0, 0.0, runs
    while left:
        batch = min(left, MOST_LEVELS, max(1, CELLS // mixed.columns))
        left -= batch
        error = sum(
            share * runs_of(epsilon, batch).estimates(rng)
            for share, epsilon in zip(shares.tolist(), levels, strict=True)
        )
        error = np.abs(error - f)
        squares += float((error**2 / np.diag(spread)).sum())
        largest += float(error.max(axis=1).sum())
    return Deviations(np.sqrt(squares / (runs * categories)), largest / runs / expected, runs)


def row_of(name: str) -> list[str]:
    """Return the largest deviations of a mechanism over the grid."""
    cells = [measure(name, x, k, data) for x in LEVELS for k in SIZES for data in DATA]
    deviations = (
        max((ratio - 1 for ratio in ratios), key=abs)
        for ratios in ([c.root_mean_square for c in cells], [c.largest for c in cells])
    )
    runs = [cell.runs for cell in cells]
    return [f"`{name}`", *(f"{x:+.1%}" for x in deviations), f"{min(runs):,} to {max(runs):,}"]


def main() -> None:
    """Print the table of docs/mechanisms.md."""
    print_table(["mechanism", "root mean square", "l_inf", "runs a cell"], map(row_of, NAMES))


if __name__ == "__main__":
    main()
