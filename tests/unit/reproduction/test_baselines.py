"""What the experiments compare with is what its authors publish."""

from __future__ import annotations

import math

import numpy as np
import pytest

from estimators.exact.randomness import SeededBits
from reproduction.baselines import sampling_frequencies
from reproduction.experiments.bounds import CASES
from reproduction.experiments.published_bounds import LEVELS, nprr_interval, nprr_sequence


def test_nprr_is_the_package_of_its_authors() -> None:
    """From nprr 0.1.4, nprr_hoeffding_cs at beta = 0.05: with lambdas for n = 400, and its own."""
    n = 400
    ones = (np.arange(n) * 7) % 10 < 6
    contrast = np.tanh(np.array([0.5, 1.0, 2.0])[np.arange(n) % 3] / 2)
    signs = np.where(ones, 1.0, -1.0)
    for bound, lower, upper in (
        (nprr_interval, 0.5656429518507257, 0.8434120838623674),
        (nprr_sequence, 0.5296619294120184, 0.8881034473095435),
    ):
        middle, half = bound(signs, contrast, 0.05)
        assert (middle - half + 1) / 2 == pytest.approx(lower, rel=1e-12)
        assert (middle + half + 1) / 2 == pytest.approx(upper, rel=1e-12)


def test_the_papers_constant_for_laplace_solves_its_equation() -> None:
    case = next(case for case in CASES if case.name.startswith("Laplace"))
    rng = np.random.default_rng(1)
    seen = case.seen(case.values(1000, rng), rng, SeededBits(1))
    _, t = case.others["HLDP"](seen)
    epsilon = np.repeat(LEVELS, 200)
    w = epsilon**2 / (1 + epsilon**2)
    w /= w.sum()
    noise = min(t**2 / (128 * (w**2 / epsilon**2).sum()), t / (16 * (w / epsilon).max()))
    chance = 2 * math.exp(-(t**2) / (8 * (w**2).sum())) + 2 * math.exp(-noise)
    assert chance == pytest.approx(0.05, rel=1e-6)


def test_sampled_frequencies_are_unbiased_and_as_noisy_as_laplace_noise() -> None:
    """Within 4 standard errors over 2,000 draws; all are kept at one level."""
    rng, values = np.random.default_rng(2), np.repeat([0, 1, 2], [10, 30, 60])
    found = np.array([sampling_frequencies(values, 3, np.full(100, 0.5), rng) for _ in range(2000)])
    scale = math.sqrt(2) * 2 / (0.5 * 100)
    assert np.abs(found.mean(axis=0) - [0.1, 0.3, 0.6]).max() < 4 * scale / math.sqrt(2000)
    assert found.std() == pytest.approx(np.hypot(scale, np.std([0.1, 0.3, 0.6])), rel=0.05)
