"""Quix Streams: the sum of the reports of each minute, from Kafka."""

from __future__ import annotations

import tempfile
import time
import uuid

from quixstreams import Application

from benchmarks.peers.answering import answer, arguments
from benchmarks.peers.messages import batch

IDLE_SECONDS = 30.0
WINDOW_MS = 60_000


def main() -> None:
    source = arguments()
    answer({"windowed sum": lambda: -_rate(source["servers"], source["topic"], source["messages"])})


def _rate(servers: str, topic: str, messages: int) -> float:
    """Return messages a second, from the first to the last that was added up."""
    times: list[float] = []
    parse = batch()

    def total(message: bytes) -> int:
        times.append(time.perf_counter())
        return sum(parse(message).values)

    with tempfile.TemporaryDirectory() as state:
        app = Application(
            broker_address=servers,
            consumer_group=uuid.uuid4().hex,
            auto_offset_reset="earliest",
            auto_create_topics=False,
            use_changelog_topics=False,
            state_dir=state,
            loglevel="ERROR",
        )
        reports = app.dataframe(app.topic(topic, value_deserializer="bytes"))
        sums = reports.apply(total).tumbling_window(duration_ms=WINDOW_MS).sum().current()
        sums.update(lambda _: None)
        app.run(count=messages, timeout=IDLE_SECONDS, collect=False)
        passed = time.perf_counter() - times[0]
    if len(times) < messages:
        raise RuntimeError(f"read {len(times)} of {messages} messages")
    return len(times) / passed


if __name__ == "__main__":
    main()
