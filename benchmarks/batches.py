"""Report batches as they arrive from Kafka."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aggregator.state.partition import Partition
from benchmarks.metrics import LEVELS, reports_of
from estimators import Metric, define
from producers.wire.batch import encode_batch

METRIC = define(
    name="late", kind="mean", mechanism="randomized_response", range=(0, 1), levels=LEVELS
)
METRICS = {METRIC.name: METRIC}
FUTURE_MS = 600_000
TIME_MS = 1_357_000_000_000
COUNTED_TOGETHER = 1_000


@dataclass(frozen=True)
class LogMessage:
    """A message at its offset, without Kafka."""

    at: int
    payload: bytes
    time_ms: int = TIME_MS

    def offset(self) -> int:
        return self.at

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return self.payload

    def timestamp(self) -> tuple[int, int]:
        return 1, self.time_ms


def count_messages(metrics: Mapping[str, Metric], messages: Sequence[LogMessage]) -> None:
    """Count messages as a worker does, many at a time, beginning with an empty state."""
    partition = Partition(metrics, FUTURE_MS)
    for start in range(0, len(messages), COUNTED_TOGETHER):
        partition.count(messages[start : start + COUNTED_TOGETHER])


def payloads(batches: int, reports: int) -> list[bytes]:
    """Return batches of the same reports, each with an id of its own, all in one pane."""
    level, answers = reports_of(METRIC, reports)
    ids = (number.to_bytes(16, "big") for number in range(batches))
    return [encode_batch(METRIC, level, answers, TIME_MS, batch_id) for batch_id in ids]
