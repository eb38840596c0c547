"""Weights of releases against other solvers, and against what the papers say of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators.central.weights import (
    WEIGHTINGS,
    capped,
    noise_scale,
    report_weights,
    square_threshold,
)
from estimators.estimate import Floats
from tests.support.rows import row

#: (epsilon, reports) of up to 8 levels, many times apart.
level_mixes = st.dictionaries(
    st.integers(1, 640_000).map(lambda e: e / 10_000), st.integers(1, 10**6), min_size=1, max_size=8
).map(lambda mix: (np.array(sorted(mix)), np.array([float(mix[e]) for e in sorted(mix)])))


def deviation(counts: Floats, weights: Floats) -> float:
    return float(counts @ np.abs(weights - 1 / counts.sum())) ** 2


def recursion(epsilons: Floats, noise: float) -> Floats:
    """HDP-WC, equations (154) and (155), user by user."""
    shape = [float(epsilons[0])]
    for epsilon in epsilons[1:]:
        square = sum(r * r for r in shape) + noise
        shape.append(min(square / sum(shape), float(epsilon)))
    result: Floats = np.array(shape) / sum(shape)
    return result


def test_the_threshold_is_that_of_the_papers_recursion() -> None:
    for seed, noise in enumerate((1e-4, 0.1, 8.0, 1e4)):
        rng = np.random.default_rng(seed)
        epsilons, counts = np.sort(np.exp(rng.uniform(-4, 3, 7))), rng.integers(1, 30, 7)
        found = capped(epsilons, counts, square_threshold(epsilons, counts, noise))
        expected = recursion(np.repeat(epsilons, counts), noise)
        assert np.allclose(np.repeat(found, counts), expected, rtol=1e-9), noise


@settings(deadline=None, max_examples=100)
@given(mix=level_mixes, seed=st.integers(0, 99))
def test_no_other_weights_have_a_smaller_objective(mix: tuple[Floats, Floats], seed: int) -> None:
    """HDP-WC's deviation or squares, alone or beside the variance, and ADPM's error.

    Others: random ones, those of all policies, and mixtures of them with ours.
    """
    epsilons, counts = mix
    total, log_term, rng = counts.sum(), math.log(20), np.random.default_rng(seed)

    def noise(weights: Floats) -> float:
        return noise_scale(epsilons, weights) ** 2

    def squares(weights: Floats) -> float:
        return float(counts @ weights**2)

    objectives: dict[str, Callable[[Floats], float]] = {
        "hpm-c": lambda w: deviation(counts, w) + log_term**2 * noise(w),
        "hpm-ct": lambda w: total * squares(w - 1 / total) + log_term**2 * noise(w),
        "hpm-u": lambda w: (
            min(deviation(counts, w), log_term * squares(w)) + log_term**2 * noise(w)
        ),
        "hpm-ut": lambda w: (
            min(total * squares(w - 1 / total), log_term * squares(w)) + log_term**2 * noise(w)
        ),
        "adpm": lambda w: squares(w) / 4 + 2 * noise(w),
    }
    of_policies = [report_weights(x, epsilons, counts, 0.05).per_report for x in WEIGHTINGS["mean"]]
    drawn = [epsilons ** rng.uniform(0, 1.5) for _ in range(4)]
    others = of_policies + [w / (counts @ w) for w in drawn]
    for policy, objective in objectives.items():
        own = report_weights(policy, epsilons, counts, 0.05).per_report
        assert counts @ own == pytest.approx(1)
        for other, share in itertools.product(others, (1.0, 0.1, 0.001)):
            mixed = (1 - share) * own + share * other
            assert objective(own) <= objective(mixed) * (1 + 1e-9), policy


def test_no_weights_leak_more_than_the_least_epsilon_allows() -> None:
    for kind in ["mean", "frequency"]:
        with row(kind):
            epsilons, counts = np.array([0.05, 0.5, 1.0, 8.0]), np.array([100.0, 5, 800, 1])
            for name, policy in WEIGHTINGS[kind].items():
                found = policy(epsilons, counts, math.log(20))
                losses = found.per_report / noise_scale(epsilons, found.per_report)
                assert np.all(losses <= epsilons * (1 + 1e-12)), name
                assert losses.max() > 0
                if found.saturation is not None:
                    assert losses == pytest.approx(np.minimum(epsilons, found.saturation)), name


def test_two_groups_saturate_where_the_paper_says() -> None:
    """ADPM, Table I: R = 1 + 8 / (e_1^2 n f)."""
    for first, share, n in ((0.1, 0.7, 1000), (0.5, 0.2, 50), (0.01, 0.5, 10_000)):
        counts = np.array([n * share, n * (1 - share)])
        ratio = 1 + 8 / (first**2 * n * share)
        for second in (first * (1 + ratio) / 2, first * ratio * 3):
            found = report_weights("adpm", np.array([first, second]), counts, 0.05)
            reach = min(second / first, ratio)
            assert found.per_report[1] / found.per_report[0] == pytest.approx(reach)
            assert found.saturation is not None
            if second > ratio * first:
                assert found.saturation == pytest.approx(ratio * first)
            else:  # one more level would buy something up to there
                assert second < found.saturation < ratio * first


def test_an_unknown_policy_names_those_of_the_kind() -> None:
    levels, counts = np.array([1.0]), np.array([9.0])
    with pytest.raises(ValueError, match=r"'hpm-ct'\? .*adpm"):
        report_weights("hpm-cta", levels, counts, 0.05)
    with pytest.raises(ValueError, match="weights = 'adpm'"):
        report_weights("adpm", levels, counts, 0.05, categories=3)
