"""Batches and messages that tests make: the reports are real, but there is no Kafka."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from aggregator.state.watermark import CONFIRMING_BATCHES
from estimators import Metric
from estimators.exact.randomness import SeededBits
from estimators.metrics.metric import ReportedMetric
from producers.wire.reports_pb2 import ReportBatch

DAY = 86_400_000
EPOCH = 1_357_000_000_000 - 1_357_000_000_000 % DAY
"""A day in 2013, in milliseconds."""
ARRIVAL = EPOCH + 365 * DAY
"""When the messages of these tests reach Kafka by default."""


@dataclasses.dataclass
class LogMessage:
    """A message of a partition's log."""

    at: int
    payload: bytes | None
    arrived: int = ARRIVAL
    about: bytes | None = None
    epoch: int = 0
    more: list[tuple[str, bytes]] | None = None

    def __len__(self) -> int:
        return len(self.payload or b"")

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.about

    def value(self) -> bytes | None:
        return self.payload

    def headers(self) -> list[tuple[str, bytes]] | None:
        return self.more

    def timestamp(self) -> tuple[int, int]:
        return 1, self.arrived

    def leader_epoch(self) -> int | None:
        return self.epoch


def batch(
    question: Metric,
    answers: Sequence[Any],
    epsilon: float = 1.0,
    time_ms: int = EPOCH,
    seed: int = 0,
    **fields: Any,
) -> ReportBatch:
    """Return a batch with real reports of these answers; `fields` override the batch's fields."""
    level = question.level_of(np.full(len(answers), epsilon))
    reports = ReportedMetric.require(question).randomize(
        np.asarray(answers), level, SeededBits(seed)
    )
    contents: dict[str, Any] = {
        "metric": question.name,
        "revision": question.revision,
        "batch_id": seed.to_bytes(16, "big"),
        "time_ms": time_ms,
        "levels": level.tobytes(),
        "values": question.randomizer.encode(reports),
    }
    return ReportBatch(**{**contents, **fields})


def log(*payloads: ReportBatch | bytes | None, first: int = 0) -> list[LogMessage]:
    """Return messages at consecutive offsets."""
    found = []
    for index, payload in enumerate(payloads):
        data = payload.SerializeToString() if isinstance(payload, ReportBatch) else payload
        found.append(LogMessage(first + index, data))
    return found


def agreeing(question: Metric, time_ms: int, seed: int) -> list[ReportBatch]:
    """Return batches of one report, just as many as confirm a time together."""
    return [
        batch(question, [1], time_ms=time_ms, seed=seed + place)
        for place in range(CONFIRMING_BATCHES)
    ]
