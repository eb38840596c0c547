"""Whole paths of running totals, drawn from the exact law of their increments.

Many paths at once: reports arrive in the same order of levels on each, so that the law of the sums
is common and every path is one column. That the interval of a column is what a metric shows is
tested beside it.

``python -m benchmarks.docs_tables.paths`` prints the table of docs/bounds.md.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.docs_tables import print_table
from estimators.bounds import FlipNoise, limits
from estimators.bounds.block_differences.limits import difference_limits
from estimators.bounds.signs.noise import Noise
from estimators.estimate import Counts, Floats
from estimators.mechanisms import AutoFrequency, Laplace, Piecewise, Repetition
from estimators.mechanisms.shared.block_differences import BlockDifferences
from estimators.question import Question
from estimators.weights import LevelFacts, level_weights, total_weight
from tests.support.reports.populations import LEVELS, Population, symbol_chances

LAST_REPORT = 100_000
BOUNDS = (("anytime", 0.05), ("anytime", 0.2), ("fixed", 0.05), ("normal", 0.05))
CHECKED_REPORTS = np.unique([math.ceil(1.1**i) for i in range(122)] + [LAST_REPORT])
CHECKED_REPORTS = CHECKED_REPORTS[CHECKED_REPORTS <= LAST_REPORT]


def levels_over_time() -> Counts:
    """Return how many reports of each level have come when we look, shape (looks, levels).

    The mix changes all the time: levels come in turns, each turn as long as all before it together
    divided by three.
    """
    turn = np.floor(np.log(np.arange(LAST_REPORT) + 1.0) / np.log(4 / 3)).astype(int)
    arrived = (turn * 2 % len(LEVELS))[:, None] == np.arange(len(LEVELS))
    counts: Counts = np.cumsum(arrived, axis=0, dtype=np.int64)[CHECKED_REPORTS - 1]
    return counts


@dataclasses.dataclass(frozen=True)
class Paths:
    """Independent running totals of one population.

    Parameters
    ----------
    population : Population
        Its `counts` are not used.
    runs, seed : int
    drift : float
        For means: how far the mean moves to either side of theta in turns of ten looks.
    """

    population: Population
    runs: int
    seed: int = 7
    drift: float = 0.0

    @functools.cached_property
    def frequencies(self) -> Floats:
        return self.population.frequencies

    @property
    def histogram(self) -> bool:
        return isinstance(self.population.theta, tuple)

    def statistics(self) -> Iterator[tuple[Counts, Counts, Counts]]:
        """Yield at every look: counts (levels,), held (levels, runs, values), sums.

        Sums are ones per category for frequencies, (levels, runs, 1) ones or grid sums for a mean,
        reports per symbol for windows; for block differences those of D, then those of abs(D).
        """
        rng = np.random.default_rng(self.seed)
        held = np.zeros((len(LEVELS), self.runs, self.frequencies.size), dtype=np.int64)
        columns = self.frequencies.size if self.histogram else 1
        if isinstance(self.population.metric.randomizer, BlockDifferences):
            columns *= 2
        if isinstance(self.population.metric.randomizer, Piecewise):
            columns = self.population.metric.randomizer.columns - 1
        sums = np.zeros((len(LEVELS), self.runs, columns), dtype=np.int64)
        previous_counts = np.zeros(len(LEVELS), dtype=np.int64)
        for look, counts in enumerate(levels_over_time()):
            for level in np.flatnonzero(counts - previous_counts):
                n = int(counts[level] - previous_counts[level])
                new = rng.multinomial(n, self.mix(look), size=self.runs)
                held[level] += new
                sums[level] += self.reported(new, n, int(level), rng)
            previous_counts = counts
            yield counts, held, sums

    def mix(self, look: int) -> Floats:
        """Return how likely the values are among the reports since the last look."""
        shift = self.drift / 2 * (1 if look // 10 % 2 else -1)
        return self.frequencies + np.array([-shift, shift]) if self.drift else self.frequencies

    def reported(self, held: Counts, n: int, level: int, rng: np.random.Generator) -> Counts:
        """Draw the sums of `n` reports of users who hold these values."""
        mechanism, index, times = made_by(self.population.metric.randomizer, level)
        if isinstance(mechanism, Laplace):
            stop = -math.expm1(-float(mechanism.epsilons[index]) / (2 * mechanism.grid))
            up, down = rng.negative_binomial(n, stop, size=(2, self.runs, 1))
            grid: Counts = mechanism.grid * (held[:, 1:] - held[:, :1]) + up - down
            return grid
        if isinstance(mechanism, BlockDifferences):
            return block_differences(mechanism, index, held, rng)
        if isinstance(mechanism, Piecewise):
            symbols: Counts = rng.multinomial(held, symbol_chances(mechanism, index)).sum(axis=1)
            return symbols
        supporters, reports = times * (held if self.histogram else held[:, 1:]), times * n
        p, q = mechanism.signs.p[index], mechanism.signs.q[index]
        ones: Counts = rng.binomial(supporters, p) + rng.binomial(reports - supporters, q)
        return ones

    def missed(self, question: Question) -> Counts:
        """Return at how many looks each path's truth was outside, shape (runs,)."""
        missed = np.zeros(self.runs, dtype=np.int64)
        total_held = np.zeros((self.runs, self.frequencies.size))
        arrived, drifting = 0, np.zeros(self.frequencies.size)
        for look, (counts, held, sums) in enumerate(self.statistics()):
            drifting += (int(counts.sum()) - arrived) * self.mix(look)
            arrived = int(counts.sum())
            total_held = held.astype(np.float64)
            lower, upper, shares = self.bounds(counts, sums, question)
            if question.target == "population":
                truth = np.broadcast_to(drifting / arrived, total_held.shape[1:])
            else:
                truth = np.tensordot(shares / np.maximum(counts, 1), total_held, axes=1)
            if not self.histogram:
                truth = truth[:, 1:]
            truth = np.clip(2 * truth - 1, -1, 1)
            missed += np.any((truth < lower) | (truth > upper), axis=1)
        return missed

    def bounds(
        self, counts: Counts, sums: Counts, question: Question
    ) -> tuple[Floats, Floats, Floats]:
        """Return lower and upper limits in [-1, 1], shape (runs, columns), and the shares."""
        mechanism: Any = self.population.metric.randomizer
        facts: LevelFacts = mechanism.facts
        shares = level_weights(question.weights, counts, facts)
        total = total_weight(question.weights, counts, facts)
        used, columns = counts > 0, self.frequencies.size if self.histogram else 1
        flat = sums.reshape(len(LEVELS), -1)
        log_p = math.log(question.beta / (2 * columns))
        noise: Noise | None
        signs: Floats | None = None
        if isinstance(mechanism, BlockDifferences):
            parts = [sums[used, :, :columns], sums[used, :, columns:]]
            nets, sizes = (part.reshape(used.sum(), -1).astype(float) for part in parts)
            law = mechanism.law(counts, shares, question)
            unit_limits = difference_limits(law, nets, sizes, question, log_p, total)
            lower, upper = (2 * limit.reshape(self.runs, columns) - 1 for limit in unit_limits)
            return lower, upper, shares
        if self.histogram:
            law = mechanism.signs.law(counts, shares, question)
            mean, flip = mechanism.signs.mean(counts, shares, flat), mechanism.signs.q[used]
            noise = FlipNoise(law.counts, law.coefficient, flip)
            noise = noise if mechanism.signs.offset is None else None
            signs = 2.0 * flat[used] - law.counts[:, None]
        else:
            law = mechanism.law(counts, shares, question)
            noise = mechanism.noise(law, counts)
            mean = np.zeros(self.runs)
            for level in np.flatnonzero(used).tolist():
                mean += shares[level] * level_mean(mechanism, level, counts[level], flat[level])
        if isinstance(mechanism, Piecewise):  # bets need the counts of symbols, run by run
            tables = np.concatenate([np.tile(counts[:, None, None], (1, self.runs, 1)), sums], 2)
            run_limits = [
                mechanism.mean_limits(tables[:, run], law, mean[run], question, log_p, total)
                for run in range(self.runs)
            ]
            low, high = np.array(run_limits).T[:, :, None]
            return low, high, shares
        lower, upper = limits(law, mean, question, log_p, total, noise, signs)
        return lower.reshape(self.runs, columns), upper.reshape(self.runs, columns), shares


