"""The browser answers rounds as Python does, bit for bit, and each at most once."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page

from estimators import Metric
from estimators.randomness import SeededBits
from producers.batch import encode_batch
from tests.browser.test_randomizers import Words, device

__all__ = ["device"]
ROUNDS, THRESHOLD = 6, 31.5
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
([definition, rounds]) => {
  const kept = new Map();
  const storage = { getItem: (k) => kept.get(k) ?? null, setItem: (k, v) => kept.set(k, v) };
  const turns = [];
  for (let number = 1; number <= rounds; number += 1) {
    for (let again = 0; again < 3; again += 1) {
      turns.push(dither.takeTurn(definition, { number, threshold: 1 }, storage));
    }
  }
  return turns.filter(Boolean).length;
}
"""


def metric(kind: str, split: str) -> Metric:
    return Metric(
        name="age", kind=kind, range=(0, 64), levels=[0.5, 1, 3], rounds=ROUNDS, split=split
    )


def definition(asked: Metric) -> dict[str, Any]:
    """What a device gets from `GET /v1/metrics/NAME`, as far as it needs it."""
    return {
        "name": asked.name,
        "kind": asked.kind,
        "mechanism": asked.mechanism,
        "levels": list(asked.levels),
        "revision": asked.revision,
        "range": list(asked.range or ()),
        "rounds": asked.rounds,
        "split": asked.split,
    }


@pytest.mark.parametrize("split", ["users", "budget"])
@pytest.mark.parametrize("kind", ["minimum", "maximum"])
def test_the_same_random_words_give_the_same_answers(device: Page, kind: str, split: str) -> None:
    asked, cases, expected = metric(kind, split), [], []
    for value in range(-3, 68):
        level = value % 3
        words = Words(SeededBits(value + 3).integers(8))
        answer = asked.search.answer([value], [level], THRESHOLD, words)
        batch = encode_batch(asked, [level], answer, TIME_MS, KEY, 3)
        expected.append([level, int(answer[0]), words.used, list(batch)])
        shown = [str(word) for word in words.words.tolist()]
        cases.append({"value": value, "epsilon": asked.levels[level], "words": shown})
    told = {"metric": "age", "revision": asked.revision, "number": 3, "threshold": THRESHOLD}
    found = device.evaluate(ANSWER, [definition(asked), told, cases, TIME_MS, list(KEY)])
    assert found == expected


@pytest.mark.parametrize(("split", "turns"), [("users", 1), ("budget", ROUNDS)])
def test_a_browser_answers_each_round_at_most_once(device: Page, split: str, turns: int) -> None:
    assert device.evaluate(INSIST, [definition(metric("maximum", split)), ROUNDS]) == turns
