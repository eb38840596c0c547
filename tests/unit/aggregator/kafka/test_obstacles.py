"""The end of a record batch that cannot be read is found in few attempts: each expands it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError

from aggregator.kafka.obstacles import last_offset
from tests.support.rows import row

BOMBS = [(5, 5), (6, 6), (7, 47), (48, 2**20 - 1)]
"""First and last offset of each record batch that cannot be read, to the end of the log."""


class BombConsumer:
    reads = 0

    def get_watermark_offsets(self, *_: Any, **__: Any) -> tuple[int, int]:
        return 0, 2**20

    def assign(self, places: Any) -> None:
        self.at, self.reads = places[0].offset, self.reads + 1

    def consume(self, *_: Any, **__: Any) -> list[Any]:
        first = next(first for first, last in BOMBS if first <= self.at <= last)
        error = KafkaError(KafkaError._BAD_COMPRESSION)
        return [SimpleNamespace(error=lambda: error, offset=lambda: first)]


def test_a_batch_is_read_few_times_however_long_the_log_is() -> None:
    for (first, last), reads in zip(BOMBS, (1, 1, 12, 40), strict=True):
        consumer: Any = BombConsumer()
        with row(first):
            assert last_offset(consumer, "topic", 0, first) == last
            assert consumer.reads <= reads
