"""The browser reports strings for look-ups as Python does: byte for byte, and by the same law."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from estimators import LocalMetric, define
from estimators.mechanisms.projective_sketch import LIMITS
from tests.support.browser_module import (
    assert_same_bytes_of_strings,
    assert_same_geometries,
    assert_vector,
)
from tests.support.paths import ROOT
from tests.support.running import served

VECTORS = json.loads((ROOT / "tests" / "vectors" / "projective_sketch.json").read_text())
SEED = 20261124


def strings(levels: list[float], **keys: Any) -> LocalMetric:
    metric = define(name="page", kind="frequency", categories="open", levels=levels, **keys)
    return LocalMetric.require(metric)


def test_the_reports_and_fingerprints_are_those_of_the_vectors(device: Page) -> None:
    for vector in VECTORS:
        assert_vector(device, strings(**vector["definition"]), vector)


def test_the_same_random_words_give_the_same_bytes(device: Page) -> None:
    metric = strings([0.0001, 1, 2, 64], options={"rows": 300, "seed": 3})
    assert_same_bytes_of_strings(device, metric, SEED)


def test_each_level_has_the_geometry_of_python(device: Page) -> None:
    generator = np.random.default_rng(SEED)
    epsilons = [0.0001, 0.28, 4, 6, *np.round(generator.uniform(0.1, 6, 4), 4).tolist()]
    assert_same_geometries(device, epsilons, LIMITS, 364)


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