def block_differences(
    mechanism: BlockDifferences, level: int, held: Counts, rng: np.random.Generator
) -> Counts:
    """Draw the sums of D and of abs(D) for each category, of users who hold these values."""
    false_chance, contrast = mechanism.p_else[level], mechanism.contrast[level]
    block = np.arange(held.shape[1]) % mechanism.blocks[level]
    mates = held @ (block[:, None] == block) - held
    strangers = held.sum(axis=1, keepdims=True) - held - mates
    plus, minus = np.zeros((2, *held.shape), dtype=np.int64)
    for users, gain, loss in (
        (held, contrast, 0.0),
        (mates, contrast / 2, contrast / 2),
        (strangers, 0.0, 0.0),
    ):
        signed = rng.binomial(users, min(1.0, 2 * false_chance + gain + loss))
        more = rng.binomial(signed, (false_chance + gain) / (2 * false_chance + gain + loss))
        plus, minus = plus + more, minus + signed - more
    return np.concatenate([plus - minus, plus + minus], axis=1)


def made_by(mechanism: Any, level: int) -> tuple[Any, int, int]:
    """Return what makes the reports of a level, which level of that it is, and how many a user."""
    if isinstance(mechanism, AutoFrequency):
        return mechanism.children[level], 0, 1
    if isinstance(mechanism, Repetition):
        return mechanism.repeated, level, mechanism.repeats[level]
    return mechanism, level, 1


