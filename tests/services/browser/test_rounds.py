"""The browser answers rounds as Python does, bit for bit, and each at most once."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from playwright.sync_api import Page

from estimators import SearchMetric, define
from estimators.exact.randomness import SeededBits
from estimators.extremes import Progress
from estimators.extremes.search import Decision
from estimators.metrics.loading import read_definition
from producers.wire.batch import encode_batch
from tests.support.paths import ROOT
from tests.support.prepared_words import PreparedWords
from tests.support.running.served import definition, module

VECTORS = ROOT / "tests" / "vectors" / "definitions.json"
ROUNDS, THRESHOLD = 6, 40.0
KEY, TIME_MS = bytes(range(16)), 1_700_000_000_000
ANSWER = """
([definition, round, cases, time, key]) => cases.map(({value, epsilon, words}) => {
  let used = 0;
  const prepared = BigUint64Array.from(words.map((word) => BigInt(word)));
  const bits = { integers: (n) => { used += n; return prepared.slice(used - n, used); } };
  const { level, report } = dither.randomizeAnswer(definition, round, value, epsilon, bits);
  const batch = { time, batchId: Uint8Array.from(key), round: round.number };
  const encoded = dither.encodeBatch(definition, [level], [report], batch);
  return [level, report[0], used, Array.from(encoded)];
})
"""
INSIST = """
(asked) => {
  const kept = new Map();
  const storage = { getItem: (k) => kept.get(k) ?? null, setItem: (k, v) => kept.set(k, v) };
  return asked.map(([definition, round]) => {
    try { return dither.takeTurn(definition, round, storage); }
    catch (error) { return error.message; }
  });
}
"""
ATTEMPT = """
async ([definition, rounds]) => {
  localStorage.clear();
  let posts = 0;
  window.fetch = async () => {
    posts += 1;
    return Response.json({ batch_id: "00" }, { status: 202 });
  };
  const said = [];
  for (const round of rounds) {
    try { said.push(await dither.answer("/v1/reports", definition, round, 17, 1)); }
    catch (error) { said.push(error.message); }
  }
  return [posts, said, Object.keys(localStorage)];
}
"""


def metric(kind: str, split: str) -> SearchMetric:
    found = define(
        name="age", kind=kind, range=(0, 64), levels=[0.5, 1, 3], rounds=ROUNDS, split=split
    )
    return SearchMetric.require(found)


@pytest.mark.parametrize("split", ["users", "budget"])
@pytest.mark.parametrize("kind", ["minimum", "maximum"])
def test_the_same_random_words_give_the_same_answers(device: Page, kind: str, split: str) -> None:
    asked, cases, expected = metric(kind, split), [], []
    for value in range(-3, 68):
        level = value % 3
        words = PreparedWords(SeededBits(value + 3).integers(8))
        answer = asked.search.answer([value], [level], THRESHOLD, words)
        batch = encode_batch(asked, [level], answer, TIME_MS, KEY, 3)
        expected.append([level, int(answer[0]), words.used, list(batch)])
        shown = [str(word) for word in words.words.tolist()]
        cases.append({"value": value, "epsilon": asked.levels[level], "words": shown})
    told = round_of(asked, 3, THRESHOLD)
    found = device.evaluate(ANSWER, [definition(asked), told, cases, TIME_MS, list(KEY)])
    assert found == expected


def round_of(asked: SearchMetric, number: Any, threshold: Any, **changes: Any) -> dict[str, Any]:
    told = {"metric": asked.name, "revision": asked.revision, "rounds": asked.rounds}
    return {**told, "number": number, "threshold": threshold, **changes}


def all_rounds(asked: SearchMetric) -> list[dict[str, Any]]:
    """Return the rounds of a search that always goes to the lower half."""
    return [round_of(asked, number, 64 / 2**number) for number in range(1, (asked.rounds or 0) + 1)]


@pytest.mark.parametrize(("split", "turns"), [("users", 1), ("budget", ROUNDS)])
def test_a_browser_answers_each_round_at_most_once(device: Page, split: str, turns: int) -> None:
    asked = metric("maximum", split)
    rounds = [each for each in all_rounds(asked) for _ in range(3)]
    found = device.evaluate(INSIST, [[definition(asked), each] for each in rounds])
    assert set(found) <= {True, False}
    assert sum(found) == turns


@pytest.mark.parametrize(("split", "turns"), [("users", 1), ("budget", ROUNDS)])
def test_a_made_up_definition_is_no_new_turn(device: Page, split: str, turns: int) -> None:
    """Of 500 definitions that a server makes up, whatever revision each calls itself by."""
    asked = metric("maximum", split)
    real = definition(asked)
    attempts = [(real, each) for each in all_rounds(asked)]
    for number in range(100):
        other = dataclasses.replace(asked, beta=0.1 + number / 1000)
        made_up = {**definition(other), "revision": number + 1}  # not its own
        same = {**definition(other), "revision": asked.revision}
        whole = definition(other)  # its own: only the ledger of turns is left to refuse it
        another = definition(dataclasses.replace(other, rounds=20))
        unsplit = definition(dataclasses.replace(other, split="budget", rounds=1))
        for each in (made_up, same, whole, another, unsplit):
            told = {"revision": each["revision"], "rounds": each["rounds"]}
            attempts.append((each, round_of(asked, 1, 32, **told)))
    found = device.evaluate(INSIST, attempts)
    assert found.count(True) == turns
    refused = found[ROUNDS:]
    assert all(isinstance(each, str) for each in refused)
    assert "another definition than the one that this browser has answered" in refused[2]
    assert "expected" in refused[0]


@pytest.mark.parametrize("split", ["users", "budget"])
def test_a_round_that_the_definition_does_not_allow_is_refused(device: Page, split: str) -> None:
    asked = metric("maximum", split)
    wrong = [
        *(round_of(asked, number, 32) for number in range(ROUNDS + 1, 51)),
        *(round_of(asked, number, 32, rounds=50) for number in range(1, 51)),
        *(round_of(asked, number, 32) for number in (0, -1, 1.5, 2, "1", None, True)),
        *(round_of(asked, 1, threshold) for threshold in (16, 32.5, 64, 0, "32", None, 1e999)),
        round_of(asked, 2, 32),
        round_of(asked, 1, 32, revision=asked.revision + 1),
        round_of(asked, 1, 32, metric="size"),
    ]
    posts, said, kept = device.evaluate(ATTEMPT, [definition(asked), wrong])
    assert (posts, kept) == (0, [])
    assert all("expected" in each for each in said)


@pytest.mark.parametrize(
    "changes",
    [
        {"split": "neither"},
        {"split": None},
        {"rounds": 6.5},
        {"rounds": 51},
        {"rounds": 0},
        {"range": [0, 1e999]},
        {"range": [64, 0]},
        {"kind": "mean"},
        {"trust": "central"},
        {"levels": [1, 0.5]},
        {"pane_seconds": None},
    ],
)
def test_a_definition_that_is_no_search_is_refused(device: Page, changes: dict[str, Any]) -> None:
    asked = metric("maximum", "budget")
    given = {**definition(asked), **changes}
    rounds = [round_of(asked, 1, 32, rounds=given["rounds"])]
    posts, said, _ = device.evaluate(ATTEMPT, [given, rounds])
    assert posts == 0
    assert "expected" in said[0]


def test_a_browser_answers_what_is_asked_rightly_and_keeps_it_by_name(device: Page) -> None:
    asked = metric("maximum", "budget")
    rounds = all_rounds(asked)
    again = [*rounds, round_of(asked, 6, 33), rounds[0], round_of(asked, 3, 40.0)]
    posts, said, kept = device.evaluate(ATTEMPT, [definition(asked), again])
    assert posts == ROUNDS
    assert said == [True] * ROUNDS + [False] * 3
    assert kept == ["dither:age"]


def test_pages_of_one_browser_take_turns_one_after_the_other(device: Page) -> None:
    """What one page reads of its turn, another must not be about to change."""
    asked = metric("maximum", "budget")
    page = device.context.new_page()
    page.route(
        "**/*.js",
        lambda route: route.fulfill(body=module(route.request.url), content_type="text/javascript"),
    )
    page.route(
        "**/", lambda route: route.fulfill(body="<title>device</title>", content_type="text/html")
    )
    page.goto("https://device.test/")  # there are no locks over plain HTTP
    found = page.evaluate(
        """async ([definition, round]) => {
          const { answer } = await import("/dither.js");
          let posts = 0;
          window.fetch = async () => {
            posts += 1;
            return Response.json({ batch_id: "00" }, { status: 202 });
          };
          let release;
          const held = new Promise((resolve) => { release = resolve; });
          navigator.locks.request(`dither:${definition.name}`, () => held);
          const both = [1, 2].map(() => answer("/v1/reports", definition, round, 17, 1));
          for (let i = 0; i < 20; i += 1) await new Promise((resolve) => setTimeout(resolve));
          const before = [posts, localStorage.length];
          release();
          return [before, await Promise.all(both), posts];
        }""",
        [definition(asked), round_of(asked, 1, 32)],
    )
    page.close()
    assert found == [[0, 0], [True, False], 1]


@pytest.mark.parametrize("kind", ["minimum", "maximum"])
@pytest.mark.parametrize("ends", [(0, 64), (-0.3, 1e9 + 0.1), (1e9, 1e9 + 1e-3), (-1e-7, 3)])
def test_the_points_of_a_search_are_those_of_python(
    device: Page, kind: str, ends: tuple[float, float]
) -> None:
    asked = SearchMetric.require(define(name="age", kind=kind, range=ends, levels=[1], rounds=50))
    generator, cases = np.random.default_rng(1), []
    for _ in range(20):
        outwards = generator.random(50) < generator.random()
        decisions: list[Decision] = []
        for number in range(1, 51):
            threshold = asked.search.threshold(Progress(tuple(decisions)))
            decisions.append(Decision(threshold, (), (), 0.0, 1.0, bool(outwards[number - 1])))
            others = [math.nextafter(threshold, math.inf), float(generator.uniform(*ends))]
            cases += [(number, each) for each in (threshold, *others)]
    expected = [asked.search.could_ask(number, threshold) for number, threshold in cases]
    found = device.evaluate(
        """async ([definition, cases]) => {
          const { couldAsk } = await import("/definition.js");
          return cases.map(([number, threshold]) => couldAsk(definition, number, threshold));
        }""",
        [definition(asked), cases],
    )
    assert found == expected
    assert all(expected[::3])
    assert not all(expected)


def test_the_canonical_form_is_that_of_python_byte_for_byte(device: Page) -> None:
    vectors = json.loads(VECTORS.read_text())
    metrics = [read_definition("m", vector["table"]) for vector in vectors]
    found = device.evaluate(
        """(all) => all.map((one) => [
          dither.canonicalForm(one), dither.fingerprintOf(one), dither.revisionOf(one)])""",
        [definition(metric) for metric in metrics],
    )
    assert found == [
        [v["canonical"], v["fingerprint"], m.revision]
        for v, m in zip(vectors, metrics, strict=True)
    ]


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    numbers=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=40, max_size=40),
    names=st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=2, unique=True),
)
def test_numbers_and_names_are_written_as_by_python(
    device: Page, numbers: list[float], names: list[str]
) -> None:
    rows = [sorted(pair) for pair in zip(numbers[::2], numbers[1::2], strict=True)]
    given = {"name": "m", "kind": "mean", "mechanism": "m", "levels": [1], "pane_seconds": 0.001}
    given["categories"] = names
    found = device.evaluate(
        "([given, rows]) => rows.map((range) => dither.canonicalForm({ ...given, range }))",
        [given, rows],
    )
    for text, row in zip(found, rows, strict=True):
        assert f'"range":{json.dumps(row, separators=(",", ":"))}' in text
        assert f'"categories":{json.dumps(names, separators=(",", ":"))}' in text
