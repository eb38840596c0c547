"""What stands in the way of counting is found in few attempts, and named."""

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from aggregator.config.settings import Settings
from aggregator.errors import TopicGone
from aggregator.kafka.obstacles import last_offset
from aggregator.kafka.topic_admin import topic_id
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


def test_a_partition_that_no_broker_knows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    answer: Future[Any] = Future()
    answer.set_exception(KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION)))
    client = SimpleNamespace(describe_topics=lambda *_, **__: {"reports": answer})
    monkeypatch.setattr("aggregator.kafka.topic_admin.admin", lambda _: client)
    with pytest.raises(TopicGone, match=r"topic 'reports' is gone: .* or not all its partitions"):
        topic_id(Settings(), "reports")


def test_a_batch_is_read_few_times_however_long_the_log_is() -> None:
    for (first, last), reads in zip(BOMBS, (1, 1, 12, 40), strict=True):
        consumer: Any = BombConsumer()
        with row(first):
            assert last_offset(consumer, "topic", 0, first) == last
            assert consumer.reads <= reads
