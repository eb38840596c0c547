"""The mixture behind the bounds that hold at all times, piece by piece."""

from __future__ import annotations

import numpy as np
import pytest

from estimators.bounds import FlipNoise, Law, anytime, interval
from estimators.weights import WEIGHTINGS, LevelFacts, level_weights, total_weight
from tests.support.reports.widths import anytime_ratio, signs
from tests.support.rows import row

FACTS = LevelFacts(np.array([0.5, 1.0, 4.0]), np.array([16.0, 5.0, 1.1]), np.array([0.2, 0.4, 0.9]))


def test_the_weights_of_the_mixture_are_a_probability() -> None:
    assert np.exp(anytime.LOG_WEIGHTS).sum() == pytest.approx(1)
    assert np.all(np.diff(anytime.TILTS) > 0)


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


@pytest.mark.parametrize(("epsilon", "theta"), [(0.25, 0.0), (1.0, 0.95), (4.0, 0.95)])
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


def test_it_is_at_most_twice_as_wide_as_the_normal_law() -> None:
    for k, most in ((1, 1.85), (16, 1.5), (1024, 1.35)):
        for n, theta in ((10_000, 0.9), (100_000, 0.0), (1_000_000, -0.9)):
            law = signs(n, min(k, 2), max(k, 2), free=False)
            with row(n, theta, k):
                assert 1 < anytime_ratio(law, theta, k) < most


def test_noise_that_falls_short_of_every_tilt_is_not_bounded() -> None:
    noise = FlipNoise(np.array([1.0]), np.array([1e12]), np.array([0.25]))
    assert anytime.deviation(noise.cumulant, noise.steepest, -3.0, 1.0) == np.inf
