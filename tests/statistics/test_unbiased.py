"""Estimates are unbiased, and their variance is the one that is claimed: exactly, where possible.

Where a report is one of a few, its value and its chances give the mean and the variance without a
draw: a factor that is off by 10^-8 is found. Where hashes or repeated reports stand between, they
are drawn: a bias of 4 standard errors, which one seed in 8,000 has by chance.
"""

import dataclasses
import itertools

import numpy as np
import pytest

from estimators.estimate import Floats
from estimators.mechanisms import mechanisms_for
from estimators.question import Question
from tests.statistics.report_laws import FINITE, MEANS, chances_of, metric_of, reports_of
from tests.support.reports.populations import LEVELS, Population
from tests.support.rows import row

NORMAL = Question(bound="normal")


def values_of(name: str, level: int, reports: Floats) -> tuple[Floats, float]:
    """Return the estimate from each report alone, shape (reports, values), and n over effective."""
    metric, found = metric_of(name), []
    mechanism = metric.randomizer
    for report in reports:
        table = metric.table(metric.zero())
        mechanism.accumulate(table, np.array([level]), np.array([report], dtype=mechanism.dtype))
        estimate = mechanism.estimate(table, NORMAL)
        found.append(np.atleast_1d(estimate.value))
    return np.array(found), 1 / estimate.effective_reports


def worst_variance(squares: Floats) -> float:
    """Return the largest variance of a category over all frequencies; squares of shape (k, k).

    If f of the users hold it, and the others what makes it noisiest: f s + (1 - f) m - f^2.
    """
    worst = 0.0
    for category, each in enumerate(squares.T):
        own, most = each[category], np.delete(each, category).max()
        f = np.clip((own - most) / 2, 0, 1)
        worst = max(worst, f * own + (1 - f) * most - f**2)
    return worst


def test_the_mean_and_the_variance_of_a_report_are_exactly_those_claimed() -> None:
    for name, level in itertools.product(FINITE, range(len(LEVELS))):
        facts = metric_of(name).randomizer.facts
        chances = chances_of(name, level)
        values, variance = values_of(name, level, reports_of(name, chances))
        mean, squares = chances @ values, chances @ values**2
        with row(name, LEVELS[level]):
            if name in MEANS:
                assert mean == pytest.approx(np.array([[-1.0], [1.0]]), abs=1e-9)
                assert variance == pytest.approx(squares.mean())  # of signs with mean 0
                assert facts.variances[level] == pytest.approx(squares.mean())
            else:
                k = len(chances)
                assert mean == pytest.approx(np.eye(k), abs=1e-9)
                assert variance / 4 == pytest.approx(worst_variance(squares))
                at_one_over_k = squares.mean() - 1 / k**2
                assert facts.variances[level] == pytest.approx(at_one_over_k)


def test_a_report_of_laplace_is_unbiased_with_the_variance_of_its_noise_and_of_signs() -> None:
    metric = Population("laplace", 0.0, ()).metric
    for level, epsilon in enumerate(LEVELS):
        table = metric.table(metric.zero())
        table[level, :2] = 1, 512
        estimate = metric.randomizer.estimate(table, NORMAL)
        q = np.exp(-epsilon / 2048)
        with row(epsilon):
            assert estimate.value == pytest.approx(0.5)
            variance = 1 + 2 * q / (1 - q) ** 2 / 1024**2
            assert 1 / estimate.effective_reports == pytest.approx(variance)
            assert metric.randomizer.facts.variances[level] == pytest.approx(variance)


#: The data at which category 0's estimate has its largest variance, where not at 1/2.
HARDEST = {
    "count_sketch": ((0.0, 1.0, 0.0, 0.0, 0.0), (0, 0, 500, 0, 0)),
    "prefix_tree": ((0.85, 0.15, 0.0, 0.0, 0.0), (100,) * 5),
    "projective_sketch": ((0.95, 0.05, 0.0, 0.0, 0.0), (100,) * 5),
    "projection": ((0.0, 1.0, 0.0, 0.0, 0.0), (100,) * 5),
}
DRAWN = [
    *(Population(name, *HARDEST[name]) for name in HARDEST if name != "projection"),
    Population("projection", *HARDEST["projection"], (("rows", 60), ("seed", 0))),
    Population("auto", 0.0, (100,) * 5),
    Population("repetition", 0.0, (100,) * 5),
    *(Population(name, (0.5, 0.5, 0.0), (100,) * 5) for name in ("auto", "repetition")),
]


@pytest.mark.more
@pytest.mark.parametrize("population", DRAWN, ids=lambda p: f"{p.mechanism}_{p.metric.kind}")
def test_drawn_estimates_are_unbiased_with_the_variance_claimed(population: Population) -> None:
    """400 runs: a mean within 4 standard errors, a variance within 5 (35%).

    Means are over hashes of each run, variances with the same hashes in all: collisions are no
    noise. Of a projection both are over random columns.
    """
    assert {p.mechanism for p in DRAWN} | set(FINITE) | {"laplace"} == {
        *mechanisms_for("mean"),
        *mechanisms_for("frequency"),
    }
    rng, runs = np.random.default_rng(3), 400
    means: list[Floats] = []
    found: list[Floats] = []
    for run in range(runs):
        drawn = population.reseeded(run)
        fixed = population
        if population.mechanism == "projection":
            seeded = (("rows", 60), ("seed", run))
            drawn = fixed = dataclasses.replace(population, options=seeded)
        for one, values in ((drawn, means), (fixed, found)):
            statistic = one.statistic(one.held(rng), rng)
            values.append(np.atleast_1d(one.metric.estimate(statistic, bound="normal").value))
    spread, truth = 1.0, np.zeros(1)
    if population.metric.kind == "frequency":
        spread, truth = 0.25, population.frequencies
    error = np.std(means, axis=0, ddof=1) / np.sqrt(runs)
    assert np.all(np.abs(np.mean(means, axis=0) - truth) <= 4 * error + 1e-12)
    claimed = spread / fixed.metric.estimate(statistic).effective_reports
    assert np.var(found, axis=0)[0] == pytest.approx(claimed, rel=5 * np.sqrt(2 / runs))
