"""What every mechanism has to pass, by being listed in MECHANISMS."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators import ReportError
from estimators.exact.randomness import SeededBits
from estimators.exact.thresholds import exp_bounds
from estimators.mechanisms import mechanism_class
from tests.support.reports.cases import (
    CASES,
    CATEGORIES,
    COMPOSITE,
    DIMENSION,
    LEVELS,
    MANY_LEVELS,
    exact,
    metric_for,
    values_for,
)

#: Bytes of a report and cells of the statistic a level, as documented; 10 categories.
SIZES = {
    "randomized_response": (1, 2),
    "windows": (1, 1 + 30),
    "laplace": (4, 4),
    "rappor": (2, 1 + CATEGORIES),
    "grr": (1, 1 + CATEGORIES),
    "oue": (2, 1 + CATEGORIES),
    "subset_selection": (2, 1 + CATEGORIES),
    "hadamard_response": (1, 1 + 32),
    "projective_geometry_response": (1, 1 + 15),
    "recursive_hadamard": (1, 1 + 32),
    "projection": (1, 1 + 16),
    "count_sketch": (2, 1 + 65536),
    "projective_sketch": (2, 1 + 16383),
    "prefix_tree": (4, 1 + 70644 + 8 * 1407),
    "caps": (DIMENSION, 1 + 2 * DIMENSION),
    "lifted_caps": (DIMENSION + 1, 1 + 2 * (DIMENSION + 1)),
    "hemisphere": (2 * DIMENSION, 1 + DIMENSION),
    "dyadic_hadamard": (5, 2 * 16),
    "auto_frequency": (2, 1 + CATEGORIES),
    "auto_mean": (1, 1 + 30),
    "repetition_frequency": (4 * 2, 1 + CATEGORIES),
    "repetition_mean": (4, 2),
}

every_mechanism = pytest.mark.parametrize("name", CASES)


#: What is a share; the others are between -1 and 1.
SHARES = ("frequency", "distribution")


def unknown(metric: Any, numbers: Any) -> Any:
    """Return the numbers that are estimated: F is known at the first edge and at the last."""
    return numbers[1:-1] if metric.kind == "distribution" else numbers


def own_value(metric: Any, estimate: Any) -> Any:
    """Return the numbers that an estimate's bounds are for; F ascends before it is compared."""
    return unknown(metric, estimate.shown if metric.kind == "distribution" else estimate.value)


def population(name: str, n: int, seed: int = 1) -> tuple[Any, Any, Any]:
    metric = metric_for(name)
    level = np.random.default_rng(seed).integers(0, len(LEVELS), n).astype(np.uint8)
    return metric, level, metric.randomize(values_for(metric, n, seed), level, SeededBits(seed))


@every_mechanism
def test_sizes_are_as_documented(name: str) -> None:
    metric = metric_for(name)
    width, columns = SIZES[name]
    assert metric.randomizer.width == width
    assert metric.randomizer.columns == columns
    assert metric.zero().shape == (len(LEVELS) * columns,)
    assert metric.zero().dtype == np.int64


@every_mechanism
def test_reports_survive_the_wire(name: str) -> None:
    metric, level, reports = population(name, 300)
    wire = metric.randomizer.encode(reports)
    metric.randomizer.check(level.tobytes(), wire)
    back = metric.randomizer.decode(wire)
    assert back.dtype == metric.randomizer.dtype
    assert back.shape == (300, *metric.randomizer.shape)
    assert np.array_equal(back, reports)


@every_mechanism
@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 2**32 - 1), cut=st.integers(0, 400))
def test_accumulation_is_additive_and_free_of_order(name: str, seed: int, cut: int) -> None:
    metric, level, reports = population(name, 400, seed)
    whole = metric.zero()
    metric.accumulate(whole, level, reports)
    first, second = metric.zero(), metric.zero()
    metric.accumulate(first, level[:cut], reports[:cut])
    metric.accumulate(second, level[cut:], reports[cut:])
    assert np.array_equal(first + second, whole)
    order = np.random.default_rng(seed).permutation(400)
    shuffled = metric.zero()
    metric.accumulate(shuffled, level[order], reports[order])
    assert np.array_equal(shuffled, whole)
    assert np.array_equal(metric.counts(whole), np.bincount(level, minlength=len(LEVELS)))


