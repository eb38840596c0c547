"""Summing reports up, against one pass of numpy over the same bytes."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from benchmarks.measure import Benchmark, repeated
from benchmarks.metrics import BY_MECHANISM, SIZES, reports_of
from benchmarks.places import Places
from estimators.mechanisms.mechanism import Levels, Reports


def benchmarks(places: Places) -> Iterator[Benchmark]:
    for name, metric in BY_MECHANISM.items():
        level, reports = reports_of(metric, places.sized(SIZES[name]))
        ours = functools.partial(metric.accumulate_checked, metric.zero(), level, reports)
        yield Benchmark(
            f"accumulate/{name}/{'add' if reports.ndim > 1 else 'bincount'}",
            "reports/s",
            repeated(len(level), ours),
            repeated(len(level), functools.partial(_numpy_pass, level, reports)),
        )


def _numpy_pass(level: Levels, reports: Reports) -> object:
    if reports.ndim > 1:
        return np.add.reduce(reports, axis=0, dtype=np.int64)
    if reports.dtype.kind == "u":
        return np.bincount(reports)
    return np.bincount(level, weights=reports)
