"""The browser answers rounds as Python does, bit for bit, and each at most once."""

import dataclasses
import itertools
import json
import math
from typing import Any

import numpy as np

from estimators import SearchMetric, define
from estimators.exact.randomness import SeededBits
from estimators.extremes import Progress
from estimators.extremes.binary_search import Decision
from estimators.metrics.loading import read_definition
from producers.wire.batch import encode_batch
from tests.services.browser.conftest import Modules
from tests.support.paths import ROOT
from tests.support.prepared_words import PreparedWords
from tests.support.rows import row
from tests.support.running.served import definition

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
  let posts = 0;
  globalThis.fetch = async () => {
    posts += 1;
    return Response.json({ batch_id: "00" }, { status: 202 });
  };
  const url = "http://device.test/v1/reports";
  const said = [];
  for (const round of rounds) {
    try { said.push(await dither.answer(url, definition, round, 17, 1)); }
    catch (error) { said.push(error.message); }
  }
  return [posts, said, [...localStorage.keys()]];
}
"""


def metric(kind: str, split: str) -> SearchMetric:
    found = define(
        name="age", kind=kind, range=(0, 64), levels=[0.5, 1, 3], rounds=ROUNDS, split=split
    )
    return SearchMetric.require(found)


def test_the_same_random_words_give_the_same_answers(device: Modules) -> None:
    for kind, split in itertools.product(("minimum", "maximum"), ("users", "budget")):
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
        with row(kind, split):
            assert found == expected


def round_of(asked: SearchMetric, number: Any, threshold: Any, **changes: Any) -> dict[str, Any]:
    told = {"metric": asked.name, "revision": asked.revision, "rounds": asked.rounds}
    return {**told, "number": number, "threshold": threshold, **changes}


def all_rounds(asked: SearchMetric) -> list[dict[str, Any]]:
    """Return the rounds of a search that always goes to the lower half."""
    return [round_of(asked, number, 64 / 2**number) for number in range(1, (asked.rounds or 0) + 1)]


def test_a_browser_answers_each_round_at_most_once(device: Modules) -> None:
    """And a made-up definition is no new turn, whatever revision it calls itself by."""
    for split, turns in (("users", 1), ("budget", ROUNDS)):
        asked = metric("maximum", split)
        attempts = [(definition(asked), each) for each in all_rounds(asked) for _ in range(3)]
        made_up = len(attempts)
        for number in range(20):
            other = dataclasses.replace(asked, beta=0.1 + number / 1000)
            whole = definition(other)  # its own: only the ledger of turns is left to refuse it
            another = definition(dataclasses.replace(other, rounds=20))
            unsplit = definition(dataclasses.replace(other, split="budget", rounds=1))
            same, lied = whole | {"revision": asked.revision}, whole | {"revision": number + 1}
            for each in (lied, same, whole, another, unsplit):
                told = {"revision": each["revision"], "rounds": each["rounds"]}
                attempts.append((each, round_of(asked, 1, 32, **told)))
        found = device.evaluate(INSIST, attempts)
        refused = found[made_up:]
        with row(split):
            assert set(found[:made_up]) == {True, False}
            assert found.count(True) == turns
            assert all(isinstance(each, str) for each in refused)
            assert "another definition than the one that this browser has answered" in refused[2]
            assert "expected" in refused[0]


def test_a_round_or_a_definition_that_is_not_allowed_is_refused(device: Modules) -> None:
    for split in ("users", "budget"):
        asked = metric("maximum", split)
        wrong = [
            *(
                round_of(asked, number, 32)
                for number in (7, 20, 50, 0, -1, 1.5, 2, "1", None, True)
            ),
            *(round_of(asked, number, 32, rounds=50) for number in (1, 6, 7, 50)),
            *(
                round_of(asked, 1, threshold)
                for threshold in (16, 32.5, 64, 0, "32", None, math.inf)
            ),
            round_of(asked, 1, 32, revision=asked.revision + 1),
            round_of(asked, 1, 32, metric="size"),
        ]
        posts, said, kept = device.evaluate(ATTEMPT, [definition(asked), wrong])
        with row(split):
            assert (posts, kept) == (0, [])
            assert all("expected" in each for each in said)
    changes: list[dict[str, Any]] = [
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
    ]
    for each in changes:
        given = {**definition(asked), **each}
        rounds = [round_of(asked, 1, 32, rounds=given["rounds"])]
        posts, said, _ = device.evaluate(ATTEMPT, [given, rounds])
        with row(each):
            assert posts == 0
            assert "expected" in said[0]


def test_a_browser_answers_what_is_asked_rightly_and_keeps_it_by_name(device: Modules) -> None:
    asked = metric("maximum", "budget")
    rounds = all_rounds(asked)
    again = [*rounds, round_of(asked, 6, 33), rounds[0], round_of(asked, 3, 40.0)]
    posts, said, kept = device.evaluate(ATTEMPT, [definition(asked), again])
    assert posts == ROUNDS
    assert said == [True] * ROUNDS + [False] * 3
    assert kept == ["dither:age"]


def test_pages_of_one_browser_take_turns_one_after_the_other(device: Modules) -> None:
    """What one page reads of its turn, another must not be about to change."""
    asked = metric("maximum", "budget")
    found = device.evaluate(
        """async ([definition, round]) => {
          let posts = 0;
          globalThis.fetch = async () => {
            posts += 1;
            return Response.json({ batch_id: "00" }, { status: 202 });
          };
          let release;
          const held = new Promise((resolve) => { release = resolve; });
          navigator.locks.request(`dither:${definition.name}`, () => held);
          const url = "http://device.test/v1/reports";
          const both = [1, 2].map(() => dither.answer(url, definition, round, 17, 1));
          for (let i = 0; i < 20; i += 1) await new Promise((resolve) => setTimeout(resolve));
          const before = [posts, localStorage.size];
          release();
          return [before, await Promise.all(both), posts];
        }""",
        [definition(asked), round_of(asked, 1, 32)],
    )
    assert found == [[0, 0], [True, False], 1]


def test_the_points_of_a_search_are_those_of_python(device: Modules) -> None:
    all_ends = [(0, 64), (-0.3, 1e9 + 0.1), (1e9, 1e9 + 1e-3), (-1e-7, 3)]
    for kind, ends in itertools.product(("minimum", "maximum"), all_ends):
        one = define(name="age", kind=kind, range=ends, levels=[1], rounds=50)
        asked = SearchMetric.require(one)
        generator, cases = np.random.default_rng(1), []
        for _ in range(8):
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
              const { couldAsk } = await load("definition.js");
              return cases.map(([number, threshold]) => couldAsk(definition, number, threshold));
            }""",
            [definition(asked), cases],
        )
        with row(kind, ends):
            assert found == expected
            assert all(expected[::3])
            assert not all(expected)


