"""What the experiments compare with is what its authors publish."""

from __future__ import annotations

import math

import numpy as np
import pytest

from estimators.exact.randomness import SeededBits
from reproduction.baselines import sampling_frequencies
from reproduction.experiments.bounds import CASES
from reproduction.experiments.hdpwc import central_demands
from reproduction.experiments.hist_bounds import CATEGORIES, USERS, exact_bound, flip_chance
from reproduction.experiments.published_bounds import LEVELS, nprr_interval, nprr_sequence
from reproduction.experiments.records import Records, cases, wages


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


def test_the_laws_bound_of_a_maximum_is_that_of_simulated_flips() -> None:
    """The mean of 200 maxima stays below, and above half of it."""
    rng = np.random.default_rng(3)
    for epsilon in (1.0, 8.0, 16.0):
        flip = flip_chance(epsilon)
        off = rng.binomial(USERS, flip, (20, CATEGORIES)) / USERS - flip
        largest = np.abs(off).max(axis=1).mean() / (1 - 2 * flip)
        assert exact_bound(epsilon) / 2 < largest < exact_bound(epsilon)


def test_demands_are_the_papers_law_of_twelve_bins() -> None:
    bins = np.repeat(np.arange(12), 1000)
    logs = np.log(central_demands(bins, 12, np.random.default_rng(4))).reshape(12, 1000)
    away = np.abs(np.arange(1, 13) - 6.5)
    assert (np.abs(logs + away[:, None]) <= 3).all()
    assert np.abs(logs.mean(axis=1) + away).max() < 4 * math.sqrt(3 / 1000)


def test_records_stand_where_stand_ins_would() -> None:
    rng = np.random.default_rng(6)
    paid = Records(("a",), wages=np.arange(1.0, 9.0))
    both = paid.joined(Records(("b",), cases=np.array([3, 2])))
    assert both.told == ("a", "b")
    assert sorted(wages(both, rng)[0]) == list(range(1, 9))
    assert cases(both, rng)[0].tolist() == [0, 0, 0, 1, 1]
