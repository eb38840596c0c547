"""How wide bounds will be, and the best use of a budget: from the code of each kind of metric."""

import itertools
import math
from typing import Any

import numpy as np
import pytest

from estimators import LocalMetric, Metric, define, planning
from estimators.exact.randomness import SeededBits
from tests.support.rows import row

SHARE: dict[str, Any] = {"kind": "mean", "mechanism": "randomized_response", "range": (0, 1)}
NUMBER: dict[str, Any] = {"kind": "mean", "mechanism": "auto", "range": (0, 1)}
CATEGORIES: dict[str, Any] = {
    "kind": "frequency", "mechanism": "subset_selection", "categories": 20
}  # fmt: skip
BINS: dict[str, Any] = {"kind": "distribution", "range": (0, 1), "bins": 64}
STRINGS: dict[str, Any] = {
    "kind": "frequency", "mechanism": "projective_sketch", "categories": "open"
}  # fmt: skip


def metric(keys: dict[str, Any], name: str = "m", levels: Any = (1,)) -> Metric:
    found: Metric = define(name=name, levels=levels, **keys)
    return found


def test_widths_are_those_of_the_documentation_and_fall_with_the_reports() -> None:
    """docs/what-to-ask.md has them from expected sums: synthetic ones are within 6%."""
    cases: list[tuple[str, dict[str, Any], float | None]] = [
        ("share", SHARE, 0.021),
        ("number", NUMBER, 0.021),
        ("20 categories", CATEGORIES, 0.055),
        ("strings", STRINGS, None),
        ("distribution", BINS, None),
        (
            "vectors",
            {"kind": "vector_mean", "mechanism": "caps", "dimension": 3, "radius": 1},
            None,
        ),
        ("trusted", {"kind": "mean", "trust": "central", "range": (0, 1)}, None),
    ]
    for name, keys, expected in cases:
        with row(name):
            width = planning.half_width(metric(keys), 1, 10_000)
            if expected is not None:
                assert math.isclose(width, expected, rel_tol=0.06)
            fewer = planning.half_width(metric(keys), 1, 1_000_000) / width
            assert fewer < 0.11 or name == "strings"  # hashes that collide stay
    steps = {"kind": "frequency", "mechanism": "grr", "categories": ["200", "404", "500"]}
    among = planning.half_width(metric({**steps, "shares": ["500 / 404.."]}), 1, 10_000)
    assert among > 1.05 * planning.half_width(metric(steps), 1, 10_000), "those of its shares among"
    age = metric({"kind": "maximum", "range": (0, 128), "rounds": 7})
    assert 0 < planning.half_width(age, 1, 50_000) < planning.half_width(age, 1, 100) <= 64


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(SHARE, id="shares"),
        pytest.param(NUMBER, id="numbers", marks=pytest.mark.more),
        pytest.param(CATEGORIES, id="categories", marks=pytest.mark.more),
    ],
)
def test_ten_metrics_need_eight_times_fewer_devices_as_simulated(keys: dict[str, Any]) -> None:
    """By the real bounds, of the plan and of devices that draw; they agree within 20%."""
    devices, budget = 100_000, 1.0
    wishes = [planning.Wish(metric(keys, f"m{number}"), 0.05) for number in range(10)]
    plan = planning.make_plan(wishes, devices, budget)
    assert plan.tickets == {f"m{number}": 1 for number in range(10)}
    assert plan.needed_split > 8 * plan.needed
    planned = (plan.split["m0"] / plan.lottery["m0"]) ** 2
    drawn = np.random.default_rng(5).integers(10, size=devices) == 0
    values = planning.synthetic_values(wishes[0].metric, devices)
    widths = [
        simulated_width(wishes[0].metric, values[drawn], budget),
        simulated_width(wishes[0].metric, values, plan.split_levels["m0"]),
    ]
    gain = (widths[1] / widths[0]) ** 2
    assert gain > 8
    assert math.isclose(gain, planned, rel_tol=0.2)
    assert math.isclose(widths[0], plan.lottery["m0"], rel_tol=0.1)


def simulated_width(asked: Metric, values: Any, epsilon: float) -> float:
    """Return the half-width of devices' reports, which are sums of their own."""
    at_level = LocalMetric.require(define_like(asked, epsilon))
    statistic, level = at_level.zero(), np.zeros(len(values), np.uint8)
    at_level.accumulate(statistic, level, at_level.randomize(values, level, SeededBits(7)))
    estimate = at_level.estimate(statistic)
    return float(np.max(np.asarray(estimate.upper) - np.asarray(estimate.lower))) / 2


def define_like(asked: Metric, epsilon: float) -> Metric:
    keys = {"mean": SHARE if asked.mechanism == SHARE["mechanism"] else NUMBER}
    return metric(keys.get(asked.kind, CATEGORIES), levels=(epsilon,))


def test_tickets_are_needed_reports_over_how_often_it_happens() -> None:
    rare = planning.Wish(metric(SHARE, "rare"), 0.02, happens=0.25)
    common = planning.Wish(metric(SHARE, "common"), 0.02)
    exact = planning.Wish(metric(SHARE, "exact"), 0.01)
    plan = planning.make_plan([rare, common, exact], 100_000, 1)
    parts = {name: count / plan.tickets["common"] for name, count in plan.tickets.items()}
    assert parts == pytest.approx({"rare": 4, "common": 1, "exact": 4}, rel=0.06)
    assert plan.lottery["rare"] == pytest.approx(plan.lottery["common"], rel=0.05)
    assert math.isclose(
        plan.needed, 4 * common.needed(1, 0.02) + common.needed(1, 0.02) + exact.needed(1, 0.01),
        rel_tol=0.02,
    )  # fmt: skip
    assert planning.small_tickets({"a": 1, "b": 1, "c": 1}) == {"a": 1, "b": 1, "c": 1}
    levels = planning.best_split([rare, common, exact], 100_000, 1)
    assert 0.97 <= sum(levels.values()) <= 1
    assert levels["exact"] > levels["common"]
    alone = planning.make_plan([common], 1000, 4)
    assert alone.split_levels == {"common": 1}, "a level that its definition has"
    assert alone.split == alone.lottery


def test_first_come_is_the_sum_over_all_that_can_happen_before() -> None:
    happens, costs = (0.5, 0.25, 0.8), (0.5, 0.6, 0.5)
    wishes = [
        planning.Wish(metric(SHARE, f"m{i}", (cost,)), 0.1, share)
        for i, (share, cost) in enumerate(zip(happens, costs, strict=True))
    ]
    expected = [0.0] * 3
    for events in itertools.product((False, True), repeat=3):
        chance, spent = 1.0, 0.0
        for i, event in enumerate(events):
            chance *= happens[i] if event else 1 - happens[i]
        for i, event in enumerate(events):
            if event and spent + costs[i] <= 1:
                spent += costs[i]
                expected[i] += 1000 * chance
    levels = {f"m{i}": cost for i, cost in enumerate(costs)}
    found = planning.first_come_reports(wishes, levels, 1000, 1.0)
    assert [found[f"m{i}"] for i in range(3)] == pytest.approx(expected)
    with pytest.raises(ValueError, match="the lowest level of 'm0' is"):
        planning.make_plan(wishes, 1000, 0.1)
