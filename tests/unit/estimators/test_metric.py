from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from estimators import DefinitionError, Estimate, ReportError, define
from estimators.exact.randomness import SeededBits
from estimators.mechanisms import Laplace, Rappor
from tests.support.reports.cases import metric_for

GOOD: dict[str, Any] = {
    "name": "delay",
    "kind": "mean",
    "mechanism": "randomized_response",
    "range": (-60, 180),
    "levels": [0.5, 1, 2],
}


BALL = {"kind": "vector_mean", "mechanism": "caps", "range": None, "dimension": 2, "radius": 1}


@pytest.mark.parametrize(
    ("changes", "key", "expected"),
    [
        ({"name": "Delay"}, "name", "lower-case"),
        ({"name": ""}, "name", "lower-case"),
        ({"kind": "meen"}, "kind", "'mean'?"),
        ({"mechanism": "laplce"}, "mechanism", "'laplace'?"),
        ({"mechanism": "rappor"}, "mechanism", "a mechanism for kind 'mean'"),
        ({"levels": []}, "levels", "1 to 255"),
        ({"levels": [0, 1]}, "levels", "above 0"),
        ({"levels": [1, 65]}, "levels", "at most 64"),
        ({"levels": [float("nan")]}, "levels", "above 0"),
        ({"levels": [0.00001]}, "levels", "at most 4 decimal digits"),
        ({"levels": [1, 1]}, "levels", "ascending"),
        ({"levels": [2, 1]}, "levels", "ascending"),
        ({"range": None}, "range", "two numbers"),
        ({"range": (1, 1)}, "range", "the lower one first"),
        ({"range": (0, float("inf"))}, "range", "finite"),
        ({"range": (-1.7e308, 1.7e308)}, "range", "finite"),
        ({"categories": 3}, "categories", "no categories"),
        ({"pane": "5 minutes"}, "pane", "a duration"),
        ({"pane": "0s"}, "pane", "above zero"),
        ({"lateness": "1x"}, "lateness", "a duration"),
        ({"retention": "0d"}, "retention", "above zero"),
        ({"minimum_reports": 0}, "minimum_reports", "1 or more"),
        ({"options": {"grid": 4}}, "options", "grid"),
        ({"mechanism": "laplace", "options": {"grid": 1000}}, "options", "a power of two"),
        ({"mechanism": "laplace", "options": {"grid": 2**27}}, "options", "less than 2^31"),
        ({"memoized": True, "mechanism": "auto"}, "memoized", "or one of the mechanisms random"),
        (BALL | {"memoized": True}, "memoized", "false for 'vector_mean'"),
    ],
)
def test_a_bad_definition_is_refused_with_its_key_and_a_remedy(
    changes: dict[str, Any], key: str, expected: str
) -> None:
    with pytest.raises(DefinitionError) as refused:
        define(**{**GOOD, **changes})
    assert refused.value.key.endswith(f".{key}")
    assert expected in refused.value.expected


@pytest.mark.parametrize(
    ("categories", "expected"),
    [(1, "two or more"), (["a"], "two or more"), (["a", "a"], "each category once")],
)
def test_bad_categories_are_refused(categories: Any, expected: str) -> None:
    with pytest.raises(DefinitionError, match=expected):
        define(name="f", kind="frequency", mechanism="rappor", levels=[1], categories=categories)


@pytest.mark.parametrize(
    ("mechanism", "kind", "option", "expected"),
    [
        ("subset_selection", "frequency", "siz", "no option 'siz': did you mean 'size'?"),
        ("subset_selection", "frequency", "grid", "no option 'grid': expected size"),
        ("subset_selection", "frequency", "categories", "no option 'categories': expected size"),
        ("auto", "frequency", "grid", "no option 'grid': expected report_bytes"),
        ("auto", "mean", "value", "no option 'value': did you mean 'values'? (known: spread, sy"),
        ("repetition", "mean", "off", "no option 'off': did you mean 'of'?"),
        ("count_sketch", "frequency", "x", "no option 'x': expected one of buckets, rows, seed"),
        ("randomized_response", "mean", "grid", "no option 'grid': there are none"),
    ],
)
def test_an_option_that_a_mechanism_does_not_have_names_those_it_has(
    mechanism: str, kind: str, option: str, expected: str
) -> None:
    asked: dict[str, Any] = {"range": (0, 1)} if kind == "mean" else {"categories": ["a", "b", "c"]}
    if mechanism == "count_sketch":
        asked = {"categories": "open"}
    with pytest.raises(DefinitionError) as refused:
        define(name="m", kind=kind, mechanism=mechanism, levels=[1], options={option: 3}, **asked)
    assert expected in refused.value.expected
    assert "__init__" not in str(refused.value)


