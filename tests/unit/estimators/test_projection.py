"""Projection onto signs: both matrices, their decoders, open vocabularies and scale."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import scipy.linalg

from estimators import LocalMetric
from estimators.bounds import Law
from estimators.bounds.sketches import projection_limits
from estimators.exact.randomness import SeededBits
from estimators.mechanisms import Projection
from estimators.question import Question
from tests.support.reports.cases import LEVELS, exact, metric_for, summed, values_for

EPSILONS = [exact(level) for level in LEVELS]
WORDS = ["GET", "POST", "PUT", "DELETE"]


def open_metric(**changes: Any) -> LocalMetric:
    definition: dict[str, Any] = {
        "categories": "open",
        "watch": WORDS[:2],
        "options": {"rows": 3000, "seed": 4},
    }
    return metric_for("projection", **{**definition, **changes})


def filled(metric: LocalMetric, values: Any) -> Any:
    return summed(metric, values, np.arange(len(values)) % len(LEVELS))


def test_hadamards_columns_are_balanced_and_orthogonal() -> None:
    for categories, rows in ((2, 4), (3, 4), (4, 8), (10, 16), (1000, 1024)):
        mechanism = Projection(EPSILONS, categories=categories)
        drawn = mechanism.positive(np.arange(rows)[:, None], np.arange(categories))
        assert mechanism.rows == rows
        expected = scipy.linalg.hadamard(rows)[:, 1 : 1 + categories] == 1
        assert np.array_equal(drawn, expected), categories


@pytest.mark.parametrize(
    ("categories", "options"),
    [(2, {}), (200, {}), (10, {"rows": 7}), (300, {"rows": 5000, "seed": 2**64 - 1})],
)
def test_the_decoder_is_the_matrixs_product(categories: int, options: dict[str, int]) -> None:
    mechanism = Projection(EPSILONS, categories=categories, **options)
    table = np.random.default_rng(1).integers(-(10**6), 10**6, (len(LEVELS), mechanism.columns))
    table[:, 0] = np.abs(table[:, 1:]).sum(axis=1)
    row, value = np.arange(mechanism.rows)[:, None], np.arange(categories)
    signs = np.where(mechanism.positive(row, value), 1, -1)
    expected = (table[:, :1] + table[:, 1:] @ signs) // 2
    assert np.array_equal(mechanism.support(table), expected)
    for asked in (value[::-1], value[-1:], value[:0]):
        assert np.array_equal(mechanism.support_of(table, asked), expected[:, asked])


def test_the_statistic_is_the_sum_of_the_signs_of_each_row() -> None:
    for options in ({}, {"rows": 40}):
        mechanism = Projection(EPSILONS, categories=10, **options)
        level = np.arange(3000) % len(LEVELS)
        values = values_for(metric_for("projection"), 3000)
        reports = mechanism.randomize(values, level, SeededBits(3)).astype(np.int64)
        table = np.zeros((len(LEVELS), mechanism.columns), dtype=np.int64)
        mechanism.accumulate(table, level, reports)
        expected = np.zeros((len(LEVELS), mechanism.rows), dtype=np.int64)
        np.add.at(expected, (level, reports // 2), 2 * (reports % 2) - 1)
        assert np.array_equal(table[:, 1:], expected), options


@pytest.mark.parametrize("bound", ["fixed", "anytime", "normal"])
@pytest.mark.parametrize("target", ["population", "sample"])
def test_an_estimate_from_random_signs_lies_within_its_bounds(bound: str, target: str) -> None:
    unasked = open_metric(watch=None)
    estimate = unasked.estimate(filled(unasked, ["GET"] * 100), bound=bound, target=target)
    assert np.asarray(estimate.value).shape == np.asarray(estimate.lower).shape == (0,)
    for rows, n in itertools.product((1, 30, 3000), (1, 20, 3000)):
        metric = metric_for("projection", options={"rows": rows})
        assert np.isnan(metric.estimate(metric.zero(), bound=bound, target=target).value).all()
        statistic = filled(metric, values_for(metric, n))
        wide, narrow = (
            metric.estimate(statistic, beta=beta, bound=bound, target=target)
            for beta in (0.01, 0.2)
        )
        value = np.clip(wide.value, 0, 1)
        limits = np.array([wide.lower, narrow.lower, value, narrow.upper, wide.upper])
        assert np.all(np.diff(limits, axis=0) >= 0), (rows, n)


@pytest.mark.parametrize("rows", [1000, 50_000])
def test_the_bias_has_hoeffdings_bound_and_a_moving_one_that_of_all_values(rows: int) -> None:
    """Of 10^11 reports hardly any noise is left: what remains is the bias at half of beta."""
    law = Law(np.array([1e11]), np.array([1e-11]), np.ones(1))
    moving = Question(bound="anytime", weights="uniform")
    for question, share, values in ((Question(), 1 / 2, 0), (moving, 1 / 8, math.log(1000))):
        parts = law, np.array([0.5]), question, 1e11, rows, math.log(1000)
        lower, upper = projection_limits(*parts)
        bias = math.sqrt(2 / rows * (values - math.log(0.025 * share)))
        assert upper[0] == pytest.approx((0.5 + bias) / (1 + bias), rel=1e-4)
        assert lower[0] == pytest.approx((0.5 - bias) / (1 - bias), rel=1e-4)