@every_mechanism
@settings(deadline=None)
@given(data=st.data())
def test_what_the_check_lets_through_can_be_counted(name: str, data: st.DataObject) -> None:
    metric = metric_for(name)
    n = data.draw(st.integers(0, 5))
    levels = data.draw(st.binary(min_size=n, max_size=n).map(lambda b: bytes(x % 5 for x in b)))
    size = n * metric.randomizer.width
    values = data.draw(st.binary(min_size=size, max_size=size) | st.just(bytes(size)))
    statistic = metric.zero()
    try:
        metric.randomizer.check(levels, values)
    except ReportError as error:
        assert error.reason == "bad_value"  # noqa: PT017
        return
    level = np.frombuffer(levels, dtype=np.uint8)
    metric.accumulate_checked(statistic, level, metric.randomizer.decode(values))
    assert metric.counts(statistic).sum() == n
    again = metric.zero()
    metric.accumulate(again, level, metric.randomizer.decode(values))
    assert np.array_equal(again, statistic)


@every_mechanism
@pytest.mark.parametrize("change", [-1, 1])
def test_a_wrong_length_is_refused(name: str, change: int) -> None:
    metric, level, reports = population(name, 10)
    wire = metric.randomizer.encode(reports)
    wrong = wire[:change] if change < 0 else wire + b"\x00"
    with pytest.raises(ReportError) as refused:
        metric.randomizer.check(level.tobytes(), wrong)
    assert refused.value.reason == "bad_length"


@every_mechanism
def test_an_unknown_level_is_refused_and_nothing_is_added(name: str) -> None:
    metric, level, reports = population(name, 10)
    levels = bytearray(level.tobytes())
    levels[7] = len(LEVELS)
    with pytest.raises(ReportError) as refused:
        metric.randomizer.check(bytes(levels), metric.randomizer.encode(reports))
    assert refused.value.reason == "bad_level"
    statistic = metric.zero()
    with pytest.raises(ReportError, match="bad_level"):
        metric.accumulate(statistic, np.frombuffer(bytes(levels), np.uint8), reports)
    assert not statistic.any()


@every_mechanism
def test_every_level_is_private(name: str) -> None:
    randomizer = metric_for(name, MANY_LEVELS).randomizer
    for level, epsilon in enumerate(MANY_LEVELS):
        assert randomizer.is_private(level)
        assert 1 < randomizer.privacy_ratio(level) <= exp_bounds(exact(epsilon))[1]


@every_mechanism
@pytest.mark.parametrize("level", range(len(LEVELS)))
def test_every_level_is_unbiased(name: str, level: int) -> None:
    """Within 5 worst-case standard errors: fails once in 10^6 seeds for each number compared."""
    metric, n = metric_for(name), 40_000
    values = values_for(metric, n)
    index = np.full(n, level, dtype=np.uint8)
    statistic = metric.zero()
    metric.accumulate(statistic, index, metric.randomize(values, index, SeededBits(level)))
    estimate = metric.estimate(statistic)
    truth: Any
    spread = 1.0 if metric.kind not in SHARES else 0.5
    if metric.kind == "distribution":
        edges = np.arange(CATEGORIES + 1) / CATEGORIES
        truth = np.searchsorted(np.sort(values), edges) / n
    elif metric.kind == "frequency":
        truth = np.unique(values, return_counts=True)[1] / n
    else:
        truth = values.mean(axis=0)
    error = spread / np.sqrt(estimate.effective_reports)
    assert np.all(np.abs(estimate.value - truth) < 5 * error)
    assert estimate.weights.tolist() == np.eye(len(LEVELS))[level].tolist()