@pytest.mark.parametrize("size", ["3", 2.5, True])
def test_an_option_of_another_type_is_refused_in_words(size: Any) -> None:
    asked: dict[str, Any] = {"kind": "frequency", "categories": ["a", "b", "c"], "levels": [1]}
    with pytest.raises(DefinitionError) as refused:
        define(name="m", mechanism="subset_selection", options={"size": size}, **asked)
    assert f"size = {size!r}: expected int, got {type(size).__name__}" in refused.value.expected


@pytest.mark.parametrize("kind", ["median", "x"])
def test_a_word_that_is_near_to_none_is_told_those_there_are(kind: str) -> None:
    with pytest.raises(DefinitionError, match=r"m\.kind = '\w+': expected (one of |'mean'\?)"):
        define(name="m", kind=kind, mechanism="grr", levels=[1])


def test_a_demand_is_rounded_down_to_a_level_and_a_stricter_one_refused() -> None:
    metric = define(**GOOD)
    assert metric.level_of([0.5, 0.99, 1.0, 100.0]).tolist() == [0, 0, 1, 2]
    with pytest.raises(ValueError, match=r"epsilon = 0.4999: .* stricter demand"):
        metric.level_of([1.0, 0.4999])


@pytest.mark.parametrize("demand", [float("nan"), 0, -1.0, None, "much", 10**400, [1, [2]]])
def test_a_demand_that_is_no_privacy_level_at_all_is_told_so(demand: Any) -> None:
    with pytest.raises(ValueError, match=r"epsilon = .*: expected a number above 0"):
        define(**GOOD).level_of(demand)


def test_epsilons_are_the_decimals_that_were_written() -> None:
    metric = define(**{**GOOD, "levels": [0.0001, 0.1, 2.5]})
    assert metric.randomizer.epsilons == (Fraction(1, 10_000), Fraction(1, 10), Fraction(5, 2))


def test_only_what_changes_the_meaning_of_a_report_or_its_pane_changes_the_revision() -> None:
    metric = define(**GOOD)
    same = define(
        **{**GOOD, "lateness": "5m", "retention": "9d", "unit": "min", "minimum_reports": 9}
    )
    assert metric.revision == same.revision
    assert metric.revision != 0
    for changes in (
        {"range": (-60, 181)},
        {"levels": [0.5, 1]},
        {"mechanism": "laplace"},
        {"pane": "1h"},
    ):
        assert define(**{**GOOD, **changes}).revision != metric.revision


def test_panes_start_at_multiples_of_their_width() -> None:
    metric = define(**{**GOOD, "pane": "1m", "lateness": "30s", "retention": "2d"})
    assert (metric.pane_ms, metric.lateness_ms, metric.retention_ms) == (
        60_000,
        30_000,
        172_800_000,
    )
    assert metric.pane_start(119_999) == 60_000
    assert metric.pane_start(-1) == -60_000


