"""Distributions from reports: coverage of bands and quantiles, inequalities, agreement of levels.

Truths are those of the bins' exact masses. Bounds at beta = 0.05 fail in at most 5% of runs; a
test that allows `LIMIT` failures of `RUNS` fails by chance with a probability below 10^-4.
"""

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, norm, poisson

from estimators import DistributionEstimate, LocalMetric, define
from estimators.exact.randomness import SeededBits
from estimators.mechanisms.dyadic_hadamard.tails import fixed_deviation
from tests.support.rows import row

LEVELS = (0.5, 1.0, 2.0, 4.0)
BETA, RUNS = 0.05, 100
LIMIT = int(binom.isf(1e-4, RUNS, BETA))


def metric_of(bins: int = 64, **changes: Any) -> LocalMetric:
    definition = {"name": "m", "kind": "distribution", "range": (0, 1), "bins": bins}
    found: LocalMetric = define(**{**definition, "levels": LEVELS, **changes})
    return found


def laws(bins: int) -> dict[str, Any]:
    """Return masses of bins that are hard for different reasons."""
    middle = np.arange(bins) + 0.5
    spike, ends = np.full(bins, 0.02 / bins), np.zeros(bins)
    spike[bins // 3] += 0.98
    ends[0] = ends[-1] = 0.5
    bell = np.exp(-((middle / bins - 0.3) ** 2) / 0.02)
    return {
        "uniform": np.ones(bins) / bins,
        "spike": spike,
        "ends": ends,
        "bell": bell / bell.sum(),
    }


def statistic(metric: LocalMetric, masses: Any, counts: Any, seed: int, other: Any = None) -> Any:
    """Return the sums of reports of a population; `other` are the masses at the last level."""
    generator, total, bins = np.random.default_rng(seed), metric.zero(), masses.size
    level = np.repeat(np.arange(len(counts)), counts).astype(np.uint8)
    values = generator.choice(bins, level.size, p=masses)
    if other is not None:
        last = level == level.max()
        values[last] = generator.choice(bins, last.sum(), p=other)
    reports = metric.randomizer.randomize(values, level, SeededBits(seed))
    metric.accumulate_checked(total, level, reports)
    return total


def true_cdf(masses: Any) -> Any:
    return np.concatenate([[0.0], np.cumsum(masses)])


def distribution(metric: LocalMetric, sums: Any, **question: Any) -> DistributionEstimate:
    found = metric.estimate(sums, **question)
    assert isinstance(found, DistributionEstimate)
    return found


def covers(found: DistributionEstimate, truth: Any) -> bool:
    return bool(((found.cdf_lower <= truth + 1e-9) & (truth - 1e-9 <= found.cdf_upper)).all())


@pytest.mark.parametrize(
    ("law", "bins", "runs"),
    [
        ("spike", 16, RUNS),
        ("bell", 16, RUNS),
        *(pytest.param(x, 100, RUNS, marks=pytest.mark.more) for x in ("uniform", "spike", "ends")),
        *(pytest.param(x, 32, 2000, marks=pytest.mark.slow) for x in ("spike", "bell")),
    ],
)
def test_bands_and_quantiles_cover_the_truth(law: str, bins: int, runs: int) -> None:
    metric = metric_of(bins)
    masses = laws(bins)[law]
    truth, missed = true_cdf(masses), {"band": 0, "all": 0, "one": 0}
    asked, widths = [0.1, 0.5, 0.9], np.zeros(2)
    for seed in range(runs):
        sums = statistic(metric, masses, (800, 600, 400, 200), seed)
        found = distribution(metric, sums, quantiles=asked)
        missed["band"] += not covers(found, truth)
        own = found.edges[np.searchsorted(truth, np.array(asked) - 1e-12)]
        low, high = found.quantiles[:, 2], found.quantiles[:, 3]
        missed["all"] += not ((low < own) & (own <= high)).all()
        alone = distribution(metric, sums, quantiles=[0.5]).quantiles[0]
        missed["one"] += not alone[2] < own[1] <= alone[3]
        widths += [alone[3] - alone[2], high[1] - low[1]]
    assert law == "ends" or widths[0] <= widths[1]  # there every edge inside is a median
    assert max(missed.values()) <= binom.isf(1e-4, runs, BETA), missed


def test_own_values_and_levels_that_differ_are_covered_by_uniform_weights() -> None:
    """The users of one level differ: the mean of all reporting users; else, their own values."""
    metric, masses, missed = metric_of(32), laws(32), {"levels": 0, "sample": 0}
    truth = 0.75 * true_cdf(masses["bell"]) + 0.25 * true_cdf(masses["ends"])
    for seed in range(RUNS):
        sums = statistic(metric, masses["bell"], (500, 500, 500, 500), seed, masses["ends"])
        missed["levels"] += not covers(distribution(metric, sums, weights="uniform"), truth)
        generator, own = np.random.default_rng(seed), metric.zero()
        values = generator.choice(32, 1000, p=masses["bell"])
        level = generator.integers(0, 4, 1000).astype(np.uint8)
        reports = metric.randomizer.randomize(values, level, SeededBits(seed))
        metric.accumulate_checked(own, level, reports)
        found = distribution(metric, own, weights="uniform", target="sample")
        seen = np.searchsorted(np.sort(values), np.arange(33)) / 1000
        missed["sample"] += not covers(found, seen)
    assert max(missed.values()) <= LIMIT, missed
    assert distribution(metric, sums).heterogeneity < 1e-3  # type: ignore[operator]


def test_reports_that_contradict_each_other_leave_all_that_is_possible() -> None:
    """One report a thousand times is fabricated: no distribution gives it."""
    metric = metric_of(64)
    level = np.full(1000, 3, dtype=np.uint8)
    report = metric.randomizer.randomize(np.array([5]), level[:1], SeededBits(1))
    sums = metric.zero()
    metric.accumulate_checked(sums, level, np.repeat(report, 1000, axis=0))
    for question in ({}, {"quantiles": [0.5]}, {"simultaneous": False}):
        found = distribution(metric, sums, **question)
        with row(question):
            assert found.crossed
            assert (found.cdf_lower[1:-1] == 0).all()
            assert (found.cdf_upper[1:-1] == 1).all()
            assert found.quantiles[0, 2:].tolist() == [0, 1]
    sums, values = metric.zero(), np.random.default_rng(1).integers(0, 64, 1000)
    honest = metric.randomizer.randomize(values, level, SeededBits(1))
    report = metric.randomizer.randomize(np.array([32]), level[:1], SeededBits(1))
    metric.accumulate_checked(sums, level, honest)
    metric.accumulate_checked(sums, level[:100], np.repeat(report, 100, axis=0))
    assert distribution(metric, sums, simultaneous=False).crossed, "no curve ascends within them"


def test_few_reports_of_a_precise_level_seldom_seem_to_differ() -> None:
    """All users in one of 8 bins; falsely once in 10^4 seeds, found at 7 times the rate."""
    metric, runs = metric_of(8, levels=(6.0, 8.0)), 200
    masses, p_values = np.eye(8)[0], []
    for seed in range(runs):
        found = distribution(metric, statistic(metric, masses, (100, 1000), seed))
        p_values.append(found.heterogeneity)
    assert sum(p <= 0.01 for p in p_values if p is not None) <= binom.isf(1e-4, runs, 0.01)
    assert len(p_values) == runs


@pytest.mark.parametrize(
    ("bound", "pointwise"), [("fixed", False), ("anytime", True), ("normal", False)]
)
def test_what_is_shown_ascends_within_its_limits(bound: str, pointwise: bool) -> None:
    metric = metric_of(100)
    for seed, law in enumerate(laws(100).values()):
        for n in (1, 30, 3000):
            sums = statistic(metric, law, (n, n, n, n), seed)
            found = distribution(metric, sums, bound=bound, simultaneous=not pointwise)
            for numbers in (found.shown, found.smooth):
                assert (np.diff(numbers) >= 0).all()
                assert (numbers[0], numbers[-1]) == (0, 1)
                assert ((found.cdf_lower <= numbers) & (numbers <= found.cdf_upper)).all()
            assert found.histogram.min() >= 0
            assert found.histogram.sum() == pytest.approx(1)
            low, value, high = found.quantiles[:, 2], found.quantiles[:, 1], found.quantiles[:, 3]
            assert ((low <= value) & (value <= high)).all()


def test_one_quantile_that_may_move_has_the_limits_of_all() -> None:
    """Single edges are tested for one edge at all times, not for another one at each time."""
    metric, asked = metric_of(64, levels=[2]), [0.1, 0.5, 0.9]
    sums = statistic(metric, laws(64)["bell"], (40_000,), 1)
    cases: list[tuple[dict[str, str], bool]] = [
        ({"bound": "anytime"}, True),
        ({"target": "sample"}, True),
        ({"bound": "anytime", "weights": "uniform"}, False),
        ({"bound": "anytime", "target": "sample"}, False),
    ]
    for (question, narrower), simultaneous in itertools.product(cases, (True, False)):
        with row(question, simultaneous):
            every = distribution(metric, sums, quantiles=asked, **question).quantiles[:, 2:]
            alone: dict[str, Any] = {"simultaneous": simultaneous, **question}
            each = np.concatenate(
                [distribution(metric, sums, quantiles=[q], **alone).quantiles[:, 2:] for q in asked]
            )
            assert (np.diff(each).sum() < np.diff(every).sum()) == narrower
            assert narrower or (each == every).all()


def test_no_poisson_sum_exceeds_its_bound_more_often() -> None:
    """The law of the sharpest case of Bentkus' inequality, and one of bounded scores."""
    for r, tail in itertools.product((0.6, 3.0, 40.0, 5000.0), (0.025, 1e-3, 1e-8)):
        with row(r, tail):
            x = float(fixed_deviation(np.array([r]), tail)[0])
            assert poisson.sf(np.ceil(r + x) - 1, r) <= tail
            assert x >= norm.isf(tail) * np.sqrt(r) * 0.999
            coins = 10_000  # centred coins of variance r in all, each at most 1
            assert binom.sf(np.ceil(r + x) - 1, coins, r / coins) <= tail