@every_mechanism
@pytest.mark.parametrize("target", ["population", "sample"])
@pytest.mark.parametrize("weights", ["optimal", "paper", "uniform", "proportional"])
def test_an_estimate_says_what_it_rests_on(name: str, target: str, weights: str) -> None:
    metric, level, reports = population(name, 5000)
    statistic = metric.zero()
    metric.accumulate(statistic, level, reports)
    estimate = metric.estimate(statistic, beta=0.1, weights=weights, target=target)
    low, high = (0, 1) if metric.kind in SHARES else (-1, 1)
    lower, upper = unknown(metric, estimate.lower), unknown(metric, estimate.upper)
    value = own_value(metric, estimate)
    assert np.all((low <= lower) & (lower < upper))
    assert np.all(upper <= high)
    assert np.all((lower <= value) | (value < low))
    assert np.all((upper >= value) | (value > high))
    assert estimate.reports == 5000
    assert 0 < estimate.effective_reports < 5000
    assert estimate.weights.sum() == pytest.approx(1)
    assert (estimate.policy, estimate.target, estimate.beta) == (weights, target, 0.1)
    assert estimate.levels == LEVELS


@every_mechanism
@pytest.mark.parametrize("target", ["population", "sample"])
@pytest.mark.parametrize("bound", ["fixed", "anytime", "normal"])
def test_an_estimate_lies_within_each_of_its_bounds(name: str, bound: str, target: str) -> None:
    metric, level, reports = population(name, 5000)
    statistic = metric.zero()
    low, high = (-1, 1) if metric.kind == "mean" else (0, 1)
    for part in np.array_split(np.arange(5000), [1, 2, 5, 20, 100, 1000]):
        metric.accumulate(statistic, level[part], reports[part])
        estimate = metric.estimate(statistic, bound=bound, target=target)
        value = np.clip(own_value(metric, estimate), low, high)
        lower, upper = unknown(metric, estimate.lower), unknown(metric, estimate.upper)
        assert np.all((lower <= value) & (value <= upper))
        assert estimate.bound == bound


@every_mechanism
@pytest.mark.parametrize("weights", ["optimal", "paper", "uniform", "proportional"])
def test_a_bound_for_all_times_is_wider_than_one_for_a_fixed_number(
    name: str, weights: str
) -> None:
    metric, level, reports = population(name, 5000)
    statistic = metric.zero()
    metric.accumulate(statistic, level, reports)
    fixed, anytime, automatic = (
        metric.estimate(statistic, bound=bound, weights=weights)
        for bound in ("fixed", "anytime", "auto")
    )
    lower, upper = unknown(metric, anytime.lower), unknown(metric, anytime.upper)
    assert np.all((lower < unknown(metric, fixed.lower)) | (lower == metric_low(metric)))
    most = 1.0 if metric.kind == "distribution" else np.inf  # near its end F may be all but 1
    assert np.all((upper > unknown(metric, fixed.upper)) | (upper == most))
    assert np.all(automatic.lower == fixed.lower)
    assert automatic.bound == "fixed"


def metric_low(metric: Any) -> float:
    return -1.0 if metric.kind == "mean" else 0.0


@every_mechanism
@pytest.mark.parametrize("bound", ["fixed", "anytime", "normal"])
def test_a_bound_narrows_when_more_may_fail(name: str, bound: str) -> None:
    metric, level, reports = population(name, 5000)
    statistic = metric.zero()
    metric.accumulate(statistic, level, reports)
    wide, narrow = (metric.estimate(statistic, beta=beta, bound=bound) for beta in (0.01, 0.2))
    assert np.all(wide.lower <= narrow.lower)
    assert np.all(narrow.upper <= wide.upper)


@every_mechanism
def test_nothing_is_known_before_the_first_report(name: str) -> None:
    metric = metric_for(name)
    estimate = metric.estimate(metric.zero())
    low, high = (0, 1) if metric.kind in SHARES else (-1, 1)
    assert np.all(np.isnan(estimate.value))
    assert np.all(unknown(metric, estimate.lower) == low)
    assert np.all(unknown(metric, estimate.upper) == high)
    assert (estimate.reports, estimate.effective_reports) == (0, 0)
    assert not estimate.weights.any()


