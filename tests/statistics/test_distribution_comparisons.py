"""Comparisons of distributions, of shares below limits and of quantiles: what they say and refuse.

How often they miss is counted in `test_comparisons.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from estimators import LocalMetric, compare, define
from tests.support.reports.cases import summed
from tests.support.rows import row

if TYPE_CHECKING:
    from estimators.estimate import Counts

LIMIT = 5.0


def metric_of(*levels: float) -> LocalMetric:
    return define(name="wait", kind="distribution", range=(0, 8), bins=8, levels=levels)


def arms(
    metric: LocalMetric, shares: tuple[float, float], n: int, seed: int
) -> tuple[Counts, Counts]:
    """Return the statistics of users of whom a share is just below the limit, the others above."""
    rng, found = np.random.default_rng(seed), []
    for share in shares:
        values = np.where(rng.random(n) < share, LIMIT - 0.5, LIMIT + 0.5)
        level = rng.integers(0, len(metric.levels), n)
        found.append(summed(metric, values, level, int(rng.integers(2**31))))
    return found[0], found[1]


def test_the_joint_law_is_narrower_than_both_arms_by_themselves() -> None:
    """By a third where both arms are alike; the union adds what the joint law adds in squares."""
    metric = metric_of(1)
    both = arms(metric, (0.5, 0.5), 20_000, 3)
    questions: list[dict[str, Any]] = [
        {},
        {"independent": False},
        {"bound": "anytime", "split": 1.0},
        {"bound": "anytime"},
        {"bound": "anytime", "independent": False},
    ]
    found = [compare(metric, *both, below=[LIMIT], **question) for question in questions]
    assert [one.law for one in found] == ["joint", "union", "joint", "joint", "union"]
    widths = [float(np.asarray(x.upper)[0] - np.asarray(x.lower)[0]) for x in found]
    assert 0.6 < widths[0] / widths[1] < 0.75
    assert 0.6 < widths[2] / widths[4] < 0.75
    assert widths[2] < widths[3] < widths[4]
    assert np.asarray(found[0].value) == pytest.approx(np.asarray(found[1].value))


def test_a_quantile_moves_with_its_arm() -> None:
    """The medians are 4.5 and 5.5: in bins below and above the limit."""
    metric = metric_of(4)
    both = arms(metric, (0.9, 0.1), 20_000, 4)
    found = compare(metric, *both, categories=[0.5])
    assert (found.labels, found.law) == (("0.5",), "union")
    (lower,), (upper,) = np.asarray(found.lower), np.asarray(found.upper)
    assert -2 <= lower <= -1 <= upper <= 0
    assert compare(metric, *both).labels == ("0.5", "0.9", "0.99")
    ratio = compare(metric, *both, of="ratio", categories=[0.5])
    assert 4 / 6 <= np.asarray(ratio.lower)[0] <= 4.5 / 5.5 <= np.asarray(ratio.upper)[0] <= 1


def test_several_limits_hold_together_and_no_report_says_nothing() -> None:
    metric = metric_of(0.5, 2)
    both = arms(metric, (0.9, 0.2), 400, 5)
    together = compare(metric, *both, below=[4, LIMIT])
    each = compare(metric, *both, below=[4, LIMIT], pointwise=True)
    assert together.labels == each.labels == ("below 4", "below 5")
    assert np.all(np.asarray(together.upper) - together.lower > np.asarray(each.upper) - each.lower)
    assert np.all(np.asarray(together.p_value) >= np.asarray(each.p_value))
    nothing = compare(metric, metric.zero(), metric.zero(), below=[LIMIT])
    assert np.isnan(np.asarray(nothing.value)).all()
    assert (np.asarray(nothing.lower)[0], np.asarray(nothing.upper)[0]) == (-1, 1)
    assert np.asarray(nothing.p_value)[0] == 1


def test_limits_of_a_few_reports_are_in_order_and_possible() -> None:
    """Four reports an arm: the unbiased difference is often far outside [-1, 1]."""
    metric, farthest = metric_of(0.5), 0.0
    for seed in range(30):
        both = arms(metric, (1.0, 1.0), 4, seed)
        for bound in ("fixed", "anytime"):
            found = compare(metric, *both, below=[LIMIT], beta=0.999, bound=bound)
            farthest = max(farthest, abs(float(np.asarray(found.value)[0])))
            with row(seed, bound):
                assert -1 <= np.asarray(found.lower)[0] <= np.asarray(found.upper)[0] <= 1
    assert farthest > 5


def test_what_cannot_be_compared_is_told() -> None:
    metric = metric_of(1)
    mean = define(name="late", kind="mean", mechanism="laplace", range=(0, 1), levels=[1])
    other = define(name="two", kind="distribution", range=(0, 9), bins=3, levels=[1])
    table: list[tuple[LocalMetric, dict[str, Any], str]] = [
        (metric, {"below": [4.5]}, "such as 4 or 5"),
        (metric, {"below": [0]}, "such as 1 or 2"),
        (metric, {"below": [8]}, "expected an edge between two bins"),
        (metric, {"below": [4, 4]}, "expected each limit once"),
        (metric, {"below": [4], "categories": [0.5]}, "expected one of the two"),
        (metric, {"categories": [2]}, "between 0 and 1"),
        (metric, {"weights": "standard"}, "expected independent arms"),
        (mean, {"below": [0.5]}, "for a distribution alone"),
        (metric, {"other": other, "below": [4]}, "'two', such as 3 or 6"),
    ]
    for one, question, expected in table:
        two = question.get("other", one)
        with row(question), pytest.raises(ValueError, match=expected):
            compare(one, one.zero(), two.zero(), **question)
    assert compare(metric, metric.zero(), other.zero(), other=other, below=[3]).law == "union"
