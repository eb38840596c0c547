"""What a definition may say, and what a metric of it does with values, reports and questions."""

import functools
from array import array
from decimal import Decimal
from fractions import Fraction
from mmap import mmap
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from estimators import DefinitionError, Estimate, ReportError, define
from estimators.mechanisms import Rappor
from estimators.metrics.validation import LONGEST_DURATION
from tests.support.reports.cases import metric_for, summed
from tests.support.rows import row

GOOD: dict[str, Any] = {
    "name": "delay",
    "kind": "mean",
    "mechanism": "randomized_response",
    "range": (-60, 180),
    "levels": [0.5, 1, 2],
}
FREQUENCY: dict[str, Any] = {
    "name": "f",
    "kind": "frequency",
    "mechanism": "grr",
    "categories": ["UA", "B6", "EV"],
    "levels": [1],
}
VECTOR: dict[str, Any] = {
    "name": "v",
    "kind": "vector_mean",
    "mechanism": "hemisphere",
    "levels": [64],
    "dimension": 2,
    "radius": 5,
}
WINDOWS, SUBSETS = {"mechanism": "windows"}, {"mechanism": "subset_selection"}
NAMED = {"dimension": None, "coordinates": ["x", "y", "z"]}


def test_a_bad_definition_is_refused_with_its_key_and_a_remedy() -> None:
    infinite = float("inf")
    cases: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
        (GOOD, {"name": "Delay"}, "name", "lower-case"),
        (GOOD, {"kind": "meen"}, "kind", "'mean'?"),
        (GOOD, {"mechanism": "laplce"}, "mechanism", "'laplace'?"),
        (GOOD, {"mechanism": "rappor"}, "mechanism", "a mechanism for kind 'mean'"),
        (GOOD, {"levels": []}, "levels", "1 to 255"),
        (GOOD, {"levels": [1, 65]}, "levels", "at most 64"),
        (GOOD, {"levels": [float("nan")]}, "levels", "above 0"),
        (GOOD, {"levels": [0.00001]}, "levels", "at most 4 decimal digits"),
        (GOOD, {"levels": [1, 1]}, "levels", "ascending"),
        (GOOD, {"range": None}, "range", "two numbers"),
        (GOOD, {"range": (1, 1)}, "range", "the lower one first"),
        (GOOD, {"range": (-1.7e308, 1.7e308)}, "range", "finite"),
        (GOOD, {"categories": 3}, "categories", "no categories"),
        (GOOD, {"pane": "0s"}, "pane", "above zero"),
        (GOOD, {"retention": "0d"}, "retention", "above zero"),
        (GOOD, {"minimum_reports": 0}, "minimum_reports", "1 or more"),
        (GOOD, {"options": {"grid": 4}}, "options", "no option 'grid': there are none"),
        (GOOD, {"mechanism": "laplace", "options": {"grid": 1000}}, "options", "a power of two"),
        (GOOD, {"mechanism": "laplace", "options": {"grid": 2**27}}, "options", "less than 2^31"),
        (GOOD, {"mechanism": "auto", "options": {"value": 3}}, "options", "mean 'values'? (known:"),
        (GOOD, WINDOWS | {"options": {"symbols": 63}}, "options", "expected 64 to 255"),
        (GOOD, WINDOWS | {"options": {"symbols": 256}}, "options", "expected 64 to 255"),
        (GOOD, {"memoized": True, "mechanism": "auto"}, "memoized", "or one of the mechanisms"),
        (VECTOR, {"memoized": True}, "memoized", "false for 'vector_mean'"),
        (FREQUENCY, {"categories": ["a"]}, "categories", "the names of 2 to"),
        (FREQUENCY, {"categories": ["a", "a"]}, "categories", "each category once"),
        (FREQUENCY, {"categories": "open"}, "mechanism", "one for an open vocabulary"),
        (FREQUENCY, {"categories": "opne"}, "categories", "or 'open'"),
        (FREQUENCY, {"watch": ["a"]}, "watch", "no watch unless"),
        (FREQUENCY, SUBSETS | {"options": {"size": "3"}}, "options", "expected int, got str"),
        (FREQUENCY, SUBSETS | {"options": {"size": 3}}, "options", "expected 1 to 2"),
        (VECTOR, {"dimension": 0}, "dimension", ""),
        (VECTOR, {"radius": infinite}, "radius", ""),
        (VECTOR, {"options": {"grid": 0}}, "options", ""),
        (VECTOR, NAMED | {"dimension": 2}, "dimension", "as there are coordinates"),
        (VECTOR, NAMED | {"coordinates": ["x", "x"]}, "coordinates", "names, each once"),
    ]
    for good, changes, key, expected in cases:
        with row(good["name"], changes):
            with pytest.raises(DefinitionError) as refused:
                define(**{**good, **changes})
            assert refused.value.key.endswith(f".{key}")
            assert expected in refused.value.expected


