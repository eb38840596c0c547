"""Whatever is posted to the gateway, it becomes a batch that counts, or a problem that says why."""

import json
import random
from typing import Any

import pytest

from aggregator.state.partition import Partition
from producers.gateway.bodies import JSON_TYPE, PROTOBUF_TYPE, read_batch
from producers.gateway.problems import Problem
from producers.wire.batch import parse_batch
from tests.support.reports.messages import log
from tests.support.reports.mutations import Fuzzer, corpus, fuzzed_metrics

METRICS = fuzzed_metrics()
WEIRD: list[Any] = [
    None,
    True,
    -1,
    2**70,
    1e308,
    "",
    "x" * 40,
    [],
    [[]],
    {},
    {"level": 0},
    [1, "a"],
]


def as_json(rng: random.Random, payload: bytes) -> bytes:
    """Return a batch as a device with curl would write it, some of it wrong."""
    batch = parse_batch(payload)
    rows = METRICS[batch.metric].randomizer.decode(batch.values).tolist()
    reports = [
        {"report": row, "level": level} for row, level in zip(rows, batch.levels, strict=True)
    ]
    body: dict[str, Any] = {"metric": batch.metric, "reports": reports}
    body["revision"], body["time"] = batch.revision, batch.time_ms / 1000
    for _ in range(rng.choice((0, 1, 1, 2))):
        target = rng.choice([body, *reports])
        target[rng.choice([*target, "batch_id", "epsilon", "value"])] = rng.choice(WEIRD)
    text = bytearray(json.dumps(body), "utf-8")
    if rng.random() < 0.3:
        text[rng.randrange(len(text))] = rng.randrange(256)
    return bytes(text)


@pytest.mark.parametrize("media_type", [PROTOBUF_TYPE, JSON_TYPE])
def test_a_fuzzed_body_becomes_a_batch_that_counts_or_a_problem(media_type: str) -> None:
    made = corpus(METRICS, 3)
    fuzzer, rng = Fuzzer(made, 3), random.Random(3)
    taken: list[bytes] = []
    problems: list[Problem] = []
    for message in fuzzer.messages(3_000):
        body = message or b""
        if media_type == JSON_TYPE:
            body = as_json(rng, rng.choice(made))
        try:
            taken.append(read_batch(media_type, body, METRICS).payload)
        except Problem as problem:
            problems.append(problem)
    assert min(len(problems), len(taken)) > 300
    assert all(400 <= problem.status < 500 and problem.detail for problem in problems)
    refused = Partition(METRICS, 600_000).count(log(*taken))
    reasons = {refusal.reason for refusal in refused}
    assert reasons <= {"late", "future"}, "the gateway acknowledged what nobody can count"
