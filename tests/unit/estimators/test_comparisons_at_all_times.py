"""Comparisons that hold at all times: exact chances along paths, width, and p-values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from estimators import SeededBits, compare, define
from estimators.bounds import Law
from estimators.comparison import mixtures
from estimators.comparison.arms import Arm
from estimators.comparison.joint import anytime
from tests.support.rows import row


def test_the_weights_of_all_pairs_are_a_probability() -> None:
    for split in (None, 0.01, 1.0, 2.7, 100.0):
        plan = mixtures.Plan.of(split)
        with row(split):
            assert np.exp(plan.log_weights).sum() == pytest.approx(1)
            assert np.all(np.diff(plan.first) > 0)
            assert np.all(np.diff(plan.second) > 0)


def arm(ones: Any, n: int, contrast: float) -> Arm:
    law = Law(np.array([float(n)]), np.array([1 / (n * contrast)]), np.array([contrast]))
    return Arm((2 * np.asarray(ones) - n) / (n * contrast), law, None, n * contrast)


def test_hadamard_mechanisms_have_a_joint_law() -> None:
    metric = define(
        name="m", kind="frequency", mechanism="hadamard_response", categories=3, levels=[1, 4]
    )
    rng, arms = np.random.default_rng(5), []
    for shares in ([0.3, 0.5, 0.2], [0.5, 0.3, 0.2]):
        level = rng.integers(0, 2, 8000)
        arms.append(metric.zero())
        values = rng.choice(3, 8000, p=shares)
        metric.accumulate(arms[-1], level, metric.randomize(values, level, SeededBits(5)))
    found = compare(metric, arms[0], arms[1], bound="anytime", split=1.0)
    union = compare(metric, arms[0], arms[1], bound="anytime", independent=False)
    assert (found.law, union.law) == ("joint", "union")
    lower, upper, truth = np.asarray(found.lower), np.asarray(found.upper), np.array([-0.2, 0.2, 0])
    assert np.all((lower < truth) & (truth < upper))
    assert np.all(upper - lower < 0.8 * (np.asarray(union.upper) - np.asarray(union.lower)))
    assert list(np.asarray(found.decided)) == [True, True, False]
    assert compare(metric, arms[0], arms[1], of="ratio").law == "union"


@pytest.mark.parametrize(
    ("thetas", "split"),
    [
        ((0.0, 0.0), 1.0),
        ((0.95, 0.7), None),
        pytest.param((0.0, 0.0), None, marks=pytest.mark.more),
        pytest.param((0.95, 0.7), 1.0, marks=pytest.mark.more),
    ],
)
def test_the_exact_chance_of_ever_missing_is_below_beta(
    thetas: tuple[float, float], split: float | None
) -> None:
    """By walking through all paths of 20 reports an arm, in turns, looking at every second turn."""
    beta, contrast = 0.5, 0.95
    chance = [(1 + contrast * t) / 2 for t in thetas]
    inside, left = np.ones((1, 1)), 0.0
    for n in range(1, 21):
        for axis, p in enumerate(chance):
            padding = [(0, 0), (0, 0)]
            padding[axis] = (0, 1)
            up = [(0, 0), (0, 0)]
            up[axis] = (1, 0)
            inside = np.pad(inside * (1 - p), padding) + np.pad(inside * p, up)
        ones = [x.ravel() for x in np.meshgrid(*[np.arange(n + 1)] * 2, indexing="ij")]
        if n % 2:
            continue
        found = anytime(arm(ones[0], n, contrast), arm(ones[1], n, contrast), beta, split)
        delta = thetas[0] - thetas[1]
        outside = ((delta < found.lower) | (delta > found.upper)).reshape(inside.shape)
        left += inside[outside].sum()
        if delta == 0:
            assert np.array_equal(outside.ravel(), found.p_value <= beta)
        inside[outside] = 0
    assert left <= beta
    assert left + inside.sum() == pytest.approx(1)


@pytest.mark.parametrize("mechanism", ["laplace", "auto", "repetition"])
def test_noise_alone_has_bounds_at_all_times(mechanism: str) -> None:
    metric = define(name="m", kind="mean", mechanism=mechanism, range=(0, 1), levels=[1, 4])
    rng = np.random.default_rng(1)
    level = metric.level_of(rng.choice([1.0, 4.0], 4000))
    arms = []
    for share in (0.4, 0.6):
        arms.append(metric.zero())
        values = rng.random(4000) < share
        metric.accumulate(arms[-1], level, metric.randomize(values.astype(float), level))
    joint = compare(metric, arms[0], arms[1], bound="anytime", target="sample", split=1.0)
    assert joint.lower < -0.2 < joint.upper
    assert joint.upper - joint.lower < 0.5
