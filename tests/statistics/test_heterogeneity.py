"""The p-value of values that do not go with the level is below q no more often than q.

For two levels of counts by enumeration, exactly. Elsewhere p-values are drawn: with a share q of
them below q exactly, a count is above its limit for one seed in 10^4.
"""

from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, chi2, kstest

from estimators import define
from estimators.estimate import Floats
from tests.support.reports.cases import summed
from tests.support.reports.populations import LEVELS, Population
from tests.support.rows import row

EVEN, UNEVEN = (500, 500, 500, 500, 500), (3000, 600, 200, 100, 60)
FALL = (0.6, 0.3, 0.1, 0.0)
BLOCKS = ("hadamard_response", "recursive_hadamard")
FREQUENCIES = ("rappor", *BLOCKS, "count_sketch")
INDEPENDENT = [
    Population("laplace", 0.3, EVEN),
    Population("laplace", -0.9, UNEVEN),
    *(Population(mechanism, FALL, EVEN) for mechanism in BLOCKS),
    *(Population(mechanism, (1.0, *[0.0] * 15), UNEVEN) for mechanism in BLOCKS),
    Population("count_sketch", FALL, EVEN),
    Population("projective_sketch", FALL, EVEN),
    Population("auto", 0.9, UNEVEN),
    Population("repetition", FALL, UNEVEN),
]


def few(found: Floats, limits: tuple[float, ...] = (0.01, 0.05, 0.2, 0.5)) -> bool:
    """Return whether p-values are below each limit no more often than it says."""
    return all(np.count_nonzero(found <= q) <= binom.isf(1e-4, found.size, q) for q in limits)


@pytest.mark.parametrize(("mechanism", "power"), [("randomized_response", 0.6923), ("oue", 0.0780)])
def test_all_outcomes_of_two_levels_have_valid_p_values(mechanism: str, power: float) -> None:
    """30 and 40 reports: the chance of each p-value or less is at most p, for each common mean.

    The chance that p is below 0.05 where the mean falls from 0.7 to -0.7 (for a frequency, the
    share by 0.7) is as it was to 0.1%: a p-value that is 5% too large is found.
    """
    theta: Any = (0.5, 0.5) if mechanism == "oue" else 0.0
    metric, counts = Population(mechanism, theta, (), levels=(1.0, 4.0)).metric, np.array([30, 40])
    ones, signs = np.indices((31, 41)).reshape(2, -1), vars(metric.randomizer)["signs"]
    p = np.empty(ones.shape[1])
    for index, each in enumerate(ones.T):
        cells = [counts, each]
        if mechanism == "oue":  # another category that nobody's report supports
            cells.append(np.rint(counts * signs.q).astype(np.int64))
        found = metric.estimate(np.column_stack(cells).ravel(), bound="normal").heterogeneity
        assert found is not None
        p[index] = found
    e = np.exp([1.0, 4.0])
    low, high = (1 / (1 + e), 0.5 + 0 * e) if mechanism == "oue" else (1 / (1 + e), e / (1 + e))

    def chances(*shares: float) -> Floats:
        chance = low + (high - low) * shares
        found: Floats = np.prod(binom.pmf(ones.T, counts, chance), axis=1)
        return found

    order = np.argsort(p)
    for share in (0.0, 0.02, 0.5, 1.0):
        reached = np.cumsum(chances(share, share)[order])
        last = np.append(np.diff(p[order]) > 0, True)
        with row(share):
            assert np.all(reached[last] <= p[order][last] + 1e-12)
    assert float(chances(0.85, 0.15) @ (p <= 0.05)) == pytest.approx(power, abs=0.001)


def p_values(population: Population, runs: int = 250) -> Floats:
    rng, found = np.random.default_rng(5), []
    for _ in range(runs):
        statistic = population.statistic(population.held(rng), rng)
        # a fixed beta and bound cost time and do not matter here
        found.append(population.metric.estimate(statistic, bound="normal").heterogeneity)
    return np.array(found, dtype=float)


@pytest.mark.more
def test_independent_levels_give_small_p_values_no_more_often_than_they_say() -> None:
    """250 p-values of each: that 12% are below 0.05 is found half of the time."""
    for population in INDEPENDENT:
        found = p_values(population)
        with row(population):
            assert np.all((found >= 0) & (found <= 1))
            assert few(found)


