"""What a definition denies is not reported, and no report tells whether something was denied."""

import json
import time
from typing import Any

import numpy as np
import pytest

from estimators import DefinitionError, DenyRule, LocalMetric, SeededBits, define
from estimators.metrics.denial import without_denied
from estimators.metrics.loading import definition_of, read_definition
from producers.populations.truth import RunningTruth
from tests.support.paths import ROOT
from tests.support.rows import row

VECTORS = json.loads((ROOT / "tests" / "vectors" / "deny.json").read_text())


def of_strings(**more: Any) -> LocalMetric:
    keys = {"mechanism": "count_sketch"} | more
    return LocalMetric.require(
        define(name="page", kind="frequency", categories="open", levels=[1, 4], **keys)
    )


DISCOVERED = {"mechanism": None, "discover": True, "preset": "url"}


def test_a_rule_denies_the_strings_of_its_vector_and_no_others() -> None:
    for vector in VECTORS["rules"]:
        rule = DenyRule.of(vector["rule"])
        with row(vector["rule"]):
            assert [text for text in vector["denied"] if not rule(text)] == []
            assert [text for text in vector["kept"] if rule(text)] == []


def test_a_faulty_rule_is_an_error_of_the_definition() -> None:
    too_many = [{"patterns": ["x"] * 1001}, {"strings": ["x"] * 1001}]
    for faulty in VECTORS["faulty"] + too_many:
        with row(str(faulty)[:40]), pytest.raises(DefinitionError, match=r"^page\.deny = "):
            of_strings(deny=faulty)
    others: list[tuple[dict[str, Any], str]] = [
        ({"kind": "frequency", "categories": ["a", "b"]}, "no deny unless categories = 'open'"),
        ({"kind": "mean", "range": (0, 1)}, "no deny for kind 'mean'"),
    ]
    for keys, told in others:
        with row(keys), pytest.raises(DefinitionError, match=told):
            define(name="m", levels=[1], deny={"longer_than": 1}, **keys)


@pytest.mark.parametrize("more", [{}, DISCOVERED])
def test_a_denied_string_is_reported_as_other_bit_for_bit(more: dict[str, Any]) -> None:
    metric = of_strings(**more, deny={"presets": ["email"], "longer_than": 20})
    plain = of_strings(**more)
    strings = ["/home", "ann@example.org", "other", "x" * 21, "Ann@Example.org"] * 20
    instead = ["/home", "other", "other", "other", "other"] * 20
    level = np.arange(100) % 2
    found = metric.randomize(strings, level, SeededBits(1))
    assert (found == plain.randomize(instead, level, SeededBits(1))).all()
    assert (found == metric.randomize(instead, level, SeededBits(1))).all()
    rules = [DenyRule(presets=["email"]), DenyRule(longer_than=20)]
    said, denied = without_denied(np.array(strings), rules)
    assert (said.tolist(), denied) == (instead, 60)


@pytest.mark.parametrize("more", [{}, DISCOVERED])
def test_a_rule_is_part_of_what_a_device_agrees_to_if_there_is_one(more: dict[str, Any]) -> None:
    plain, ruled = of_strings(**more), of_strings(**more, deny={"longer_than": 20})
    assert "deny" not in plain.canonical
    loosened = of_strings(**more, deny={"longer_than": 21})
    assert len({metric.fingerprint for metric in (plain, ruled, loosened)}) == 3
    again = read_definition("page", definition_of(ruled))
    assert again.fingerprint == ruled.fingerprint
    empty = of_strings(**more, deny={"longer_than": 20, "patterns": []})
    assert empty.fingerprint == ruled.fingerprint


def test_a_string_that_is_denied_can_be_asked_for_by_its_own_name() -> None:
    """The answer is that nobody reports it, not that of "other".

    The seed is fixed; the bands of 95% are far apart.
    """
    metric = of_strings(deny={"strings": ["secret"]})
    statistic, level = metric.zero(), np.ones(20_000, dtype=np.uint8)
    metric.accumulate(statistic, level, metric.randomize(["secret"] * 20_000, level, SeededBits(1)))
    found = metric.estimate(statistic, categories=["secret", "other"])
    assert np.asarray(found.upper)[0] < 0.1
    assert np.asarray(found.lower)[1] > 0.9


def test_the_truth_of_a_simulation_is_that_of_what_is_reported() -> None:
    metric = of_strings(deny={"presets": ["digits"]})
    truth = RunningTruth(metric)
    truth.add(np.array(["a", "123456789", "a", "1234-56789"]), np.zeros(4, dtype=np.uint8))
    found = truth.now()
    assert set(found.labels) == {"a", "other"}
    assert np.asarray(found.value).tolist() == [0.5, 0.5]


def test_no_string_takes_a_rule_long() -> None:
    """Seconds would be thousands of times what linear time takes."""
    rules: list[tuple[dict[str, Any], str]] = [
        ({"patterns": ["*" + "a*" * 99]}, "a" * 98 + "b" * 20_000),
        ({"presets": ["email"]}, "a@" * 50_000),
        ({"presets": ["email"]}, "a%40" * 50_000),
        ({"presets": ["email"]}, "a@" + "." * 100_000),
        ({"presets": ["card"]}, "4 " * 50_000),
        ({"presets": ["card"]}, "4" * 100_000),
        ({"presets": ["digits"]}, "1  " * 3 + "1 - " * 30_000),
        ({"presets": ["query"]}, "#a" * 50_000),
    ]
    for rule, text in rules:
        denies, start = DenyRule.of(rule), time.process_time()
        denies(text)
        with row(rule, text[:9]):
            assert time.process_time() - start < 5


@pytest.mark.parametrize("more", [{}, DISCOVERED])
def test_a_nul_at_the_end_belongs_to_a_string(more: dict[str, Any]) -> None:
    """Numpy's own strings lose it."""
    metric, level = of_strings(**more), np.zeros(50, dtype=np.uint8)
    found = metric.randomize(["a\0"] * 50, level, SeededBits(1))
    whole = np.array(["a\0"] * 50, dtype=object)
    assert (found == metric.randomize(whole, level, SeededBits(1))).all()
    assert (found != metric.randomize(["a"] * 50, level, SeededBits(1))).any()
    assert metric.domain.rows("a\0").tolist() == ["a\0"]
    named = define(name="m", kind="frequency", mechanism="grr", categories=["a", "b"], levels=[1])
    with pytest.raises(ValueError, match=r"category 'a\\x00' of 'm'"):
        LocalMetric.require(named).randomize(["a\0"], [0])
