"""The browser reports strings as Python does: keys, bits, geometries, reports and deny rules."""

import json
from fractions import Fraction
from typing import Any

import numpy as np

from estimators import DenyRule, LocalMetric, define
from estimators.discovery.report_layout import ROW_AIM, ROW_POINTS, TREE_AIM, TREE_POINTS
from estimators.exact.geometries import best_geometry
from estimators.mechanisms.projective_sketch import POINTS_RANGE
from estimators.metrics.categories import CodedVocabulary
from tests.services.browser.conftest import Modules
from tests.support.paths import ROOT
from tests.support.rows import row
from tests.support.running.served import definition

SEED = 20261123
CODES = json.loads((ROOT / "tests" / "vectors" / "prefix_tree.json").read_text())["codes"]
DENY = json.loads((ROOT / "tests" / "vectors" / "deny.json").read_text())
ENCODE = """
async ([code, texts]) => {
  const { encoder, normalUtf8, stringKey } = await load("string_code.js");
  const hex = (number, digits) => number.toString(16).padStart(digits, "0");
  const encode = encoder(code);
  return texts.map(normalUtf8).map((data) => [hex(stringKey(data), 16), hex(encode(data), 32)]);
}
"""
PIECES = [*"abcAZ09 /.-?=&%", "the", "ing", "http://", "é", "e\u0301", "ß", "я", "東", "\U0001f6a2"]
"""Of strings at random: characters of one to four bytes, and two ways to write one."""
DENIED = "(all) => all.map(([rule, texts]) => texts.map(dither.denyRule(rule)))"
AWKWARD = [*"aA@.?#= -()/+*%[]\\4é", "%40", "e\u0301", "\U0001f6a2", "4111", "11", "12345678", "\n"]


def sketched(levels: list[float], **keys: Any) -> LocalMetric:
    metric = define(name="page", kind="frequency", categories="open", levels=levels, **keys)
    return LocalMetric.require(metric)


def discovered(levels: list[float], **keys: Any) -> LocalMetric:
    return sketched(levels, **({"discover": True, "preset": "text"} | keys))


def test_strings_have_the_keys_and_bits_of_the_vectors(device: Modules) -> None:
    for vector in CODES:
        given = definition(discovered([1], **({"preset": None} | vector["code"])))
        texts = [text for text, *_ in vector["strings"]]
        expected = [rest for _, *rest in vector["strings"]]
        assert device.evaluate(ENCODE, [given["code"], texts]) == expected, vector["code"]


def test_strings_at_random_have_the_keys_and_bits_of_python(device: Modules) -> None:
    for preset in ("text", "url", "upper", "bytes"):
        metric, generator = discovered([1], preset=preset), np.random.default_rng(SEED)
        sizes = [*generator.integers(0, 40, 60).tolist(), 127, 128, 129, 256, 257, 5000]
        texts = ["".join(generator.choice(PIECES, size)) for size in sizes]
        texts += ["x" * size for size in (127, 128, 129, 255, 256, 4127, 4128, 4129)]
        assert isinstance(metric.domain, CodedVocabulary)
        rows = metric.domain.to_unit(np.array(texts, dtype=object)).tolist()
        expected = [[f"{key:016x}", f"{high:016x}{low:016x}"] for key, high, low in rows]
        with row(preset):
            assert device.evaluate(ENCODE, [definition(metric)["code"], texts]) == expected


GEOMETRIES = """
async ([epsilons, limits, aim]) => {
  const { bestGeometry, membersOf } = await load("geometry.js");
  return epsilons.map((epsilon) => {
    const found = bestGeometry(epsilon, limits, aim);
    const sum = membersOf(found).reduce((all, i, rank) => (all * 31 + i * (rank + 1)) % 1e9, 0);
    return [found.order, found.coordinates, found.variance, String(found.threshold), sum];
  });
}
"""


def test_each_level_has_the_geometry_of_python(device: Modules) -> None:
    epsilons = [0.0001, 0.28, 1, 2.7183, 5.9999, 6]
    for limits, aim in ((TREE_POINTS, TREE_AIM), (ROW_POINTS, ROW_AIM), (POINTS_RANGE, 364)):
        found = device.evaluate(GEOMETRIES, [epsilons, list(limits), aim])
        for epsilon, shown in zip(epsilons, found, strict=True):
            geometry = best_geometry(Fraction(round(epsilon * 10**4), 10**4), limits, aim)
            space, total = geometry.space, 0
            for rank, member in enumerate(space.members.tolist()):
                total = (total * 31 + member * (rank + 1)) % 10**9
            missed = (1 - geometry.p) * 2**64
            expected = [space.order, space.coordinates, geometry.variance, str(missed), total]
            assert shown == expected, epsilon


