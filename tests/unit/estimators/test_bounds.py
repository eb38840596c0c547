"""Bounds against exact tail probabilities, and against the normal law's width."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betaincinv
from scipy.stats import binom

from estimators.bounds import FlipNoise, LaplaceNoise, Law, interval, mixtures
from estimators.bounds.signs import anytime
from estimators.bounds.signs.inversion import lower_limit
from estimators.bounds.signs.law import laws_in_rows
from estimators.bounds.signs.limits import intervals_of_categories
from estimators.exact import discrete_laplace
from estimators.weights import WEIGHTINGS, LevelFacts, level_weights, total_weight
from tests.support.reports.cases import metric_for, summed, values_for
from tests.support.rows import row

RECORDED = {  # of 400 reports, for four questions: the limits of all numbers, in one sum
    "randomized_response": (-0.26808381353, -0.28404755847, -0.36056632027, -0.32186010020),
    "windows": (-0.54172227807, -0.50723291601, -0.57659959276, -0.57319443919),
    "laplace": (-0.55197358206, -1.04362478679, -0.59916149608, -0.61069666365),
    "repetition_mean": (-0.55830079424, -0.41265365601, -0.62008509466, -0.59485715363),
    "rappor": (0.08499725626, 0.39102372970, 0.06419477420, 0.06650199194),
    "grr": (0.02686533674, 0.33856873105, 0.02966770208, -0.02422803968),
    "dyadic_hadamard": (-0.26461490596, 0.28947045032, 0.18953832070, -0.07590429945),
}


def test_limits_are_those_that_were_recorded() -> None:
    """So a faster way to compute them is no other bound."""
    questions: list[dict[str, Any]] = [{}, {"weights": "uniform"}]
    questions += [{"beta": 1e-4, "target": "sample"}, {"bound": "anytime"}]
    for name, recorded in RECORDED.items():
        metric = metric_for(name)
        statistic = summed(metric, values_for(metric, 400), np.arange(400) % 5)
        for asked, total in zip(questions, recorded, strict=True):
            estimate = metric.estimate(statistic, **asked)
            limits = np.append(estimate.lower, estimate.upper)
            with row(name, *asked.values()):
                assert limits @ np.cos(np.arange(limits.size)) == pytest.approx(total, abs=1e-9)


def alike(levels: int, n: int, contrast: float) -> Law:
    """n reports of levels that differ in their names alone."""
    same = np.ones(levels)
    return Law(n / levels * same, same / (n * contrast), contrast * same)


PAIRS = [(0.5, 0.27), (0.5, 3e-4), (0.02, 0.001), (0.6, 1e-5), (0.011, 0.01), (0.999, 0.3)]
FLIPS = [(1 / (1 + np.exp(-x)), 1 / (1 + np.exp(x))) for x in (1e-4, 0.01, 0.25, 1, 4, 16, 64)]


@settings(max_examples=400)
@given(
    levels=st.sampled_from([1, 2]),
    n=st.integers(1, 10**9),
    part=st.floats(0, 1),
    pair=st.sampled_from(PAIRS + FLIPS),
    log_p=st.floats(-40, -0.7),
    mirrored=st.booleans(),
)
def test_every_mean_outside_the_limits_is_rejected_by_the_exact_binomial_test(
    levels: int, n: int, part: float, pair: tuple[float, float], log_p: float, mirrored: bool
) -> None:
    """For one level, whose limit is that test's, and for two alike, whose bound is another.

    A report is a one with a chance of p for users who hold +1, and of q for others.
    """
    p, q = pair
    law, ones = alike(levels, n, p - q), round(part * n)
    if pair in PAIRS:
        law, ones = replace(law, offset=np.full(levels, p + q - 1)), round((q + (p - q) * part) * n)
    if mirrored:
        law, ones, p, q = law.mirrored(), n - ones, 1 - q, 1 - p
    observed = np.array([(2 * ones - n * (p + q)) / (n * (p - q))])
    limit = float(lower_limit(law, observed, log_p)[0])
    assert -1 <= limit <= max(-1, observed[0])
    if limit > -1:
        tail = binom.sf(ones - 1, n, q + (p - q) * (1 + limit) / 2)
        assert tail <= np.exp(log_p) * (1 + 1e-5)  # scipy's own error in far tails


def test_the_interval_is_nearly_as_narrow_as_the_exact_one() -> None:
    """That of Clopper and Pearson: of one level itself, and where the bound knows two alike."""
    contrast = float(np.tanh(0.5))
    for levels, (n, excess) in itertools.product(
        (1, 2), ((100, 1.15), (10**4, 1.03), (10**5, 1.01))
    ):
        ones = np.round(n * np.array([0.35, 0.5, 0.65])).astype(int)
        observed = (2 * ones - n) / (n * contrast)
        lower, upper = interval(alike(levels, n, contrast), observed, np.log(0.025))
        exact_low = (2 * betaincinv(ones, n - ones + 1, 0.025) - 1) / contrast
        exact_high = (2 * betaincinv(ones + 1, n - ones, 0.975) - 1) / contrast
        inside = (exact_low > -1) & (exact_high < 1)
        wider = ((upper - lower) / (exact_high - exact_low))[inside]
        with row(levels, n):
            assert inside.any()
            assert np.all(wider < (excess if levels > 1 else 1 + 1e-5))
            assert np.all(wider > 1 - 1e-9)


def three_level_tail(theta: float, law: Law, observed: float) -> float:
    """Return P(S >= observed) by enumerating three binomials."""
    support, chance = np.zeros(1), np.ones(1)
    for n, s, a in zip(law.counts.astype(int), law.coefficient, law.contrast, strict=True):
        ones = np.arange(n + 1)
        support = (support[:, None] + s * (2 * ones - n)).ravel()
        chance = (chance[:, None] * binom.pmf(ones, n, (1 + a * theta) / 2)).ravel()
    return float(chance[support >= observed - 1e-12].sum())


def test_limits_of_the_categories_of_many_windows_are_those_of_each_window() -> None:
    sums = np.random.default_rng(5).uniform(-0.9, 0.9, (2, 100))
    for offset in (None, np.array([-0.5, -0.2])):
        reports = (np.array([40.0, 80.0]), np.array([4e4, 8e4]))
        laws = [Law(n, 0.4 / n, np.array([0.4, 0.8]), offset=offset) for n in reports]
        together = intervals_of_categories(laws_in_rows(laws), sums, -6.0)
        for window, law in enumerate(laws):
            alone = np.array(interval(law, sums[window], -6.0))
            assert np.array(together)[:, window] == pytest.approx(alone, abs=1e-9)


def test_mixed_levels_are_rejected_by_the_exact_law_too() -> None:
    counts, contrast = np.array([20.0, 30.0, 40.0]), np.tanh([0.25, 0.5, 2.0])
    for shares in (counts * contrast**2, counts):
        law = Law(counts, shares / shares.sum() / (counts * contrast), contrast)
        for ones in ((0, 0, 1), (5, 10, 20), (12, 20, 28), (20, 30, 33), (20, 30, 40)):
            observed = float(law.coefficient @ (2 * np.array(ones) - counts))
            for p in (0.25, 0.025, 1e-4):
                limit = float(lower_limit(law, np.array([observed]), np.log(p))[0])
                if limit > -1:
                    with row(shares, ones, p):
                        assert three_level_tail(limit, law, observed) <= p
                        if three_level_tail(1.0, law, observed) > p:  # not by far
                            assert three_level_tail(min(1.0, limit + 0.2), law, observed) > p


@settings(max_examples=50)
@given(
    means=st.lists(st.floats(-1, 1), min_size=3, max_size=3),
    tilt=st.floats(0.01, 5),
    counts=st.lists(st.integers(1, 10**6), min_size=3, max_size=3),
)
def test_own_means_stay_below_the_bound(means: list[float], tilt: float, counts: list[int]) -> None:
    n, contrast = np.array(counts, dtype=float), np.tanh([0.125, 0.5, 2.0])
    law = Law(n, 1 / (n.sum() * contrast), contrast, free=True)
    theta = np.array([float(n @ means / n.sum())])
    scaled = np.array([min(tilt * np.sqrt(n.sum()), law.max_tilt)])
    z = scaled[0] * law.coefficient
    exact = float(n @ np.log(np.cosh(z) + np.array(means) * contrast * np.sinh(z)))
    assert exact <= law.cumulant(theta, scaled).value[0] + 1e-9 * n.sum()
    assert float(n @ (law.coefficient**2 * (1 - (contrast * np.array(means)) ** 2))) <= (
        law.largest_variance(theta)[0] * (1 + 1e-12)
    )


def test_the_discrete_laplace_has_the_moments_of_its_sum() -> None:
    for rate in (0.001, 0.1, 1.0, 8.0):
        z = np.arange(-round(60 / rate) - 5, round(60 / rate) + 6).astype(float)
        chance = np.exp(-rate * np.abs(z))
        chance /= chance.sum()
        at = np.array(rate)
        value, slope, _ = discrete_laplace.cumulant(at, np.asarray(rate / 3))
        tilted = chance * np.exp(rate / 3 * z)
        cubes = discrete_laplace.third_absolute_moment(at)
        with row(rate):
            assert discrete_laplace.variance(at) == pytest.approx(chance @ z**2)
            assert discrete_laplace.absolute_moment(at) == pytest.approx(chance @ np.abs(z))
            assert cubes == pytest.approx(chance @ np.abs(z) ** 3)
            assert value == pytest.approx(np.log(tilted.sum()))
            assert slope == pytest.approx(tilted @ z / tilted.sum())


def test_the_noise_of_flips_stays_below_kearns_and_saul() -> None:
    for epsilon, n, k in itertools.product((0.01, 1.0, 4.0, 32.0), (1, 30, 10**4), (1, 1000)):
        flip, log_p = np.array([1 / (1 + np.exp(epsilon / 2))]), np.log(0.025 / k)
        # sqrt(2 ln(2k / beta) sum w^2 coth(epsilon / 4) / epsilon) for frequencies; twice for signs
        kearns_saul = 2 * np.sqrt(-2 * log_p / np.tanh(epsilon / 4) / epsilon / n)
        counts = np.array([float(n)])
        bound = FlipNoise(counts, 1 / (n * (1 - 2 * flip)), flip).deviation(log_p)
        with row(epsilon, n, k):
            assert bound <= kearns_saul * 1.001
        for ones in {0, n // 2, n} if n < 1000 else ():  # fixed data: the exact tail, both sides
            up, down = np.arange(ones + 1), np.arange(n - ones + 1)
            sums = (2 * (up[:, None] + down) - n) / (n * (1 - 2 * flip)) - (2 * ones - n) / n
            kept = np.asarray(binom.pmf(up, ones, 1 - flip))
            chance = kept[:, None] * binom.pmf(down, n - ones, flip)
            with row(epsilon, n, k, ones):
                assert chance[sums > bound].sum() <= np.exp(log_p)
                assert chance[sums < -bound].sum() <= np.exp(log_p)


def laplace_tail(data: dict[int, float], rate: float, n: int, observed: int) -> float:
    """Return P(sum of n reports >= observed), from the n-th power of one report's transform."""
    size = 2**18
    z = np.arange(size) - size // 2
    noise = np.exp(-rate * np.abs(z))
    one = sum(chance * np.roll(noise / noise.sum(), x) for x, chance in data.items())
    law = np.fft.irfft(np.fft.rfft(np.fft.ifftshift(one)) ** n, size)
    return float(np.fft.fftshift(law)[z >= observed].sum())