def test_for_many_reports_the_price_is_one_degree_of_freedom() -> None:
    """Chi-square has five degrees of freedom where the least Q has four.

    So the p-value is uniform once that is undone: Kolmogorov and Smirnov's test of 250, which fails
    for one seed in 10^4.
    """
    found = p_values(Population("randomized_response", 0.9, (200_000,) * 5))
    assert kstest(chi2.sf(chi2.isf(found, 5), 4), "uniform").pvalue > 1e-4
    assert np.all(found >= chi2.sf(chi2.isf(found, 5), 4))


#: A mechanism, its categories and levels, the reports of each, and the share of the commonest.
RARE: list[tuple[str, int, tuple[float, ...], tuple[int, ...], float]] = [
    ("grr", 1_000, LEVELS, (26_500,) * 5, 0.3),
    # the last level knows rare categories 1e4 times better, between what the others say
    ("oue", 20, (0.5, 1.0, 14.0), (1_000_000, 300_000, 100_000_000), 0.99998),
]


@pytest.mark.parametrize(
    "runs", [pytest.param(500, marks=pytest.mark.more), pytest.param(2000, marks=pytest.mark.slow)]
)
def test_many_rare_categories_raise_no_false_alarms(runs: int) -> None:
    """Their frequencies fall as 1 / rank; counts of categories are drawn as if independent."""
    for mechanism, categories, levels, counts, share in RARE:
        rest = 1 / np.arange(1, categories)
        theta = np.array([share, *(1 - share) * rest / rest.sum()])
        metric = Population(mechanism, tuple(theta.tolist()), counts, levels=levels).metric
        signs, n = vars(metric.randomizer)["signs"], np.array(counts)[:, None]
        chance = signs.q[:, None] + theta * (signs.p - signs.q)[:, None]
        rng, found = np.random.default_rng(11), []
        for _ in range(runs):
            statistic = np.concatenate([n, rng.binomial(n, chance)], axis=1).ravel()
            found.append(metric.estimate(statistic, bound="normal").heterogeneity)
        with row(mechanism):
            assert few(np.array(found, dtype=float), (0.05, 0.01, 0.001))


def test_values_that_go_with_the_level_are_found_and_few_reports_cannot_be_compared() -> None:
    """The mean, or the share of one category of 16, falls from 0.6 to 0.2 as epsilon grows."""
    for mechanism in ("randomized_response", "laplace", *FREQUENCIES):
        rng, parts = np.random.default_rng(1), []
        for share in np.linspace(0.6, 0.2, len(LEVELS)):
            rest = (1 - share) / 15
            theta = (share, *[rest] * 15) if mechanism in FREQUENCIES else 2 * share - 1
            parts.append(Population(mechanism, theta, (4000,) * 5))
        held = np.stack([part.held(rng)[i] for i, part in enumerate(parts)])
        found = parts[0].metric.estimate(parts[0].statistic(held, rng), bound="normal")
        with row(mechanism):
            assert found.heterogeneity is not None
            assert found.heterogeneity < 1e-9
        for counts in ((0, 0, 5000, 0, 0), (0, 5000, 3, 0, 0), (0, 0, 0, 0, 0), (1, 1, 1, 1, 1)):
            few_reports = Population(mechanism, parts[0].theta, counts)
            statistic = few_reports.statistic(few_reports.held(rng), rng)
            with row(mechanism, counts):
                assert few_reports.metric.estimate(statistic, bound="normal").heterogeneity is None


def test_one_coordinate_that_goes_with_the_level_is_found_and_none_where_none_does() -> None:
    """Vectors are +- an axis about a centre; 60 p-values of users whose vectors are alike."""
    metric = define(
        name="v", kind="vector_mean", mechanism="hemisphere", dimension=3, radius=1.0, levels=LEVELS
    )

    def p_value(centres: Floats, seed: int, each: int) -> float | None:
        rng = np.random.default_rng(seed)
        level = np.repeat(np.arange(len(LEVELS)), each)
        axes = np.eye(3)[rng.integers(0, 3, level.size)] * rng.choice([-0.5, 0.5], (level.size, 1))
        statistic = summed(metric, centres[level] + axes, level, seed)
        found: float | None = metric.estimate(statistic, bound="normal").heterogeneity
        return found

    same, moving = np.tile([0.4, -0.2, 0.0], (len(LEVELS), 1)), np.zeros((len(LEVELS), 3))
    moving[:, 1] = np.linspace(0.4, -0.4, len(LEVELS))
    assert few(np.array([p_value(same, seed, 300) for seed in range(60)], dtype=float))
    found = p_value(moving, 1, 4000)
    assert found is not None
    assert found < 1e-9
    assert p_value(moving, 1, 3) is None