OF_A_CODE = "TypeError: code: expected "
OF_A_TREE = "TypeError: options of page: expected first, last"
OF_A_SKETCH = "TypeError: options of page: expected rows, points"
LENGTHS: dict[str, Any] = {"tokens": [], "lengths": {}}
REFUSED: dict[str, list[tuple[dict[str, Any], Any, str]]] = {
    "prefix_tree": [
        ({}, 7, "TypeError: value 7 of page: expected a string"),
        ({}, "\ud800", 'RangeError: value "\\ud800": expected whole Unicode characters'),
        ({"code": None}, "a", OF_A_CODE + "tokens and lengths"),
        ({"code": LENGTHS}, "a", OF_A_CODE + "a table for all"),
        ({"code": {**LENGTHS, "tokens": ["00"]}}, "a", OF_A_CODE + "at most 400"),
        ({"code": {**LENGTHS, "lengths": {"-1": "08" * 257}}}, "a", "lengths of a complete code"),
        ({"code": {**LENGTHS, "lengths": {"-1": "08" * 9}}}, "a", "expected a length a symbol"),
        (
            {"code": {**LENGTHS, "lengths": {"-1": "08" * 255 + "0909", "5.0": "08" * 257}}},
            "a",
            "a symbol in context 5.0",
        ),
        ({"options": {"last": 31}}, "a", OF_A_TREE),
        ({"options": {"rows": 10**6}}, "a", "TypeError: options of page: expected fewer rows"),
        ({"categories": ["a", "b"]}, "a", 'TypeError: page: expected categories "open"'),
        ({"deny": {"regex": ["a"]}}, "a", "TypeError: deny: expected only longer_than"),
    ],
    "projective_sketch": [
        ({"options": {"rows": 10**6}}, "a", OF_A_SKETCH),
        ({"options": {"points": 63}}, "a", OF_A_SKETCH),
        ({"options": {"seed": 0.5}}, "a", OF_A_SKETCH),
        ({"options": {"last": 16}}, "a", OF_A_SKETCH),
        ({"categories": ["a", "b"]}, "a", 'TypeError: page: expected categories "open"'),
    ],
}


def test_a_string_that_cannot_be_reported_is_an_error(device: Modules) -> None:
    for metric in (discovered([1], preset="bytes"), sketched([1])):
        for changed, value, said in REFUSED[metric.mechanism]:
            given = definition(metric) | changed
            found = device.error_of(
                "([definition, value]) => dither.randomize(definition, value, 1)",
                [{key: one for key, one in given.items() if one is not None}, value],
            )
            with row(metric.mechanism, changed):
                assert said in found


def test_a_denied_string_is_reported_as_other(device: Modules) -> None:
    """By the definition's rule, or by the page's own one, which a definition does not loosen."""
    words = [str(word) for word in range(2**62, 2**64, 2**59)]
    rules: list[tuple[dict[str, Any] | None, list[bool]]] = [
        ({"presets": ["email"]}, [True, True, False, False]),
        ({"longer_than": 999}, [False, True, False, False]),
        (None, [False, True, False, False]),
    ]
    for made in (discovered, sketched):
        for rule, denied in rules:
            metric = made([4], deny=rule) if rule else made([4])
            found = device.evaluate(
                """([definition, texts, words]) => texts.map((text) => {
                  const own = (text) => text.startsWith("/users/");
                  const prepared = BigUint64Array.from(words.map((word) => BigInt(word)));
                  let used = 0;
                  const bits = { integers: (n) => prepared.slice(used, used += n) };
                  const { report, denied } = dither.randomize(definition, text, 4, bits, own);
                  return [hex(report), denied];
                })""",
                [definition(metric), ["a@b.org", "/users/17", "other", "/home"], words],
            )
            reports, flags = zip(*found, strict=True)
            with row(metric.mechanism, rule):
                assert [*flags] == denied
                is_other = [report == reports[2] for report in reports]
                assert is_other == [denied[0], True, True, False]


def test_a_rule_denies_the_strings_of_its_vector_and_no_others(device: Modules) -> None:
    cases = [[v["rule"], v["denied"] + v["kept"]] for v in DENY["rules"]]
    expected = [[True] * len(v["denied"]) + [False] * len(v["kept"]) for v in DENY["rules"]]
    assert device.evaluate(DENIED, cases) == expected
    faulty = [*DENY["faulty"], *({key: ["x"] * 1001} for key in ("patterns", "strings"))]
    for rule in faulty:
        assert device.error_of("dither.denyRule", rule).startswith("TypeError: "), rule


def test_strings_at_random_are_denied_as_by_python(device: Modules) -> None:
    generator, cases, expected = np.random.default_rng(SEED), [], []
    rules: list[dict[str, Any]] = [
        {"presets": [name]} for name in ("email", "card", "digits", "query")
    ]
    rules += [{"patterns": [one]} for one in ("*a*4", "?*@?", "*[*", "a*.*a", "*é?*", "\\*")]
    rules += [{"longer_than": 6}]
    for rule in rules:
        sizes = generator.integers(0, 24, 400)
        texts = ["".join(generator.choice(AWKWARD, size)) for size in sizes]
        cases.append([rule, texts])
        expected.append([DenyRule.of(rule)(text) for text in texts])
        assert {*expected[-1]} == {True, False}, rule
    assert device.evaluate(DENIED, cases) == expected
