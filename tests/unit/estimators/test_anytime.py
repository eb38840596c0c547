"""The mixture behind the bounds that hold at all times, piece by piece."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from estimators.bounds import FlipNoise, Law, anytime, interval
from estimators.weights import WEIGHTINGS, LevelFacts, level_weights, total_weight
from tests.support.reports.widths import anytime_ratio, signs

FACTS = LevelFacts(np.array([0.5, 1.0, 4.0]), np.array([16.0, 5.0, 1.1]), np.array([0.2, 0.4, 0.9]))


def test_the_weights_of_the_mixture_are_a_probability() -> None:
    assert np.exp(anytime.LOG_WEIGHTS).sum() == pytest.approx(1)
    assert np.all(np.diff(anytime.TILTS) > 0)


@pytest.mark.parametrize("policy", WEIGHTINGS)
@given(counts=st.lists(st.integers(0, 10**6), min_size=3, max_size=3).filter(any))
def test_a_report_weighs_the_same_whatever_the_others_are(policy: str, counts: list[int]) -> None:
    """What the proof needs: share times total over count is a constant of the level."""
    n = np.array(counts)
    weight = level_weights(policy, n, FACTS) * total_weight(policy, n, FACTS) / np.maximum(n, 1)
    per_report = WEIGHTINGS[policy](FACTS)
    fixed = per_report / (per_report * np.sqrt(FACTS.variances)).max()
    assert weight[n > 0] == pytest.approx(fixed[n > 0])


@settings(deadline=None)
@given(n=st.integers(1, 60), epsilon=st.sampled_from([0.25, 1.0, 4.0]), theta=st.floats(-1, 1))
def test_the_mixture_has_mean_at_most_one(n: int, epsilon: float, theta: float) -> None:
    """By summing over all outcomes, at a time n; at all times it then is a martingale."""
    contrast = np.tanh(epsilon / 2)
    law = Law(np.array([float(n)]), np.array([1 / (n * contrast)]), np.array([contrast]))
    ones = np.arange(n + 1)
    chance = binom.pmf(ones, n, (1 + contrast * theta) / 2)
    observed = (2 * ones - n) / (n * contrast)
    terms = anytime._terms(law, observed, 3.7, n * contrast)
    for touching in (theta, 0.9 * theta, 0.0):
        lines = anytime._tangents(law, np.full(n + 1, touching), terms)
        value, _ = lines.log_mixture(np.full(n + 1, theta), observed)
        assert chance @ np.exp(value) <= 1 + 1e-9


@pytest.mark.parametrize("epsilon", [0.25, 1.0, 4.0])
@pytest.mark.parametrize("theta", [0.0, 0.95])
def test_the_exact_chance_of_ever_leaving_the_bounds_is_below_beta(
    epsilon: float, theta: float
) -> None:
    """By walking through all paths of 120 reports, those outside taken off at every step."""
    beta, contrast = 0.2, float(np.tanh(epsilon / 2))
    p = (1 + contrast * theta) / 2
    inside, left = np.ones(1), 0.0
    for n in range(1, 121):
        inside = np.append(inside * (1 - p), 0) + np.append(0, inside * p)
        law = Law(np.array([float(n)]), np.array([1 / (n * contrast)]), np.array([contrast]))
        observed = (2 * np.arange(n + 1) - n) / (n * contrast)
        lower, upper = interval(law, observed, np.log(beta / 2), n * contrast)
        outside = (theta < lower) | (theta > upper)
        left += inside[outside].sum()
        inside[outside] = 0
    assert left <= beta
    assert left + inside.sum() == pytest.approx(1)


@pytest.mark.parametrize(("k", "most"), [(1, 1.85), (16, 1.5), (1024, 1.35)])
@pytest.mark.parametrize("theta", [0.0, 0.9, -0.9])
@pytest.mark.parametrize("n", [10_000, 100_000, 1_000_000])
def test_it_is_at_most_twice_as_wide_as_the_normal_law(
    n: int, theta: float, k: int, most: float
) -> None:
    law = signs(n, min(k, 2), max(k, 2), free=False)
    assert 1 < anytime_ratio(law, theta, k) < most


def test_noise_that_falls_short_of_every_tilt_is_not_bounded() -> None:
    noise = FlipNoise(np.array([1.0]), np.array([1e12]), np.array([0.25]))
    assert anytime.deviation(noise.cumulant, noise.steepest, -3.0, 1.0) == np.inf