def test_laplace_noise_exceeds_its_bound_as_often_as_it_may() -> None:
    """The exact law of noise and rounding; values half-way between two points are the worst."""
    grid = 8
    for n, epsilon, p in itertools.product((1, 40, 20_000), (0.5, 4.0), (0.025, 1e-4)):
        rate = epsilon / (2 * grid)
        parts = np.array([float(n)]), np.array([1 / n]), np.array([rate]), 1 / grid
        bound = LaplaceNoise(*parts).deviation(np.log(p)) * n * grid
        for data in ({0: 1.0}, {0: 0.5, 1: 0.5}):
            mean = n * sum(x * chance for x, chance in data.items())
            with row(n, epsilon, p, data):
                assert laplace_tail(data, rate, n, math.floor(mean + bound) + 1) <= p
                if n >= 40 and epsilon < 1:
                    near = laplace_tail(data, rate, n, math.floor(mean + 0.99 * bound))
                    assert near > 0.99 * p


def test_laplace_sums_are_rejected_by_the_exact_law_of_signs_and_of_constants() -> None:
    grid, p = 2, 0.025
    for n, mean, epsilon in itertools.product((1, 40, 20_000), (0.0, 0.7, -0.95), (0.5, 4.0)):
        rate = np.array([epsilon / (2 * grid)])
        law = Law(np.array([float(n)]), np.array([1 / n]), np.ones(1), rate, 1 / grid)
        total = round(n * grid * mean)
        limit = float(lower_limit(law, np.array([total / (grid * n)]), np.log(p))[0])
        floor = int(np.floor(limit * grid))
        of_signs = {grid: (1 + limit) / 2, -grid: (1 - limit) / 2}
        constant = {floor: 1 - (limit * grid - floor), floor + 1: limit * grid - floor}
        for data in (of_signs, constant) if limit > -1 else ():
            with row(n, mean, epsilon, data):
                assert laplace_tail(data, rate[0], n, total) <= p