def test_values_outside_the_range_are_clipped_on_the_device() -> None:
    metric = define(**{**GOOD, "levels": [64]})
    level = np.zeros(4, dtype=np.uint8)
    reports = metric.randomize([-1e9, -60, 180, float("inf")], level)
    assert reports.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("values", "level", "message"),
    [
        ([float("nan")], [0], "not a number"),
        ([1.0, 2.0], [0], "same length"),
        ([[1.0]], [[0]], "same length"),
        ([1.0], [3], "expected 0 to 2"),
        ([1.0], [-1], "expected 0 to 2"),
    ],
)
def test_what_cannot_be_randomized_is_refused(values: Any, level: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        define(**GOOD).randomize(values, level)


def test_categories_go_by_name_or_by_index() -> None:
    named = define(
        name="f", kind="frequency", mechanism="rappor", levels=[64], categories=["UA", "B6", "EV"]
    )
    level = np.zeros(2, dtype=np.uint8)
    assert named.randomize(["B6", "UA"], level).tolist() == [[2], [1]]
    assert named.randomize(np.array([1, 0]), level).tolist() == [[2], [1]]
    with pytest.raises(ValueError, match="did you mean 'B6'"):
        named.randomize(["B7", "UA"], level)
    with pytest.raises(ValueError, match="expected 0 to 2"):
        named.randomize([3, 0], level)


def test_what_cannot_be_counted_is_refused_with_a_reason() -> None:
    metric = define(**GOOD)
    statistic = metric.zero()
    for level, reports, reason in (
        ([0], [2], "bad_value"),
        ([0], [256], "bad_value"),
        ([0, 1], [1], "bad_length"),
        ([3], [1], "bad_level"),
    ):
        with pytest.raises(ReportError) as refused:
            metric.accumulate(statistic, level, reports)
        assert refused.value.reason == reason
    assert not statistic.any()
    with pytest.raises(ValueError, match="needs int64"):
        metric.accumulate(np.zeros(5, dtype=np.int64), [0], [1])


def test_laplace_refuses_what_its_noise_cannot_reach_and_says_where_it_ends() -> None:
    metric = metric_for("laplace", [1.0, 4.0])
    randomizer = metric.randomizer
    assert isinstance(randomizer, Laplace)
    assert randomizer.limits.tolist() == [1024 + 92 * 1024, 1024 + 23 * 1024]
    for level, limit in enumerate(randomizer.limits.tolist()):
        for report in (-limit, limit):
            metric.accumulate(metric.zero(), [level], [report])
        for report in (-limit - 1, limit + 1, -(2**31), 2**31 - 1):
            with pytest.raises(ReportError, match="bad_value"):
                metric.accumulate(metric.zero(), [level], [report])


def test_the_squares_of_laplace_reports_are_kept_exactly() -> None:
    metric = metric_for("laplace", [0.0001])
    reports = np.array([92 * 1024 * 10_000, 7, -9] * 1000)  # the largest that noise can reach
    statistic = metric.zero()
    metric.accumulate(statistic, np.zeros(reports.size, dtype=np.uint8), reports)
    n, total, high, low = statistic.tolist()
    assert (n, total) == (reports.size, sum(reports.tolist()))
    assert (high << 31) + low == sum(y * y for y in reports.tolist())


@pytest.mark.parametrize(("categories", "last"), [(8, 255), (9, 1), (10, 3), (15, 127), (16, 255)])
def test_rappor_refuses_ones_after_its_last_category(categories: int, last: int) -> None:
    randomizer = Rappor([Fraction(1)], categories=categories)
    empty = bytes(randomizer.width - 1)
    randomizer.check(b"\0\0", (empty + bytes([last])) * 2)
    if last < 255:
        with pytest.raises(ReportError, match="bad_value"):
            randomizer.check(b"\0\0", empty + bytes([last]) + empty + bytes([last + 1]))


@pytest.mark.parametrize("reports", [254, 255, 256, 1021])
def test_rappor_counts_in_blocks_as_one_by_one(reports: int) -> None:
    metric = metric_for("rappor", [0.5, 1.0])
    level = (np.arange(reports) % 3 == 0).astype(np.uint8)
    rows = metric.randomize(np.arange(reports) % 10, level, SeededBits(1))
    statistic = metric.zero()
    metric.accumulate(statistic, level, rows)
    ones = np.unpackbits(rows.view(np.uint8), axis=1, count=10, bitorder="little").astype(np.int64)
    for index in (0, 1):
        own = statistic.reshape(2, 11)[index]
        assert own[0] == (level == index).sum()
        assert np.array_equal(own[1:], ones[level == index].sum(axis=0))


def test_a_mean_is_answered_in_the_unit_of_its_range() -> None:
    metric = define(**{**GOOD, "levels": [16]})
    statistic = metric.zero()
    metric.accumulate(statistic, np.zeros(3000, np.uint8), [0] * 2000 + [1] * 1000)
    estimate = metric.estimate(statistic)
    assert isinstance(estimate, Estimate)
    assert estimate.value == pytest.approx(20, abs=0.01)
    assert -60 < estimate.lower < 20 < estimate.upper < 180


@pytest.mark.parametrize(
    "question", [{"beta": 0}, {"beta": 1}, {"weights": "x"}, {"bound": "x"}, {"target": "x"}]
)
def test_a_question_without_an_answer_is_refused(question: dict[str, Any]) -> None:
    metric = define(**GOOD)
    with pytest.raises(ValueError, match=next(iter(question))):
        metric.estimate(metric.zero(), **question)


@pytest.mark.parametrize("size", [0, 10])
def test_a_subset_has_to_leave_something_out(size: int) -> None:
    with pytest.raises(DefinitionError, match="expected 1 to 9"):
        metric_for("subset_selection", options={"size": size})


def test_a_subset_of_another_size_is_refused() -> None:
    metric = metric_for("subset_selection", options={"size": 3})
    reports = np.array([[0b111, 0], [0b1111, 0]], dtype=np.uint8)
    metric.accumulate(metric.zero(), [0], reports[:1])
    with pytest.raises(ReportError, match="a subset of 4: expected 3"):
        metric.accumulate(metric.zero(), [0, 1], reports)


def test_grr_refuses_what_is_no_category() -> None:
    metric = metric_for("grr")
    with pytest.raises(ReportError, match="report 10: expected 0 to 9"):
        metric.accumulate(metric.zero(), [0, 1], np.array([9, 10], dtype=np.uint8))


def test_hadamard_response_refuses_what_is_no_symbol_of_the_level() -> None:
    metric = metric_for("hadamard_response", [0.5, 4.0])
    metric.accumulate(metric.zero(), [0, 1], np.array([15, 31], dtype=np.uint8))
    with pytest.raises(ReportError, match="report 16: expected 0 to 15 at its level"):
        metric.accumulate(metric.zero(), [1, 0], np.array([16, 16], dtype=np.uint8))


VECTOR: dict[str, Any] = {
    "name": "v",
    "kind": "vector_mean",
    "mechanism": "hemisphere",
    "levels": [64],
    "dimension": 2,
    "radius": 5,
}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"dimension": None}, "dimension"),
        ({"dimension": 0}, "dimension"),
        ({"dimension": 2**14 + 1}, "dimension"),
        ({"radius": None}, "radius"),
        ({"radius": 0}, "radius"),
        ({"radius": float("inf")}, "radius"),
        ({"range": (0, 1)}, "range"),
        ({"categories": 3}, "categories"),
        ({"options": {"grid": 0}}, "options"),
        ({"kind": "mean", "mechanism": "laplace", "range": (0, 1), "radius": None}, "dimension"),
    ],
)
def test_a_bad_ball_is_refused(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        define(**{**VECTOR, **changes})
    assert refused.value.key == f"v.{key}"


def test_vectors_are_shortened_to_the_radius_on_the_device() -> None:
    metric = define(**VECTOR)
    own = metric.domain.to_unit(np.array([[3.0, 4.0], [3e307, -4e307], [0.0, 2.5], [0, 0], [4, 4]]))
    half = np.sqrt(0.5)
    expected = np.array([[0.6, 0.8], [0.6, -0.8], [0, 0.5], [0, 0], [half, half]])
    assert np.allclose(own, expected)
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="leave it out"):
            metric.randomize([[bad, 0.0]], [0])
    for shape in ((2,), (1, 3)):
        with pytest.raises(ValueError, match="2 numbers a value"):
            metric.randomize(np.zeros(shape), [0])
    assert metric.labels == ("0", "1")