@every_mechanism
@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_first_reports_already_have_bounds(name: str, n: int) -> None:
    metric = metric_for(name, MANY_LEVELS)
    values, often = values_for(metric, n), metric.mechanism not in COMPOSITE
    for level, seed in itertools.product(range(len(MANY_LEVELS)), range(6 if often else 3)):
        index = np.full(n, level, dtype=np.uint8)
        statistic = metric.zero()
        metric.accumulate(statistic, index, metric.randomize(values, index, SeededBits(seed)))
        for bound in ("fixed", "anytime", "normal") if seed < 3 else ("fixed",):
            for target in ("population", "sample"):
                estimate = metric.estimate(statistic, target=target, bound=bound)
                assert np.all(np.isfinite(estimate.value)), (bound, target)
                assert np.all(estimate.lower <= estimate.upper), (bound, target)


@every_mechanism
def test_a_metric_can_be_copied(name: str) -> None:
    metric, level, reports = population(name, 200)
    statistic = metric.zero()
    metric.accumulate(statistic, level, reports)
    again = copy.deepcopy(metric)
    assert type(again.randomizer) is type(metric.randomizer)
    assert np.array_equal(again.estimate(statistic).value, metric.estimate(statistic).value)


@every_mechanism
def test_it_is_documented_with_an_example_and_its_source(name: str) -> None:
    text = mechanism_class(*CASES[name]).__doc__ or ""
    assert ">>>" in text
    assert "Source:" in text


every_histogram = pytest.mark.parametrize(
    "name", [name for name, (_, kind) in CASES.items() if kind == "frequency"]
)


@every_histogram
@pytest.mark.parametrize("target", ["population", "sample"])
@pytest.mark.parametrize("bound", ["fixed", "anytime", "normal"])
def test_what_is_asked_for_has_the_same_value_and_narrower_bounds(
    name: str, bound: str, target: str
) -> None:
    metric, level, reports = population(name, 5000)
    statistic = metric.zero()
    metric.accumulate(statistic, level, reports)
    whole = metric.estimate(statistic, bound=bound, target=target)
    labels = (whole.labels[7], whole.labels[2])
    some = metric.estimate(statistic, bound=bound, target=target, categories=labels)
    assert some.labels == labels
    assert np.allclose(some.value, np.asarray(whole.value)[[7, 2]], rtol=0, atol=1e-12)
    alone = metric.estimate(
        statistic, bound=bound, target=target, categories=labels, simultaneous=False
    )
    widths = [np.asarray(e.upper) - np.asarray(e.lower) for e in (alone, some)]
    widths.append((np.asarray(whole.upper) - np.asarray(whole.lower))[[7, 2]])
    assert np.all(widths[0] < widths[1])
    assert np.all(widths[1] < widths[2])
    pointwise = metric.estimate(statistic, bound=bound, target=target, simultaneous=False)
    # categories with nearly the same sum may share a limit
    assert np.all(np.abs(np.asarray(pointwise.lower)[[7, 2]] - alone.lower) < 0.02 * widths[0])


@every_histogram
def test_the_largest_keep_their_bounds(name: str) -> None:
    metric, level, reports = population(name, 5000)
    statistic = metric.zero()
    metric.accumulate(statistic, level, reports)
    whole = metric.estimate(statistic)
    top = whole.top(3)
    values = np.asarray(whole.value)
    order = np.argsort(-values, kind="stable")[:3]
    assert top.labels == tuple(whole.labels[i] for i in order)
    assert np.array_equal(top.value, values[order])
    assert np.array_equal(top.upper, np.asarray(whole.upper)[order])
    assert whole.top(100).labels == tuple(whole.labels[i] for i in np.argsort(-values))
    assert whole.top(0).labels == ()
