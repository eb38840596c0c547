"""The browser's deny rules are those of Python: string for string."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from playwright.sync_api import Page

from estimators import DenyRule
from tests.support.paths import ROOT

VECTORS = json.loads((ROOT / "tests" / "vectors" / "deny.json").read_text())
DENIED = """
(all) => all.map(([rule, texts]) => texts.map(dither.denyRule(rule)))
"""
PIECES = [*"aA@.?#= -()/+*%[]\\4é", "%40", "e\u0301", "\U0001f6a2", "4111", "11", "12345678", "\n"]


def test_a_rule_denies_the_strings_of_its_vector_and_no_others(device: Page) -> None:
    cases = [[v["rule"], v["denied"] + v["kept"]] for v in VECTORS["rules"]]
    expected = [[True] * len(v["denied"]) + [False] * len(v["kept"]) for v in VECTORS["rules"]]
    assert device.evaluate(DENIED, cases) == expected


def test_a_rule_that_is_not_known_in_full_is_an_error(device: Page) -> None:
    faulty = [*VECTORS["faulty"], *({key: ["x"] * 1001} for key in ("patterns", "strings"))]
    found = device.evaluate(
        """(all) => all.map((rule) => {
          try { dither.denyRule(rule); return "none"; } catch (error) { return error.name; }
        })""",
        faulty,
    )
    assert found == ["TypeError"] * len(faulty)


def test_strings_at_random_are_denied_as_by_python(device: Page) -> None:
    generator, cases, expected = np.random.default_rng(20261123), [], []
    patterns = ["*a*4", "?*@?", "*[*", "a*.*a", "*é?*", "\\*"]
    rules: list[dict[str, Any]] = [
        {"presets": [name]} for name in ("email", "card", "digits", "query")
    ]
    rules += [{"patterns": [pattern]} for pattern in patterns]
    rules += [{"longer_than": 6}]
    for rule in rules:
        texts = ["".join(generator.choice(PIECES, size)) for size in generator.integers(0, 24, 400)]
        cases.append([rule, texts])
        expected.append([DenyRule.of(rule)(text) for text in texts])
        assert any(expected[-1]), rule
        assert not all(expected[-1]), rule
    assert device.evaluate(DENIED, cases) == expected


def test_the_pages_own_rule_is_not_switched_off_by_a_definition(device: Page) -> None:
    found = device.evaluate(
        """async () => {
          const { withoutDenied } = await import("/deny.js");
          const own = dither.denyRule({ presets: ["email"] });
          const definition = { name: "page", categories: "open" };
          return [{ ...definition }, { ...definition, deny: { strings: ["x"] } }].map((one) =>
            ["a@b.org", "x", "/home"].map((text) => withoutDenied(one, text, own)));
        }"""
    )
    kept, other = {"value": "/home", "denied": False}, {"value": "other", "denied": True}
    assert found[0] == [other, {"value": "x", "denied": False}, kept]
    assert found[1] == [other, other, kept]