def test_a_vector_is_answered_in_the_unit_of_its_radius() -> None:
    metric, n = define(**VECTOR), 20_000
    level, statistic = np.zeros(n, dtype=np.uint8), metric.zero()
    metric.accumulate(statistic, level, metric.randomize([[3.0, 0]] * n, level, SeededBits(2)))
    estimate = metric.estimate(statistic)
    assert estimate.value == pytest.approx([3, 0], abs=0.15)
    assert estimate.radius is not None
    assert 0 < estimate.radius < 0.2
    for changes in ({"radius": 6}, {"dimension": 3}, {"options": {"grid": 9}}):
        assert define(**{**VECTOR, **changes}).revision != metric.revision


@pytest.mark.parametrize("report", [[0, 0], [2**14, 300], [-(2**14) - 1, 0], [16382, 0]])
def test_hemisphere_refuses_what_is_not_on_the_sphere(report: list[int]) -> None:
    metric = define(**VECTOR)
    for good in ([2**14, 1], [0, -(2**14)], [16383, 0]):
        metric.accumulate(metric.zero(), [0], [good])
    with pytest.raises(ReportError, match="bad_value"):
        metric.accumulate(metric.zero(), [0], [report])


def test_categories_can_be_asked_for_by_name_or_index() -> None:
    metric = define(
        name="m", kind="frequency", mechanism="grr", categories=["a", "b", "c"], levels=[1]
    )
    assert metric.estimate(metric.zero(), categories=["c", "a"]).labels == ("c", "a")
    assert metric.estimate(metric.zero(), categories=[2, 0]).labels == ("c", "a")
    assert metric.estimate(metric.zero()).labels == ("a", "b", "c")
    with pytest.raises(ValueError, match="category 'd' of 'm': expected one of a, "):
        metric.estimate(metric.zero(), categories=["d"])
    with pytest.raises(ValueError, match="each once"):
        metric.estimate(metric.zero(), categories=["a", "a"])
    with pytest.raises(ValueError, match="each once"):
        metric.estimate(metric.zero(), categories="ab")