def test_a_demand_is_rounded_down_to_a_level_and_a_stricter_one_refused() -> None:
    metric = define(**GOOD)
    assert metric.randomizer.epsilons == (Fraction(1, 2), Fraction(1), Fraction(2))
    tenth = define(**{**GOOD, "levels": [0.0001, 0.1]})
    assert tenth.randomizer.epsilons == (Fraction(1, 10_000), Fraction(1, 10))
    assert metric.level_of([0.5, 0.99, 1.0, 100.0]).tolist() == [0, 0, 1, 2]
    with pytest.raises(ValueError, match=r"epsilon = 0.4999: .* stricter demand"):
        metric.level_of([1.0, 0.4999])
    demands: list[Any] = [float("nan"), 0, -1.0, None, "much", 10**400, [1, [2]]]
    told: list[tuple[Any, str]] = [(demand, "expected a number above 0") for demand in demands]
    told += [([1, True], "True or False is among them"), ([1, None], "epsilon = None: ")]
    told += [(["1"], r"epsilon = '1': .* as float\(\) makes")]
    for demand, said in told:
        with row(demand), pytest.raises(ValueError, match=said):
            metric.level_of(demand)


def test_only_what_changes_the_meaning_of_a_report_or_its_pane_changes_the_revision() -> None:
    metric = define(**GOOD)
    same = {
        "lateness": LONGEST_DURATION,
        "retention": "9d",
        "unit": "min",
        "title": "Wait",
        "minimum_reports": 9,
        "max_key_reports": 5,
        "max_batch_reports": 3,
    }
    assert metric.revision == define(**{**GOOD, **same}).revision != 0
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (GOOD, {"range": (-60, 181)}),
        (GOOD, {"levels": [0.5, 1]}),
        (GOOD, {"mechanism": "laplace"}),
        (GOOD, {"pane": "1h"}),
        (GOOD, {"memoized": True}),
        (VECTOR, {"radius": 6}),
        (VECTOR, {"dimension": 3}),
        (VECTOR, {"options": {"grid": 9}}),
    ]
    for good, changes in cases:
        assert define(**{**good, **changes}).revision != define(**good).revision, changes
    assert define(**VECTOR | {"dimension": 3}).revision != define(**VECTOR | NAMED).revision


def test_values_are_clipped_and_categories_go_by_name_or_by_index() -> None:
    metric = define(**{**GOOD, "levels": [64]})
    assert metric.randomize(memoryview(array("d", [-60, 180])), [0] * 2).tolist() == [0, 1]
    assert metric.randomize([-1e9, -60, 180, float("inf")], [0] * 4).tolist() == [0, 0, 1, 1]
    named = define(**{**FREQUENCY, "mechanism": "rappor", "levels": [64]})
    for values in (["B6", "UA"], np.array([1, 0]), ["B6", 0], np.array([1, 0], dtype=object)):
        assert named.randomize(values, [0, 0]).tolist() == [[2], [1]]


