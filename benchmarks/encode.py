"""Encoding batches of reports, against copying their two columns."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.batches import METRIC, TIME_MS
from benchmarks.measure import Benchmark, repeated
from benchmarks.metrics import reports_of
from benchmarks.places import Places
from producers.wire.batch import encode_batch

BATCH_REPORTS = 1_000
BATCHES = 200


def benchmarks(places: Places) -> Iterator[Benchmark]:
    level, reports = reports_of(METRIC, BATCH_REPORTS)
    batches = places.sized(BATCHES)

    def ours() -> None:
        for _ in range(batches):
            encode_batch(METRIC, level, reports, TIME_MS)

    def baseline() -> None:
        for _ in range(batches):
            level.tobytes() + reports.tobytes()

    units = batches * BATCH_REPORTS
    yield Benchmark(
        f"encode/batches of {BATCH_REPORTS}/copy",
        "reports/s",
        repeated(units, ours),
        repeated(units, baseline),
    )
