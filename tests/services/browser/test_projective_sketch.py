"""The browser reports strings for look-ups as Python does: byte for byte, and by the same law."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from estimators import LocalMetric, define
from estimators.exact.geometries import best_geometry
from estimators.mechanisms.projective_sketch import LIMITS
from tests.services.browser.test_prefix_tree import GEOMETRIES, PIECES
from tests.services.browser.test_randomizers import RANDOMIZE, device
from tests.support.paths import ROOT
from tests.support.prepared_words import PreparedWords, awkward_words
from tests.support.running import served

__all__ = ["device"]
VECTORS = json.loads((ROOT / "tests" / "vectors" / "projective_sketch.json").read_text())
SEED = 20261124


def strings(levels: list[float], **keys: Any) -> LocalMetric:
    metric = define(name="page", kind="frequency", categories="open", levels=levels, **keys)
    return LocalMetric.require(metric)


def test_the_reports_and_fingerprints_are_those_of_the_vectors(device: Page) -> None:
    for vector in VECTORS:
        metric = strings(**vector["definition"])
        given, cases, expected = served.definition(metric), [], []
        for text, level, words, report in vector["cases"]:
            shown = [str(int(word, 16)) for word in words]
            cases.append({"value": text, "epsilon": metric.levels[level], "words": shown})
            expected.append([level, list(bytes.fromhex(report)), len(words)])
        assert device.evaluate(RANDOMIZE, [given, cases]) == expected, vector["definition"]
        found = device.evaluate("(definition) => dither.fingerprintOf(definition)", given)
        assert found == vector["fingerprint"]


def test_the_same_random_words_give_the_same_bytes(device: Page) -> None:
    metric = strings([0.0001, 1, 2, 64], options={"rows": 300, "seed": 3})
    mechanism: Any = metric.randomizer
    generator, cases, expected = np.random.default_rng(SEED), [], []
    for _ in range(300):
        level = int(generator.integers(len(metric.levels)))
        text = "".join(generator.choice(PIECES, int(generator.integers(0, 12))))
        words = PreparedWords(awkward_words(generator, mechanism.misses, 64))
        report = metric.randomize([text], [level], words)
        expected.append([level, list(metric.randomizer.encode(report)), words.used])
        shown = [str(word) for word in words.words[: words.used].tolist()]
        cases.append({"value": text, "epsilon": metric.levels[level], "words": shown})
    assert device.evaluate(RANDOMIZE, [served.definition(metric), cases]) == expected
    assert len({used for _, _, used in expected}) > 1, "no word was rejected: the test is too tame"


def test_each_level_has_the_geometry_of_python(device: Page) -> None:
    generator = np.random.default_rng(SEED)
    epsilons = [0.0001, 0.28, 4, 6, *np.round(generator.uniform(0.1, 6, 4), 4).tolist()]
    found = device.evaluate(GEOMETRIES, [epsilons, list(LIMITS), 364])
    for epsilon, row in zip(epsilons, found, strict=True):
        geometry = best_geometry(Fraction(round(epsilon * 10**4), 10**4), LIMITS, 364)
        space, total = geometry.space, 0
        for rank, member in enumerate(space.members.tolist()):
            total = (total * 31 + member * (rank + 1)) % 10**9
        missed = (1 - geometry.p) * 2**64
        expected = [space.order, space.coordinates, geometry.variance, str(missed), total]
        assert row == expected, epsilon


def test_a_browsers_strings_have_the_law_of_python(device: Page) -> None:
    """How many reports support a string is binomial; |z| > 4.9 has probability 1e-6."""
    metric, devices = strings([0.5, 2, 4.25]), 4000
    mechanism: Any = metric.randomizer
    key = int(metric.domain.to_unit(np.array(["some page"], dtype=object))[0])
    for level, epsilon in enumerate(metric.levels):
        found = device.evaluate(
            """([definition, epsilon, n]) => Array.from({ length: n }, () =>
              dither.randomize(definition, "some page", epsilon).report.toHex()).join("")""",
            [served.definition(metric), epsilon, devices],
        )
        reports = mechanism.decode(bytes.fromhex(found))
        mechanism.check(bytes([level]) * devices, bytes.fromhex(found))
        p = float(mechanism.hashed_rows[level].geometry.p)
        observed = mechanism.supports(reports, level, key).sum()
        assert abs(observed - devices * p) <= 4.9 * math.sqrt(devices * p * (1 - p)), epsilon


@pytest.mark.parametrize(
    ("changed", "value", "said"),
    [
        ({}, 7, "TypeError: value 7 of page: expected a string"),
        ({}, "\ud800", "RangeError: a value: expected Unicode text"),
        ({"options": {"rows": 0}}, "a", "TypeError: options of page: expected rows, points"),
        ({"options": {"rows": 10**6}}, "a", "TypeError: options of page: expected rows, points"),
        ({"options": {"points": 63}}, "a", "TypeError: options of page: expected rows, points"),
        ({"options": {"seed": 0.5}}, "a", "TypeError: options of page: expected rows, points"),
        ({"options": {"last": 16}}, "a", "TypeError: options of page: expected rows, points"),
        ({"categories": ["a", "b"]}, "a", 'TypeError: page: expected categories "open"'),
    ],
    ids=str,
)
def test_a_string_that_cannot_be_reported_is_an_error(
    device: Page, changed: dict[str, Any], value: Any, said: str
) -> None:
    given = served.definition(strings([1])) | changed
    # half of a surrogate pair is no UTF-8: it travels escaped
    found = device.evaluate(
        """([definition, value]) => {
          try { dither.randomize(definition, JSON.parse(value), 1); return ""; }
          catch (error) { return `${error.name}: ${error.message}`; } }""",
        [given, json.dumps(value)],
    )
    assert said in found


def test_a_denied_string_is_reported_as_other(device: Page) -> None:
    metric = strings([4], deny={"presets": ["email"]})
    words = [str(word) for word in range(2**62, 2**64, 2**59)]
    found = device.evaluate(
        """([definition, texts, words]) => texts.map((text) => {
          const prepared = BigUint64Array.from(words.map((word) => BigInt(word)));
          let used = 0;
          const bits = { integers: (n) => { used += n; return prepared.slice(used - n, used); } };
          const { report, denied } = dither.randomize(definition, text, 4, bits);
          return [Array.from(report), denied];
        })""",
        [served.definition(metric), ["a@b.org", "other", "/home"], words],
    )
    (denied, was), (other, _), (home, kept) = found
    assert (denied == other, was, home == other, kept) == (True, True, False, False)
