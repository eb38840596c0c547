"""Comparisons of distributions hold as they say, for shares below limits and for quantiles.

Values are where bounds are hardest: all at one side of a limit, or split by it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import binom

from estimators import Comparison, LocalMetric, compare, define
from estimators.estimate import Counts
from estimators.exact.randomness import SeededBits

BETA = 0.2
"""Large, so that a few hundred runs tell a bound that is too narrow."""
LIMIT = 5.0


class Case(NamedTuple):
    """Two arms: the shares of users below the limit, reports, and levels."""

    shares: tuple[float, float]
    reports: tuple[int, int]
    levels: tuple[float, ...]


CASES = {
    "equal halves": Case((0.5, 0.5), (400, 400), (1.0,)),
    "one side": Case((1.0, 1.0), (300, 900), (4.0,)),
    "apart": Case((0.9, 0.2), (500, 200), (0.5, 2.0)),
    "many and few": Case((0.02, 0.5), (2000, 60), (1.0, 4.0)),
}


def metric_of(case: Case) -> LocalMetric:
    return LocalMetric.require(
        define(name="wait", kind="distribution", range=(0, 8), bins=8, levels=list(case.levels))
    )


def counted(metric: LocalMetric, share: float, reports: int, rng: np.random.Generator) -> Counts:
    """Return the statistic of users of whom a share is just below the limit, the others above."""
    values = np.where(rng.random(reports) < share, LIMIT - 0.5, LIMIT + 0.5)
    level = rng.integers(0, len(metric.levels), reports).astype(np.uint8)
    statistic = metric.zero()
    bits = SeededBits(int(rng.integers(2**31)))
    metric.accumulate(statistic, level, metric.randomize(values, level, bits))
    return statistic


def both(metric: LocalMetric, case: Case, rng: np.random.Generator) -> tuple[Counts, Counts]:
    (one, two), (few, many) = case.shares, case.reports
    return counted(metric, one, few, rng), counted(metric, two, many, rng)


def misses(case: Case, runs: int, **question: Any) -> int:
    metric, rng, missed = metric_of(case), np.random.default_rng(20), 0
    for _ in range(runs):
        arms = both(metric, case, rng)
        missed += outside(compare(metric, *arms, beta=BETA, **question), case)
    return missed


def outside(found: Comparison, case: Case) -> bool:
    """Return whether a comparison does not hold; where arms are equal, p-values as well."""
    truth = case.shares[0] - case.shares[1]
    (lower,), (upper,) = np.asarray(found.lower), np.asarray(found.upper)
    is_outside = bool(not lower <= truth <= upper)
    assert (np.asarray(found.p_value)[0] <= BETA) == (not lower <= 0 <= upper)
    return is_outside


@pytest.mark.parametrize("name", CASES)
def test_a_difference_of_shares_holds(name: str) -> None:
    """More misses than a coverage of 80% shows come from one seed in 10^4."""
    assert misses(CASES[name], 40, below=[LIMIT]) <= binom.isf(1e-4, 40, BETA)


LOOKS = (50, 100, 200, 400, 800, 1600)


def ever_missed(case: Case, paths: int, split: float | None) -> int:
    """Return in how many paths the bounds for all times are wrong at any look."""
    metric, rng, missed = metric_of(case), np.random.default_rng(21), 0
    for _ in range(paths):
        sums, before = (metric.zero(), metric.zero()), 0
        for reports in LOOKS:
            more = case._replace(reports=(reports - before, reports - before))
            for total, part in zip(sums, both(metric, more, rng), strict=True):
                total += part
            before = reports
            found = compare(metric, *sums, beta=BETA, below=[LIMIT], bound="anytime", split=split)
            assert found.law == "joint"
            if outside(found, case):
                missed += 1
                break
    return missed


@pytest.mark.parametrize(("name", "split"), [("equal halves", 1.0), ("apart", None)])
def test_bounds_for_all_times_hold_along_paths(name: str, split: float | None) -> None:
    """More wrong paths than a coverage of 80% shows come from one seed in 10^4."""
    assert ever_missed(CASES[name], 20, split) <= binom.isf(1e-4, 20, BETA)


@pytest.mark.slow
@pytest.mark.parametrize("split", [1.0, None])
@pytest.mark.parametrize("name", CASES)
def test_bounds_for_all_times_hold_along_a_thousand_paths(name: str, split: float | None) -> None:
    assert ever_missed(CASES[name], 1000, split) <= binom.isf(1e-4, 1000, BETA)


@pytest.mark.slow
@pytest.mark.parametrize("law", ["joint", "union", "anytime"])
@pytest.mark.parametrize("name", CASES)
def test_a_difference_of_shares_holds_in_two_thousand_runs(name: str, law: str) -> None:
    questions: dict[str, dict[str, Any]] = {
        "joint": {},
        "union": {"independent": False},
        "anytime": {"bound": "anytime"},
    }
    missed = misses(CASES[name], 2000, below=[LIMIT], **questions[law])
    assert missed <= binom.isf(1e-4, 2000, BETA)


def test_the_joint_law_is_narrower_than_both_arms_by_themselves() -> None:
    """By a third where both arms are alike; the union adds what the joint law adds in squares."""
    case, rng = CASES["equal halves"], np.random.default_rng(3)
    metric = metric_of(case)
    arms = both(metric, case._replace(reports=(20_000, 20_000)), rng)
    joint, union = (compare(metric, *arms, below=[LIMIT], independent=x) for x in (True, False))
    assert (joint.law, union.law) == ("joint", "union")
    growing = [
        compare(metric, *arms, below=[LIMIT], bound="anytime", independent=x, split=split)
        for x, split in ((True, 1.0), (True, None), (False, None))
    ]
    found = (joint, union, *growing)
    widths = [float(np.asarray(x.upper)[0] - np.asarray(x.lower)[0]) for x in found]
    assert 0.6 < widths[0] / widths[1] < 0.75
    assert 0.6 < widths[2] / widths[4] < 0.75
    assert widths[2] < widths[3] < widths[4]
    assert np.asarray(joint.value) == pytest.approx(np.asarray(union.value))


def test_a_quantile_moves_with_its_arm() -> None:
    """The medians are 4.5 and 5.5: in bins below and above the limit."""
    case, rng = Case((0.9, 0.1), (20_000, 20_000), (4.0,)), np.random.default_rng(4)
    metric = metric_of(case)
    arms = both(metric, case, rng)
    found = compare(metric, *arms, categories=[0.5])
    assert (found.labels, found.law) == (("0.5",), "union")
    (lower,), (upper,) = np.asarray(found.lower), np.asarray(found.upper)
    assert -2 <= lower <= -1 <= upper <= 0
    default = compare(metric, *arms)
    assert default.labels == ("0.5", "0.9", "0.99")
    ratio = compare(metric, *arms, of="ratio", categories=[0.5])
    assert 4 / 6 <= np.asarray(ratio.lower)[0] <= 4.5 / 5.5 <= np.asarray(ratio.upper)[0] <= 1


def test_several_limits_hold_together() -> None:
    case, rng = CASES["apart"], np.random.default_rng(5)
    metric = metric_of(case)
    arms = both(metric, case, rng)
    together = compare(metric, *arms, below=[4, LIMIT])
    each = compare(metric, *arms, below=[4, LIMIT], pointwise=True)
    assert together.labels == each.labels == ("below 4", "below 5")
    assert np.all(np.asarray(together.upper) - together.lower > np.asarray(each.upper) - each.lower)
    assert np.all(np.asarray(together.p_value) >= np.asarray(each.p_value))


@pytest.mark.parametrize("bound", ["fixed", "anytime"])
def test_limits_of_a_few_reports_are_in_order_and_possible(bound: str) -> None:
    """Four reports an arm: the unbiased difference is often far outside [-1, 1]."""
    case, rng = Case((1.0, 1.0), (4, 4), (0.5,)), np.random.default_rng(6)
    metric, farthest = metric_of(case), 0.0
    for _ in range(60):
        found = compare(metric, *both(metric, case, rng), below=[LIMIT], beta=0.999, bound=bound)
        (value,), (lower,), (upper,) = (
            np.asarray(x) for x in (found.value, found.lower, found.upper)
        )
        farthest = max(farthest, abs(float(value)))
        assert -1 <= lower <= upper <= 1
    assert farthest > 5


def test_an_arm_without_reports_is_unknown() -> None:
    metric = metric_of(CASES["apart"])
    found = compare(metric, metric.zero(), metric.zero(), below=[LIMIT])
    assert np.isnan(np.asarray(found.value)).all()
    assert (np.asarray(found.lower)[0], np.asarray(found.upper)[0]) == (-1, 1)
    assert np.asarray(found.p_value)[0] == 1


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ({"below": [4.5]}, "such as 4 or 5"),
        ({"below": [0]}, "such as 1 or 2"),
        ({"below": [8]}, "expected an edge between two bins"),
        ({"below": [4, 4]}, "expected each limit once"),
        ({"below": [4], "categories": [0.5]}, "expected one of the two"),
        ({"categories": [2]}, "between 0 and 1"),
        ({"weights": "standard"}, "expected independent arms"),
    ],
)
def test_what_cannot_be_compared_is_told(question: dict[str, Any], expected: str) -> None:
    metric = metric_of(CASES["apart"])
    with pytest.raises(ValueError, match=expected):
        compare(metric, metric.zero(), metric.zero(), **question)


def test_other_kinds_have_no_limits() -> None:
    metric = define(name="late", kind="mean", mechanism="laplace", range=(0, 1), levels=[1])
    with pytest.raises(ValueError, match="for a distribution alone"):
        compare(metric, metric.zero(), metric.zero(), below=[0.5])


def test_two_metrics_need_the_limit_in_both() -> None:
    one = define(name="one", kind="distribution", range=(0, 8), bins=8, levels=[1])
    two = define(name="two", kind="distribution", range=(0, 9), bins=3, levels=[1])
    found = compare(one, one.zero(), two.zero(), other=two, below=[3])
    assert found.law == "union"
    with pytest.raises(ValueError, match="'two', such as 3 or 6"):
        compare(one, one.zero(), two.zero(), other=two, below=[4])