def test_the_canonical_form_is_that_of_python_byte_for_byte(device: Modules) -> None:
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


def test_numbers_and_names_are_written_as_by_python(device: Modules) -> None:
    generator = np.random.default_rng(5)
    numbers = np.frombuffer(generator.bytes(8 * 400), dtype=np.float64)
    numbers = np.concatenate([numbers[np.isfinite(numbers)], generator.normal(0, 1e4, 100)])
    exact = [5e-324, 1.7976931348623157e308, 1e21, 1e-7, 123456789012345680000.0, 1e16, -1e22]
    rows = [sorted(pair) for pair in zip(exact, reversed(exact), strict=True)]
    half = len(numbers) // 2
    rows += np.sort(numbers[: 2 * half].reshape(half, 2)).tolist()
    points = [*range(128), 0xE9, 0x2028, 0xD7FF, 0xE000, 0xFEFF, 0xFFFF, 0x1F6A2, 0x10FFFF]
    names = [chr(point) for point in points]
    given = {"name": "m", "kind": "mean", "mechanism": "m", "levels": [1], "pane_seconds": 0.001}
    found = device.evaluate(
        "([given, rows]) => rows.map((range) => dither.canonicalForm({ ...given, range }))",
        [given | {"categories": names}, rows],
    )
    for text, limits in zip(found, rows, strict=True):
        assert f'"range":{json.dumps(limits, separators=(",", ":"))}' in text
        assert f'"categories":{json.dumps(names, separators=(",", ":"))}' in text