FACTS = LevelFacts(np.array([0.5, 1.0, 4.0]), np.array([16.0, 5.0, 1.1]), np.array([0.2, 0.4, 0.9]))


def test_the_weights_of_the_mixture_are_a_probability() -> None:
    assert np.exp(mixtures.LOG_MIXTURE_WEIGHTS).sum() == pytest.approx(1)
    assert np.all(np.diff(mixtures.MIXTURE_TILTS) > 0)


def test_a_report_weighs_the_same_whatever_the_others_are() -> None:
    """What the proof needs: share times total over count is a constant of the level."""
    for policy, weighting in WEIGHTINGS.items():
        per_report = weighting(FACTS)
        fixed = per_report / (per_report * np.sqrt(FACTS.variances)).max()
        for counts in ((1, 0, 0), (0, 7, 10**6), (3, 50, 2), (10**6, 1, 1)):
            n, some = np.array(counts), np.array(counts) > 0
            weight = level_weights(policy, n, FACTS) * total_weight(policy, n, FACTS)
            with row(policy, counts):
                assert weight[some] / n[some] == pytest.approx(fixed[some])


def test_noise_that_falls_short_of_every_tilt_is_not_bounded() -> None:
    noise = FlipNoise(np.array([1.0]), np.array([1e12]), np.array([0.25]))
    assert mixtures.deviation_bound(noise.cumulant, noise.max_tilt, -3.0, 1.0) == np.inf