def test_what_cannot_be_randomized_is_refused() -> None:
    cases: list[tuple[dict[str, Any], Any, Any, str]] = [
        (GOOD, [float("nan")], [0], "value nan of"),
        (GOOD, [1.0, 2.0], [0], "same length"),
        (GOOD, [[1.0]], [[0]], "same length"),
        (GOOD, [1.0], [3], "expected 0 to 2"),
        (GOOD, [1.0], [-1], "expected 0 to 2"),
        (FREQUENCY, ["B7", "UA"], [0, 0], "did you mean 'B6'"),
        (FREQUENCY, [3, 0], [0, 0], "expected 0 to 2"),
        (FREQUENCY, [2**70], [0], "expected 0 to 2"),
        (FREQUENCY, [1, True], [0, 0], "category True of"),
        (FREQUENCY, np.array([1, np.nan]), [0, 0], "category nan of .*; leave out what was not"),
        (FREQUENCY, [{"UA"}], [0], r"or a list of them, as list\(\) makes; leave out"),
        (GOOD, [1, "x"], [0, 0], "value 'x' of .* a number; leave out"),
        (VECTOR, [[1, "6"]], [0], r"value '6' of .* a number, as float\(\) makes"),
        (VECTOR, [[float("nan"), 0.0]], [0], "value nan of"),
        (VECTOR, [[float("inf"), 0.0]], [0], "value inf of .* expected finite numbers"),
        (VECTOR, [bytearray(b"12")], [0], "a bytearray of bytes: expected numbers"),
        (
            FREQUENCY,
            np.array([np.zeros(2), None], dtype=object),
            [0] * 2,
            "category array.* of 'f'",
        ),
        (GOOD, mmap(-1, 1), [0], "a mmap of bytes: expected numbers"),
        (GOOD, memoryview(b"1"), [0], "a memoryview of bytes: expected numbers"),
        (GOOD, [Decimal("0.5")], [0], r"expected a number, as float\(\) makes"),
        (GOOD, [SimpleNamespace(as_py=float)], [0], r"expected a number, as .as_py\(\) makes"),
        (GOOD, [iter([1])], [0], r"expected a number or a list of them, as list\(\) makes"),
        (VECTOR, [0.0, 0.0], [0], "2 numbers a value"),
        (VECTOR, [[0.0, 0.0, 0.0]], [0], "2 numbers a value"),
    ]
    for good, values, level, message in cases:
        with row(good["name"], values, level), pytest.raises(ValueError, match=message):
            define(**good).randomize(values, level)


def test_what_cannot_be_counted_is_refused_with_a_reason() -> None:
    """What is just possible is counted; of what is refused, nothing is."""
    hadamard = metric_for("hadamard_response", [0.5, 4.0])
    subset = metric_for("subset_selection", options={"size": 3})
    most, byte = 1024 + 92 * 1024, functools.partial(np.array, dtype=np.uint8)
    cases: list[tuple[Any, list[int], Any, Any, str]] = [
        (define(**GOOD), [0], [1], [2], "bad_value"),
        (define(**GOOD), [0], [0], [256], "bad_value"),
        (define(**GOOD), [0], [0], [1, 1], "bad_length"),
        (metric_for("grr"), [0], byte([9]), byte([10]), "expected 0 to 9"),
        (hadamard, [0], byte([15]), byte([16]), "report 16: expected 0 to 15 at its level"),
        (subset, [0], byte([[0b111, 0]]), byte([[0b1111, 0]]), "a subset of 4: expected 3"),
        (metric_for("laplace", [1.0, 4.0]), [0], [most], [most + 1], "bad_value"),
        (metric_for("laplace", [1.0, 4.0]), [0], [-most], [-most - 1], "bad_value"),
        (metric_for("laplace", [1.0, 4.0]), [1], [0], [-(2**31)], "bad_value"),
        (metric_for("projection"), [0], [31], [32], "expected 0 to 31"),
        (metric_for("projection", options={"rows": 100}), [0], [199], [200], "expected 0 to 199"),
        (define(**VECTOR), [0], [[2**14, 1]], [[2**14, 300]], "bad_value"),
        (define(**VECTOR), [0], [[0, -(2**14)]], [[0, -(2**14) - 1]], "bad_value"),
        (define(**VECTOR), [0], [[16383, 0]], [[16382, 0]], "bad_value"),
    ]
    for metric, level, good, bad, reason in cases:
        with row(metric.mechanism, level, bad):
            statistic = metric.zero()
            with pytest.raises(ReportError) as refused:
                metric.accumulate(statistic, level, bad)
            assert reason in f"{refused.value.reason} {refused.value}"
            assert not statistic.any()
            metric.accumulate(statistic, level, good)
    with pytest.raises(ReportError, match="bad_level"):
        define(**GOOD).accumulate(define(**GOOD).zero(), [3], [1])
    with pytest.raises(ValueError, match="needs int64"):
        define(**GOOD).accumulate(np.zeros(5, dtype=np.int64), [0], [1])


