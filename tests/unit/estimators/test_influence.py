"""Lies never move an estimate by more than is said, and the best liar moves it by as much."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators import LocalMetric, define
from estimators.bounds.manipulation import Reach, largest_shifts
from estimators.exact.randomness import SeededBits
from estimators.weights import WEIGHTINGS
from tests.support.reports.cases import CASES, metric_for, summed, values_for

LEVELS = (0.25, 1.0, 4.0)
CASE = st.sampled_from(sorted(CASES))
POLICY = st.sampled_from(sorted(WEIGHTINGS))


def statistic_of(metric: LocalMetric, counts: list[int], seed: int) -> np.ndarray[Any, Any]:
    level = np.repeat(np.arange(len(counts)), counts)
    return summed(metric, values_for(metric, level.size, seed), level, seed)


def value(metric: LocalMetric, statistic: np.ndarray[Any, Any], policy: str) -> Any:
    return metric.estimate(statistic, weights=policy, bound="normal")


@settings(max_examples=80)
@given(
    case=CASE,
    policy=POLICY,
    counts=st.lists(st.integers(0, 300), min_size=3, max_size=3).filter(any),
    lies=st.lists(st.integers(0, 2), min_size=1, max_size=12),
    seed=st.integers(0, 2**32),
    alike=st.booleans(),
)
def test_lies_never_move_an_estimate_by_more(
    case: str, policy: str, counts: list[int], lies: list[int], seed: int, alike: bool
) -> None:
    """Whatever their levels, whatever they say: added to it, and taken away from what they made."""
    metric = metric_for(case, LEVELS)
    honest = statistic_of(metric, counts, seed)
    level = [lies[0]] * len(lies) if alike else lies
    made_up = metric.randomize(
        values_for(metric, len(level), seed + 1), np.array(level), SeededBits(seed + 2)
    )
    if alike:
        made_up[:] = made_up[0]
    moved = honest.copy()
    metric.accumulate(moved, np.array(level), made_up)
    before, after = (value(metric, each, policy) for each in (honest, moved))
    change = np.asarray(after.value) - np.asarray(before.value)
    for estimate, among in ((before, False), (after, True)):
        said = metric.manipulation_bound(estimate, len(level), among=among)
        assert (np.abs(change) <= np.asarray(said.shift) * (1 + 1e-9) + 1e-12).all()
        assert said.largest == np.max(said.shift)
        quick = metric.manipulation_bound(estimate, len(level), among=among, each=False)
        assert quick.largest == pytest.approx(said.largest, rel=1e-12)
        if metric.kind == "vector_mean":
            assert said.l2 is not None
            assert np.linalg.norm(change) <= said.l2 * (1 + 1e-9)


def test_lies_are_put_where_they_weigh_most() -> None:
    """By trying all ways of having so many lies at two levels: the largest change is attained."""
    reach = Reach(np.array([1.0, 7.0]), np.array([-9.0, -1.5]), np.array([9.0, 1.5]))
    counts, value = np.array([6, 4]), np.array([0.3])
    total = float(counts @ reach.weights)
    for lies, among in itertools.product(range(1, 9), (True, False)):
        sign, most = (-1, (6, 4)) if among else (1, (lies, lies))
        tried = [
            (a * 1 * (9 + 0.3) + b * 7 * (1.5 + 0.3)) / (total + sign * (a + 7 * b))
            for a in range(most[0] + 1)
            for b in range(most[1] + 1)
            if a + b <= lies
        ]
        found = largest_shifts(value, counts, reach, lies, among=among)
        assert found[0] == pytest.approx(max(tried)), (lies, among)


def test_the_ends_nothing_counted_lies_alone_no_lies_and_releases() -> None:
    metric = metric_for("randomized_response", LEVELS)
    assert math.isnan(metric.manipulation_bound(metric.estimate(metric.zero()), 1).largest)
    some = value(metric, statistic_of(metric, [3, 2, 1], 0), "optimal")
    assert math.isinf(metric.manipulation_bound(some, 6, among=True).largest)
    assert metric.manipulation_bound(some, 0).largest == 0
    trusted = define(name="m", kind="mean", trust="central", range=(0, 1), levels=[1])
    assert not hasattr(trusted, "manipulation_bound")
    with pytest.raises(ValueError, match="influence"):
        trusted.randomizer.report_range()
