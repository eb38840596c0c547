"""Encoding batches of reports, against copying their two columns."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from benchmarks.batches import METRIC, TIME_MS
from benchmarks.measure import Benchmark, repeated
from benchmarks.metrics import reports_of
from benchmarks.places import Places
from producers.wire.batch import encode_batch

BATCH_REPORTS = 1_000


def benchmarks(_: Places) -> Iterator[Benchmark]:
    level, reports = reports_of(METRIC, BATCH_REPORTS)
    yield Benchmark(
        f"encode/batches of {BATCH_REPORTS}/copy",
        "reports/s",
        repeated(BATCH_REPORTS, functools.partial(encode_batch, METRIC, level, reports, TIME_MS)),
        repeated(BATCH_REPORTS, lambda: level.tobytes() + reports.tobytes()),
    )
