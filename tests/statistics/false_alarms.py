"""How often Cochran's Q raises an alarm where values do not go with the privacy level.

``python -m tests.statistics.false_alarms`` prints the share of p-values below 0.05, 0.01 and 0.001.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from estimators.bounds.heterogeneity import heterogeneity
from estimators.mechanisms.shared.frequencies import SupportCounts
from tests.support.reports.populations import LEVELS, Population

if TYPE_CHECKING:
    from estimators.estimate import Counts, Floats

LIMITS = (0.05, 0.01, 0.001)
QUICK_RUNS, RUNS_OF_A_CASE = 1_000, 2_000


@dataclasses.dataclass(frozen=True)
class Case:
    """Users whose values do not go with their level.

    Parameters
    ----------
    mechanism : str
    categories : int
        k; 1 for a mean.
    counts : tuple of int
        Reports per level.
    levels : tuple of float
    share : float
        Of the most frequent category; the others fall as 1 / rank. Of a mean: that of +1.
    """

    mechanism: str
    categories: int
    counts: tuple[int, ...]
    levels: tuple[float, ...] = LEVELS
    share: float = 0.3

    def __str__(self) -> str:
        """Return it in a line."""
        levels = " ".join(f"{e:g}" for e in self.levels)
        n = " ".join(map(str, self.counts))
        return f"{self.mechanism}, k = {self.categories}, {self.share:g}, levels {levels}, n {n}"

    def p_values(self, runs: int) -> Floats:
        """Return as many p-values."""
        rng = np.random.default_rng(11)
        frequencies = np.array([1 - self.share, self.share])
        if self.categories > 1:
            rest = 1 / np.arange(1, self.categories)
            frequencies = np.append(self.share, (1 - self.share) * rest / rest.sum())
        theta = 2 * self.share - 1 if self.categories == 1 else tuple(frequencies.tolist())
        population = Population(self.mechanism, theta, self.counts, levels=self.levels)
        mechanism = population.metric.randomizer
        found: Floats = np.empty(runs)
        for run in range(runs):
            if isinstance(mechanism, SupportCounts) and type(mechanism).support is (
                SupportCounts.support
            ):
                found[run] = _of_counts(mechanism, frequencies, np.array(self.counts), rng)
                continue
            statistic = population.statistic(population.held(rng), rng)
            p = population.metric.estimate(statistic, bound="normal").heterogeneity
            found[run] = 1.0 if p is None else p
        return found


def _of_counts(
    mechanism: SupportCounts, frequencies: Floats, counts: Counts, rng: np.random.Generator
) -> float:
    """Return a p-value from counts of support that are drawn independently of each other."""
    p, q = mechanism.signs.p[:, None], mechanism.signs.q[:, None]
    support = rng.binomial(counts[:, None], q + frequencies * (p - q))
    law = mechanism.signs.law(counts, np.full(counts.size, 1 / counts.size))
    found = heterogeneity(law, mechanism.signs.means(counts, support))
    return 1.0 if found is None else found


QUICK = [
    Case("grr", 1_000, (26_500,) * 5),
    # the last level knows rare categories 1e4 times better, between what the others say
    Case("oue", 20, (1_000_000, 300_000, 100_000_000), (0.5, 1.0, 14.0), share=0.99998),
]
CASES = [
    *QUICK,
    *[
        Case(mechanism, k, (n,) * 5)
        for mechanism in ("grr", "oue", "subset_selection", "rappor")
        for k in (16, 1_000)
        for n in (300, 30_000)
    ],
    *[
        Case("grr", 1_000, counts, levels)
        for levels in ((0.5, 4.0), (2.0, 8.0))
        for counts in ((1_000, 100_000), (100_000, 1_000), (26_500, 26_500))
    ],
    *[
        Case(mechanism, 1, counts, share=share)
        for mechanism in ("randomized_response", "laplace", "auto", "repetition")
        for counts in ((30,) * 5, (1_000,) * 5, (3_000, 600, 200, 100, 60))
        for share in (0.5, 0.01)
    ],
    *[
        Case(mechanism, 16, counts, share=share)
        for mechanism in ("hadamard_response", "recursive_hadamard", "auto", "repetition")
        for counts in ((300,) * 5, (5_000,) * 5, (3_000, 600, 200, 100, 60))
        for share in (0.3, 0.9)
    ],
]


def main() -> None:
    """Print the table."""
    print("| population | " + " | ".join(f"p <= {q}" for q in LIMITS) + " |")
    print("|---" * (1 + len(LIMITS)) + "|")
    for case in CASES:
        found = case.p_values(RUNS_OF_A_CASE)
        shares = " | ".join(f"{float((found <= q).mean()):.4f}" for q in LIMITS)
        print(f"| {case} | {shares} |", flush=True)


if __name__ == "__main__":
    main()