def test_a_mean_has_no_categories_to_ask_for() -> None:
    metric = define(name="m", kind="mean", mechanism="laplace", range=(0, 1), levels=[1])
    with pytest.raises(ValueError, match="metric 'm' has none"):
        metric.estimate(metric.zero(), categories=["a"])
    assert metric.estimate(metric.zero()).top(3).labels == ()


def test_an_open_vocabulary_needs_a_mechanism_for_it() -> None:
    with pytest.raises(DefinitionError, match="one for an open vocabulary"):
        define(name="m", kind="frequency", mechanism="grr", categories="open", levels=[1])
    with pytest.raises(DefinitionError, match="their number, or 'open'"):
        define(name="m", kind="frequency", mechanism="grr", categories="opne", levels=[1])
    with pytest.raises(DefinitionError, match="no watch unless"):
        define(name="m", kind="frequency", mechanism="grr", categories=3, watch=["a"], levels=[1])


def test_coordinates_may_have_names() -> None:
    definition: dict[str, Any] = {
        "name": "v",
        "kind": "vector_mean",
        "mechanism": "hemisphere",
        "radius": 2,
        "levels": [1],
    }
    named = define(**definition, coordinates=["x", "y", "z"])
    assert named.dimension == 3
    assert named.estimate(named.zero()).labels == ("x", "y", "z")
    assert define(**definition, dimension=3).labels == ("0", "1", "2")
    assert define(**definition, dimension=3).revision != named.revision
    with pytest.raises(DefinitionError, match="as there are coordinates"):
        define(**definition, coordinates=["x", "y"], dimension=3)
    with pytest.raises(DefinitionError, match="names, each once"):
        define(**definition, coordinates=["x", "x"])


def test_a_number_of_reports_near_the_largest_integer_gives_a_number() -> None:
    metric = define(name="m", kind="mean", mechanism="laplace", range=(0, 1), levels=[1])
    statistic = metric.zero()
    statistic[0] = 2**62
    assert np.isfinite(metric.estimate(statistic, bound="normal").value)
