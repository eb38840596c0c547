"""The browser reports strings as Python does: keys, bits, geometries, reports and their law."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from estimators import LocalMetric, define
from estimators.discovery.layout import ROW_AIM, ROW_POINTS, TREE_AIM, TREE_POINTS
from estimators.metrics.categories import CodedVocabulary
from tests.support.browser_module import (
    PIECES,
    assert_same_bytes_of_strings,
    assert_same_geometries,
    assert_vector,
)
from tests.support.paths import ROOT
from tests.support.running import served

VECTORS = json.loads((ROOT / "tests" / "vectors" / "prefix_tree.json").read_text())
SEED = 20261123
ENCODE = """
async ([code, texts]) => {
  const { encoder, normalUtf8, stringKey } = await import("/string_code.js");
  const hex = (number, digits) => number.toString(16).padStart(digits, "0");
  const encode = encoder(code);
  return texts.map(normalUtf8).map((data) => [hex(stringKey(data), 16), hex(encode(data), 32)]);
}
"""


def strings(levels: list[float], **keys: Any) -> LocalMetric:
    found = {"categories": "open", "discover": True, "preset": "text"} | keys
    return LocalMetric.require(define(name="page", kind="frequency", levels=levels, **found))


def test_strings_have_the_keys_and_bits_of_the_vectors(device: Page) -> None:
    for vector in VECTORS["codes"]:
        given = served.definition(strings([1], **({"preset": None} | vector["code"])))
        texts = [text for text, *_ in vector["strings"]]
        expected = [rest for _, *rest in vector["strings"]]
        assert device.evaluate(ENCODE, [given["code"], texts]) == expected, vector["code"]


def test_the_reports_and_fingerprints_are_those_of_the_vectors(device: Page) -> None:
    for vector in VECTORS["reports"]:
        metric = strings(**({"preset": None} | vector["definition"]))
        assert_vector(device, metric, vector)


@pytest.mark.parametrize("preset", ["text", "url", "upper", "bytes"])
def test_strings_at_random_have_the_keys_and_bits_of_python(device: Page, preset: str) -> None:
    metric, generator = strings([1], preset=preset), np.random.default_rng(SEED)
    sizes = [*generator.integers(0, 40, 60).tolist(), 127, 128, 129, 256, 257, 5000]
    texts = ["".join(generator.choice(PIECES, size)) for size in sizes]
    texts += ["x" * size for size in (127, 128, 129, 255, 256, 4127, 4128, 4129)]
    assert isinstance(metric.domain, CodedVocabulary)
    rows = metric.domain.to_unit(np.array(texts, dtype=object)).tolist()
    expected = [[f"{key:016x}", f"{high:016x}{low:016x}"] for key, high, low in rows]
    assert device.evaluate(ENCODE, [served.definition(metric)["code"], texts]) == expected


def test_the_same_random_words_give_the_same_bytes(device: Page) -> None:
    metric = strings([0.0001, 1, 2, 64], options={"last": 40})
    assert_same_bytes_of_strings(device, metric, SEED)


@pytest.mark.parametrize(("limits", "aim"), [(TREE_POINTS, TREE_AIM), (ROW_POINTS, ROW_AIM)])
def test_each_level_has_the_geometry_of_python(
    device: Page, limits: tuple[int, int], aim: int
) -> None:
    generator = np.random.default_rng(SEED)
    epsilons = [0.0001, 1, 5.9999, *np.round(generator.uniform(0.1, 6, 2), 4).tolist()]
    assert_same_geometries(device, epsilons, limits, aim)


def test_a_browsers_strings_have_the_law_of_python(device: Page) -> None:
    """How many reports are of whole strings, and how many support a string, is binomial.

    |z| > 4.9 has probability 1e-6; 3 x 2 numbers: below 1e-5 for a false alarm.
    """
    metric, devices = strings([0.5, 2, 4.25], options={"last": 32}), 6000
    mechanism: Any = metric.randomizer
    own = metric.domain.to_unit(np.array(["some page"], dtype=object))[0]
    for level, epsilon in enumerate(metric.levels):
        found = device.evaluate(
            """([definition, epsilon, n]) => Array.from({ length: n }, () =>
              dither.randomize(definition, "some page", epsilon).report.toHex()).join("")""",
            [served.definition(metric), epsilon, devices],
        )
        reports = mechanism.decode(bytes.fromhex(found))
        mechanism.check(bytes([level]) * devices, bytes.fromhex(found))
        layout = mechanism.layout
        tree, sketch = layout.trees[level], layout.sketches[level]
        whole = reports >= len(layout.depths) * tree.points
        p = float(sketch.p + 2 * tree.p) / 3
        counts = [whole.sum(), mechanism.supports(reports, level, own).sum()]
        for observed, chance in zip(counts, [1 / 3, p], strict=True):
            spread = math.sqrt(devices * chance * (1 - chance))
            assert abs(observed - devices * chance) <= 4.9 * spread, (epsilon, observed, chance)


@pytest.mark.parametrize(
    ("changed", "value", "said"),
    [
        ({}, 7, "TypeError: value 7 of page: expected a string"),
        ({}, "\ud800", "RangeError: a value: expected Unicode text"),
        ({"code": None}, "a", "TypeError: code: expected tokens and lengths"),
        ({"code": {"tokens": [], "lengths": {}}}, "a", "TypeError: code: expected a table for all"),
        ({"code": {"tokens": ["00"], "lengths": {}}}, "a", "TypeError: code: expected at most 400"),
        (
            {"code": {"tokens": [], "lengths": {"-1": "08" * 257}}},
            "a",
            "lengths of a complete code",
        ),
        ({"code": {"tokens": [], "lengths": {"-1": "08" * 9}}}, "a", "expected a length a symbol"),
        ({"code": {"tokens": [], "lengths": {"-2": "08" * 257}}}, "a", "a symbol in context -2"),
        (
            {"code": {"tokens": [], "lengths": {"-1": "08" * 255 + "0909", "5.0": "08" * 257}}},
            "a",
            "a symbol in context 5.0",
        ),
        ({"options": {"last": 31}}, "a", "TypeError: options of page: expected first, last"),
        ({"options": {"rows": 0}}, "a", "TypeError: options of page: expected first, last"),
        ({"options": {"rows": 10**6}}, "a", "TypeError: options of page: expected fewer rows"),
        ({"options": {"seed": 0.5}}, "a", "TypeError: options of page: expected first, last"),
        ({"categories": ["a", "b"]}, "a", 'TypeError: page: expected categories "open"'),
        ({"deny": {"regex": ["a"]}}, "a", "TypeError: deny: expected only longer_than"),
    ],
    ids=str,
)
def test_a_string_that_cannot_be_reported_is_an_error(
    device: Page, changed: dict[str, Any], value: Any, said: str
) -> None:
    given = served.definition(strings([1], preset="bytes")) | changed
    given = {key: one for key, one in given.items() if one is not None}
    # half of a surrogate pair is no UTF-8: it travels escaped
    found = device.evaluate(
        """([definition, value]) => {
          try { dither.randomize(definition, JSON.parse(value), 1); return ""; }
          catch (error) { return `${error.name}: ${error.message}`; } }""",
        [given, json.dumps(value)],
    )
    assert said in found


def test_a_denied_string_is_reported_as_other(device: Page) -> None:
    """By the definition's rule, or by the page's own one, which a definition does not loosen."""
    metric = strings([4], deny={"presets": ["email"]})
    loosened = strings([4], deny={"longer_than": 999})
    plain, words = strings([4]), [str(word) for word in range(2**62, 2**64, 2**59)]
    found = device.evaluate(
        """([definitions, texts, words]) => {
          const own = (text) => text.startsWith("/users/");
          const bits = () => {
            let used = 0;
            const prepared = BigUint64Array.from(words.map((word) => BigInt(word)));
            return { integers: (n) => { used += n; return prepared.slice(used - n, used); } };
          };
          return definitions.map((one) => texts.map((text) => {
            const { report, denied } = dither.randomize(one, text, 4, bits(), own);
            return [Array.from(report), denied];
          }));
        }""",
        [
            [served.definition(each) for each in (metric, loosened, plain)],
            ["a@b.org", "/users/17", "other", "/home"],
            words,
        ],
    )
    for metric_found, denied in zip(found, ([1, 1, 0, 0], [0, 1, 0, 0], [0, 1, 0, 0]), strict=True):
        assert [flag for _, flag in metric_found] == [bool(flag) for flag in denied]
        other = metric_found[2][0]
        for (report, flag), text in zip(metric_found, "abcd", strict=True):
            assert (report == other) == (flag or text == "c"), text
