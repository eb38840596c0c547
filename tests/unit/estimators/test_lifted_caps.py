"""Caps of one more dimension: no bias, and the variance of the formula, all over the ball."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from estimators import compare, define
from estimators.exact.randomness import SeededBits
from estimators.mechanisms import LiftedCaps


@pytest.mark.parametrize(
    ("dimension", "epsilon", "length"), [(2, 4, 0.0), (2, 4, 1.0), (3, 2, 0.5)]
)
def test_reports_are_unbiased_with_the_variance_of_the_formula(
    dimension: int, epsilon: int, length: float
) -> None:
    """Of 30,000 reports; 5 standard errors: a false alarm in all has a chance below 10^-4."""
    mechanism, n = LiftedCaps([Fraction(epsilon)], dimension=dimension, grid=2**14), 30_000
    x = length * np.array([0.6, -0.8, 0.0])[:dimension]
    reports = mechanism.randomize(np.tile(x, (n, 1)), np.zeros(n, np.uint8), SeededBits(3))
    found = reports[:, :dimension] * (mechanism.scale[0] / mechanism.grid)
    assert np.all(np.abs(found.mean(axis=0) - x) < 5 * found.std(axis=0) / math.sqrt(n))
    square = ((found - x) ** 2).sum(axis=1)
    expected = float(mechanism.variance(length)[0])
    assert abs(square.mean() - expected) < 5 * square.std() / math.sqrt(n)


def test_a_comparison_has_the_coordinates_of_a_value() -> None:
    ball: dict[str, Any] = {"kind": "vector_mean", "dimension": 2, "radius": 2}
    metric = define(name="place", mechanism="lifted_caps", levels=[1, 4], **ball)
    level = np.repeat([0, 1], 1000).astype(np.uint8)
    arms = []
    for seed, held in enumerate((0.3, -0.4)):
        arms.append(metric.zero())
        reports = metric.randomize(np.full((2000, 2), held), level, SeededBits(seed))
        metric.accumulate(arms[-1], level, reports)
    questions: list[dict[str, Any]] = [{}, {"bound": "anytime"}, {"target": "sample"}]
    for question in questions:
        found = compare(metric, arms[0], arms[1], **question)
        assert np.shape(found.value) == (2,)
        assert np.all((found.lower > 0) & (found.lower < 0.7) & (found.upper > 0.7)), question
