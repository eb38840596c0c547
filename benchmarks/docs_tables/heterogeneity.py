"""How often Cochran's Q raises an alarm where values do not go with the privacy level.

``python -m benchmarks.docs_tables.heterogeneity`` prints the share of p-values below 0.05, 0.01 and
0.001.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.docs_tables import print_table
from estimators.estimate import Floats
from estimators.mechanisms import Grr, Oue, Rappor, SubsetSelection
from tests.support.reports.populations import LEVELS, Population

LIMITS = (0.05, 0.01, 0.001)
RUNS = 2_000


class Case(NamedTuple):
    """Users whose values do not go with their level: k categories, or 1 for a mean.

    `share` is that of the most frequent category, and the others fall as 1 / rank; of a mean, that
    of +1.
    """

    mechanism: str
    categories: int
    counts: tuple[int, ...]
    levels: tuple[float, ...] = LEVELS
    share: float = 0.3

    def p_values(self, runs: int) -> Floats:
        """Return as many p-values."""
        rng, p_values = np.random.default_rng(11), np.empty(runs)
        theta: float | tuple[float, ...] = 2 * self.share - 1
        if self.categories > 1:
            odds = 1 / np.arange(1, self.categories)
            theta = (self.share, *((1 - self.share) * odds / odds.sum()).tolist())
        population = Population(self.mechanism, theta, self.counts, levels=self.levels)
        mechanism, n = population.metric.randomizer, np.array(self.counts)[:, None]
        for run in range(runs):
            if isinstance(mechanism, Grr | Oue | SubsetSelection | Rappor):  # as if independent
                p, q = mechanism.signs.p[:, None], mechanism.signs.q[:, None]
                support = rng.binomial(n, q + np.array(theta) * (p - q))
                statistic = np.concatenate([n, support], axis=1).ravel()
            else:
                statistic = population.statistic(population.held(rng), rng)
            value = population.metric.estimate(statistic, bound="normal").heterogeneity
            p_values[run] = 1.0 if value is None else value
        return p_values


RARE = [
    Case("grr", 1_000, (26_500,) * 5),
    # the last level knows rare categories 1e4 times better, between what the others say
    Case("oue", 20, (1_000_000, 300_000, 100_000_000), (0.5, 1.0, 14.0), share=0.99998),
]
CASES = [
    *RARE,
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
        Case(mechanism, k, counts, share=share)
        for k, mechanisms, shares in (
            (1, ("randomized_response", "laplace", "auto", "repetition"), (0.5, 0.01)),
            (16, ("hadamard_response", "recursive_hadamard", "auto", "repetition"), (0.3, 0.9)),
        )
        for mechanism in mechanisms
        for counts in ((300,) * 5, (5_000,) * 5, (3_000, 600, 200, 100, 60))
        for share in shares
    ],
]


def row_of(case: Case) -> list[str]:
    """Return the share of p-values at or below each limit."""
    p_values = case.p_values(RUNS)
    return [str(case), *(f"{float((p_values <= limit).mean()):.4f}" for limit in LIMITS)]


def main() -> None:
    """Print the table."""
    print_table(["population", *(f"p <= {limit}" for limit in LIMITS)], map(row_of, CASES))


if __name__ == "__main__":
    main()