def test_the_squares_of_laplace_reports_are_kept_exactly() -> None:
    metric = metric_for("laplace", [0.0001])
    reports = np.array([92 * 1024 * 10_000, 7, -9] * 1000)  # the largest that noise can reach
    statistic = metric.zero()
    metric.accumulate(statistic, np.zeros(reports.size, dtype=np.uint8), reports)
    n, total, high, low = statistic.tolist()
    assert (n, total) == (reports.size, sum(reports.tolist()))
    assert (high << 31) + low == sum(y * y for y in reports.tolist())


def test_rappor_refuses_ones_after_its_last_category() -> None:
    for categories, last in ((8, 255), (9, 1), (10, 3), (15, 127), (16, 255)):
        with row(categories):
            randomizer = Rappor([Fraction(1)], categories=categories)
            empty = bytes(randomizer.width - 1)
            randomizer.check(b"\0\0", (empty + bytes([last])) * 2)
            if last < 255:
                with pytest.raises(ReportError, match="bad_value"):
                    randomizer.check(b"\0\0", empty + bytes([last]) + empty + bytes([last + 1]))


def test_a_mean_is_answered_in_the_unit_of_its_range() -> None:
    metric = define(**{**GOOD, "levels": [16]})
    statistic = metric.zero()
    metric.accumulate(statistic, np.zeros(3000, np.uint8), [0] * 2000 + [1] * 1000)
    estimate = metric.estimate(statistic)
    assert isinstance(estimate, Estimate)
    assert estimate.value == pytest.approx(20, abs=0.01)
    assert -60 < estimate.lower < 20 < estimate.upper < 180
    statistic[0] = 2**62
    assert np.isfinite(metric.estimate(statistic, bound="normal").value)


def test_vectors_are_shortened_to_the_radius_on_the_device() -> None:
    metric = define(**VECTOR)
    own = metric.domain.to_unit(np.array([[3.0, 4.0], [3e307, -4e307], [0.0, 2.5], [0, 0], [4, 4]]))
    half = np.sqrt(0.5)
    expected = np.array([[0.6, 0.8], [0.6, -0.8], [0, 0.5], [0, 0], [half, half]])
    assert np.allclose(own, expected)


def test_a_vector_is_answered_in_the_unit_of_its_radius() -> None:
    metric, n = define(**VECTOR), 20_000
    estimate = metric.estimate(summed(metric, [[3.0, 0]] * n, seed=2))
    assert estimate.value == pytest.approx([3, 0], abs=0.15)
    assert estimate.radius is not None
    assert 0 < estimate.radius < 0.2
    assert estimate.labels == ("0", "1")
    named = define(**VECTOR | NAMED)
    assert named.dimension == 3
    assert named.estimate(named.zero()).labels == ("x", "y", "z")


def test_a_question_without_an_answer_is_refused() -> None:
    cases: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        (GOOD, {"beta": 0}, "beta"),
        (GOOD, {"beta": 1}, "beta"),
        (GOOD, {"weights": "x"}, "weights"),
        (GOOD, {"bound": "x"}, "bound"),
        (GOOD, {"target": "x"}, "target"),
        (GOOD, {"categories": ["a"]}, "metric 'delay' has none"),
        (FREQUENCY, {"categories": ["d"]}, "category 'd' of 'f': expected one of B6, "),
        (FREQUENCY, {"categories": ["UA", "UA"]}, "each once"),
        (FREQUENCY, {"categories": "UA"}, "each once"),
    ]
    for good, question, message in cases:
        metric = define(**good)
        with row(good["name"], question), pytest.raises(ValueError, match=message):
            metric.estimate(metric.zero(), **question)
