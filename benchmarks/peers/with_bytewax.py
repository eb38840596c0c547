"""Bytewax: the sum of the reports of each minute, from Kafka."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as windows
from bytewax.connectors.kafka import KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.testing import TestingSink, run_main

from benchmarks.peers.answering import answer, arguments
from benchmarks.peers.messages import batch

BATCH = 1_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def main() -> None:
    source = arguments()
    answer({"windowed sum": lambda: -_rate(source["servers"], source["topic"], source["messages"])})


def _rate(servers: str, topic: str, messages: int) -> float:
    """Return messages a second, from the first to the last that was added up."""
    times: list[float] = []
    sums: list[Any] = []
    parse = batch()

    def total(message: Any) -> tuple[str, tuple[datetime, int]]:
        times.append(time.perf_counter())
        event_time = datetime.fromtimestamp(message.timestamp[1] / 1000, UTC)
        return "all", (event_time, sum(parse(message.value).values))

    flow = Dataflow("sums")
    source = KafkaSource([servers], [topic], tail=False, batch_size=BATCH)
    reports = op.map("parse", op.input("reports", flow, source), total)
    clock = windows.EventClock(lambda one: one[0], wait_for_system_duration=MINUTE)
    windower = windows.TumblingWindower(length=MINUTE, align_to=EPOCH)
    summed = windows.fold_window(
        "sum", reports, clock, windower, int, lambda sofar, one: sofar + one[1], int.__add__
    )
    op.output("sums", summed.down, TestingSink(sums))
    run_main(flow)
    passed = time.perf_counter() - times[0]
    if len(times) < messages:
        raise RuntimeError(f"read {len(times)} of {messages} messages")
    return len(times) / passed


if __name__ == "__main__":
    main()
