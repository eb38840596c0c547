"""Counting messages that are in memory, against parsing them with protobuf."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from benchmarks.batches import METRICS, LogMessage, count_messages, payloads
from benchmarks.measure import Benchmark, repeated
from benchmarks.places import Places
from producers.wire.reports_pb2 import ReportBatch

BATCHES = {1: 50_000, 1_000: 5_000}


def benchmarks(places: Places) -> Iterator[Benchmark]:
    for reports, max_batches in BATCHES.items():
        encoded = payloads(places.sized(max_batches), reports)
        messages = [LogMessage(offset, payload) for offset, payload in enumerate(encoded)]
        yield Benchmark(
            f"count/batches of {reports}/parse",
            "reports/s",
            repeated(len(messages) * reports, functools.partial(count_messages, METRICS, messages)),
            repeated(len(messages) * reports, functools.partial(_parse, messages)),
        )


def _parse(messages: Sequence[LogMessage]) -> None:
    for message in messages:
        ReportBatch.FromString(message.value())
