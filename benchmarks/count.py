"""Counting messages that are in memory, against parsing them with protobuf."""

from __future__ import annotations

from collections.abc import Iterator

from aggregator.state.partition import Partition
from benchmarks.batches import FUTURE_MS, METRICS, LogMessage, payloads
from benchmarks.measure import Benchmark, repeated
from benchmarks.places import Places
from producers.wire.reports_pb2 import ReportBatch

BATCHES = {1: 50_000, 1_000: 5_000}


def benchmarks(places: Places) -> Iterator[Benchmark]:
    for reports, most in BATCHES.items():
        batches = places.sized(most)
        encoded = payloads(batches, reports)
        messages = [LogMessage(offset, payload) for offset, payload in enumerate(encoded)]

        def ours(messages: list[LogMessage] = messages) -> None:
            partition = Partition(METRICS, FUTURE_MS)
            for start in range(0, len(messages), 1_000):
                partition.count(messages[start : start + 1_000])

        def baseline(messages: list[LogMessage] = messages) -> None:
            for message in messages:
                ReportBatch.FromString(message.value())

        units = batches * reports
        yield Benchmark(
            f"count/batches of {reports}/parse",
            "reports/s",
            repeated(units, ours),
            repeated(units, baseline),
        )