def level_mean(mechanism: Any, level: int, n: int, sums: Counts) -> Floats:
    """Return the unbiased mean of `n` users for each sum of their reports."""
    inner, index, times = made_by(mechanism, level)
    if isinstance(inner, Laplace):
        return np.asarray(sums / (n * inner.grid))
    if isinstance(inner, Piecewise):
        shape = inner.shapes[index]
        tally = sums.reshape(-1, inner.columns - 1)[:, : shape.symbols]
        return np.asarray(tally @ np.array(shape.z) / (n * float(shape.scale)))
    return np.asarray((2 * sums - n * times) / (n * times * inner.signs.contrast[index]))


HARD_POPULATIONS = [
    Population("randomized_response", 0.0, ()),
    Population("randomized_response", 0.98, ()),
    Population("randomized_response", -1.0, ()),
    Population("laplace", 0.0, ()),
    Population("laplace", -0.98, ()),
    Population("rappor", (1.0, 0.0, 0.0, 0.0), ()),
    Population("rappor", (0.97, 0.03, 0.0, 0.0), ()),
    Population("rappor", (0.5, 0.5), ()),
    Population("auto", (0.97, 0.03, 0.0, 0.0), ()),
    Population("repetition", -0.98, ()),
    Population("repetition", (0.97, 0.03, 0.0, 0.0), ()),
    *[
        Population(mechanism, frequencies, ())
        for mechanism in (
            "grr",
            "oue",
            "subset_selection",
            "projection",
            "hadamard_response",
            "recursive_hadamard",
        )
        for frequencies in ((1.0, 0.0, 0.0, 0.0), (0.97, 0.03, 0.0, 0.0))
    ],
    # with few categories it is grr
    Population("projective_geometry_response", (0.97, 0.03, *[0.0] * 14), ()),
]


def row_of(population: Population, runs: int = 2_000) -> list[str]:
    """Return the shares of whole paths that each bound covers throughout."""
    paths = Paths(population, runs)
    missed = [np.count_nonzero(paths.missed(Question(bound=b, beta=x))) for b, x in BOUNDS]
    head = f"{population.mechanism}, {population.theta}"
    return [head, *(f"{100 * (1 - count / runs):.1f}%" for count in missed)]


def main() -> None:
    """Print the table of docs/bounds.md: the share of whole paths that were covered throughout."""
    print_table(
        ["data", *(f"`{b}`, beta = {beta}" for b, beta in BOUNDS)], map(row_of, HARD_POPULATIONS)
    )


if __name__ == "__main__":
    main()
