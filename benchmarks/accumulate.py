"""Summing reports up, against one pass of numpy over the same bytes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.measure import Benchmark, repeated
from benchmarks.metrics import BY_MECHANISM, SIZES, reports_of
from benchmarks.places import Places
from estimators import LocalMetric
from estimators.estimate import Counts
from estimators.mechanisms.mechanism import Levels, Reports


def benchmarks(places: Places) -> Iterator[Benchmark]:
    for name, metric in BY_MECHANISM.items():
        level, reports = reports_of(metric, places.sized(SIZES[name]))
        statistic = metric.zero()

        def ours(
            metric: LocalMetric = metric,
            level: Levels = level,
            reports: Reports = reports,
            statistic: Counts = statistic,
        ) -> None:
            metric.accumulate_checked(statistic, level, reports)

        def baseline(level: Levels = level, reports: Reports = reports) -> object:
            if reports.ndim > 1:
                return np.add.reduce(reports, axis=0, dtype=np.int64)
            if reports.dtype.kind == "u":
                return np.bincount(reports)
            return np.bincount(level, weights=reports)

        told = "add" if reports.ndim > 1 else "bincount"
        yield Benchmark(
            f"accumulate/{name}/{told}",
            "reports/s",
            repeated(len(level), ours),
            repeated(len(level), baseline),
        )
