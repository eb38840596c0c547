"""Releases of trusted collections: their coverage, and the tables and figures of ADPM and HDP-WC.

Fixed seeds. Logarithms are natural, as in the papers' tables.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from estimators import Metric
from estimators.central.baselines import sampling_mechanism, separate_noise
from estimators.randomness import SeededBits

if TYPE_CHECKING:
    from estimators.estimate import Estimate, Floats


def trusted(levels: Any, **domain: Any) -> Metric:
    kind = "frequency" if "categories" in domain else "mean"
    levels = sorted({math.floor(10_000 * e + 1e-9) / 10_000 for e in levels})
    return Metric(name="m", kind=kind, trust="central", levels=levels, **domain)


def collected(metric: Metric, values: Any, level: Any) -> Any:
    statistic = metric.zero()
    metric.accumulate(statistic, level, metric.randomize(values, level))
    return statistic


# -- Bounds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", [25, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", ["population", "sample"])
@pytest.mark.parametrize("n", [40, pytest.param(4000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("domain", "policy"),
    [
        ({"range": (-1, 3)}, "adpm"),
        pytest.param({"range": (-1, 3)}, "uniform-minimum", marks=pytest.mark.slow),
        ({"categories": 5}, "hpf-a"),
        pytest.param({"categories": 5}, "uniform-minimum", marks=pytest.mark.slow),
    ],
)
def test_bounds_hold(domain: dict[str, Any], policy: str, n: int, target: str, runs: int) -> None:
    """At beta = 0.2; each would fail for one seed in 10^4."""
    metric, rng, beta = trusted((0.3, 1, 4), **domain), np.random.default_rng([n, runs]), 0.2
    bits, failed = SeededBits(n), 0
    frequencies = np.array([0.6, 0.3, 0.1, 0.0, 0.0])
    for _ in range(runs):
        level = rng.integers(0, 3, n).astype(np.uint8)
        if metric.kind == "mean":
            values = np.where(rng.random(n) < 0.3, 3.0, -1.0)
            truth: Any = 0.2
        else:
            values = rng.choice(5, n, p=frequencies)
            truth = frequencies
        statistic = collected(metric, values, level)
        released = metric.release(statistic, bits, policy, beta, target)
        if target == "sample":
            share = (released.weights / np.maximum(metric.counts(statistic), 1))[level]
            truth = share @ (values if metric.kind == "mean" else np.eye(5)[values])
        failed += not np.all((released.lower <= truth) & (truth <= released.upper))
    assert failed <= runs * beta + 3.7 * math.sqrt(runs * beta * (1 - beta))
    if target == "sample" and metric.kind == "mean" and released.privacy is not None:
        assert failed >= runs * beta - 4.5 * math.sqrt(runs * beta) or not released.privacy.any()


# -- ADPM -----------------------------------------------------------------------------------------

TABLE_2 = {
    "high": {"adpm": -9.3, "proportional": -9.0, "LDPE": -7.2, "SM": -6.5, "uniform-minimum": -5.1},
    "low": {"adpm": -8.1, "proportional": -8.1, "LDPE": -1.3, "SM": -7.9, "uniform-minimum": -7.1},
}
LOG_EPSILONS = {"high": (-4, 2), "low": (-3, -2)}
USERS = 1000


def draws_of_table_2(spread: str, seed: int) -> tuple[Metric, Floats]:
    """Return a metric with 255 levels and the demands of 1000 users."""
    low, high = LOG_EPSILONS[spread]
    demands = np.exp(np.random.default_rng(seed).uniform(low, high, USERS))
    return trusted(np.exp(np.linspace(low, high, 255)), range=(-0.5, 0.5)), demands


def error_of(released: Estimate, variance: float) -> float:
    """Return the mean squared error of a release of values with this variance."""
    assert released.privacy is not None
    used = released.counts > 0
    per_report = released.weights[used] / released.counts[used]
    scale = float((per_report / released.privacy[used]).max())
    return variance * float(released.counts[used] @ per_report**2) + 2 * scale**2


@pytest.mark.parametrize("spread", TABLE_2)
def test_the_weights_have_the_errors_of_adpm_table_2(spread: str) -> None:
    """Beta(2, 3) has variance 1/25; the mean over ten draws of the demands."""
    for policy in ("adpm", "proportional", "uniform-minimum"):
        errors = []
        for seed in range(10):
            metric, demands = draws_of_table_2(spread, seed)
            statistic = collected(metric, np.zeros(USERS), metric.level_of(demands))
            released = metric.release(statistic, SeededBits(seed), policy, target="sample")
            errors.append(math.log(error_of(released, 1 / 25)))
        assert np.mean(errors) == pytest.approx(TABLE_2[spread][policy], abs=0.15), policy


@pytest.mark.slow
@pytest.mark.parametrize("spread", TABLE_2)
def test_adpm_table_2_comes_out_by_simulation(spread: str) -> None:
    """400 releases for each of four draws of the demands; the paper has one draw."""
    squares: dict[str, list[float]] = {method: [] for method in TABLE_2[spread]}
    logs: dict[str, list[float]] = {method: [] for method in TABLE_2[spread]}
    for seed in range(4):
        metric, demands = draws_of_table_2(spread, seed)
        level, rng, bits = metric.level_of(demands), np.random.default_rng(seed), SeededBits(seed)
        for method in squares:
            squares[method] = []
        for _ in range(400):
            values = rng.beta(2, 3, USERS)
            statistic = collected(metric, values - 0.5, level)
            for method, found in squares.items():
                if method == "SM":
                    value = sampling_mechanism(values, demands, rng) - 0.5
                elif method == "LDPE":
                    value = separate_noise(values, demands, rng) - 0.5
                else:
                    released = metric.release(statistic, bits, method, target="sample")
                    value = float(released.value)
                found.append((value + 0.1) ** 2)
        for method, found in squares.items():
            logs[method].append(math.log(float(np.mean(found))))
    for method, expected in TABLE_2[spread].items():
        assert np.mean(logs[method]) == pytest.approx(expected, abs=0.2), method


def figure_1b(second: float, policy: str, runs: int) -> float:
    """Return the mean squared error: n = 1000, e_1 = 0.1, f = 0.7, a fair coin on +-1/2."""
    metric = trusted((0.1, second), range=(-0.5, 0.5))
    level = np.repeat([0, len(metric.levels) - 1], [700, 300]).astype(np.uint8)
    rng, bits = np.random.default_rng(1), SeededBits(2)
    squares = []
    for _ in range(runs):
        values = rng.integers(0, 2, USERS) - 0.5
        released = metric.release(collected(metric, values, level), bits, policy, target="sample")
        squares.append(float(released.value) ** 2)
    return float(np.mean(squares))


@pytest.mark.parametrize("runs", [100, pytest.param(4000, marks=pytest.mark.slow)])
def test_adpm_figure_1b_saturates_where_and_as_high_as_the_paper_says(runs: int) -> None:
    ratio = 1 + 8 / (0.1**2 * USERS * 0.7)
    floor = ratio / (4 * USERS * (0.7 + 0.3 * ratio))
    noise = 4 * math.sqrt(5 / runs)  # kurtosis of Laplace and normal errors at most 6
    at_first = 0.25 / USERS + 2 / (0.1 * USERS) ** 2
    assert figure_1b(0.1001, "adpm", runs) == pytest.approx(at_first, rel=noise)
    for second in (0.1 * ratio, 1.0, 10.0):
        assert figure_1b(second, "adpm", runs) == pytest.approx(floor, rel=noise)
    assert figure_1b(10.0, "proportional", runs) > 1.5 * floor


# -- HDP-WC ---------------------------------------------------------------------------------------


def tail_error(policy: str, correlated: bool, runs: int, beta: float = 0.05) -> float:
    """Return the 95% quantile of the largest error of a frequency, clipped as in the paper.

    Uncorrelated: ten categories, ln epsilon uniform on [-5, ln 64], 17,000 users. Correlated:
    twelve, ln epsilon = -|i - 6.5| + uniform on [-3, 3], 50,000 users.
    """
    rng, bits = np.random.default_rng(4), SeededBits(4)
    bins, users = (12, 50_000) if correlated else (10, 17_000)
    metric = trusted(np.exp(np.linspace(-9, math.log(64), 150)), categories=bins)
    shares = rng.dirichlet(np.full(bins, 3.0))
    if correlated:
        shares = np.exp(-((np.arange(bins) - 4.5) ** 2) / 8)
    values = rng.choice(bins, users, p=shares / shares.sum())
    logs = rng.uniform(-5, math.log(64), users)
    if correlated:
        logs = -np.abs(values + 1 - 6.5) + rng.uniform(-3, 3, users)
    level = metric.level_of(np.maximum(np.exp(logs), metric.levels[0]))
    truth, errors = np.bincount(values, minlength=bins) / users, []
    for _ in range(runs):
        own = values if correlated else rng.permutation(values)
        released = metric.release(collected(metric, own, level), bits, policy, beta, "sample")
        errors.append(np.abs(np.clip(released.value, 0, 1) - truth).max())
    return float(np.quantile(errors, 1 - beta))


@pytest.mark.parametrize("runs", [15, pytest.param(300, marks=pytest.mark.slow)])
def test_where_values_do_not_go_with_the_level_hpf_a_is_best(runs: int) -> None:
    """HDP-WC, Table 4, cancer types: 0.005, 0.009, 0.014 and 0.091."""
    order = ["hpf-a", "hpf-u", "proportional", "uniform-minimum"]
    errors = [tail_error(policy, correlated=False, runs=runs) for policy in order]
    assert errors == sorted(errors)
    assert errors[0] * 1.3 < errors[1]
    assert errors[2] * 2 < errors[3]


@pytest.mark.parametrize("runs", [12, pytest.param(300, marks=pytest.mark.slow)])
def test_where_values_go_with_the_level_hpf_c_is_best(runs: int) -> None:
    """HDP-WC, Table 4, UC salaries: 0.118, 0.174, 0.273 and 1."""
    order = ["hpf-c", "hpf-a", "proportional", "uniform-minimum"]
    errors = [tail_error(policy, correlated=True, runs=runs) for policy in order]
    assert errors[0] < errors[1] < errors[2]
    assert errors[0] < errors[3]