def test_planes_for_all_times_are_hardly_below_the_limit_of_each_sum() -> None:
    rng = np.random.default_rng(3)
    for levels, k in ((1, 2000), (5, 2000), (5, 30)):
        n = rng.uniform(50, 4000, levels)
        contrast = rng.uniform(0.1, 0.9, levels)
        law = Law(n, 1 / (n.sum() * contrast), contrast)
        sums = np.sort(rng.uniform(-0.9, 0.9, k))
        every = np.arange(k)
        pivots = every // max(2, k // 20)
        at_each = anytime.lower_limit(law, sums, pivots, every, -3.7, np.array([n.sum()]))
        of_pairs = anytime.lower_limit(law, sums, pivots, every // 2, -3.7, np.array([n.sum()]))
        lower, _ = interval(law, sums, -3.7, float(n.sum()))
        with row(levels, k):
            assert np.all(of_pairs <= at_each + 1e-9)
            assert np.all(lower >= at_each - 1e-3 * (sums - at_each))


def test_the_tilts_for_users_own_values_do_not_overflow() -> None:
    metric = metric_for("auto_frequency")
    statistic = summed(metric, values_for(metric, 1), level=3)
    estimate = metric.estimate(statistic, bound="anytime", target="sample", beta=1e-6)
    assert np.all(estimate.lower <= estimate.upper)
