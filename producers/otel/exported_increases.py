"""Finds increases that were exported before: by the process that forked, or to another reader."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Mapping

from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge

from producers.otel.points import Data, UnusableError, points_of

FORKED_REASON = (
    "its interval began before this process was forked, so the process that forked reports what "
    "was measured until then. The next export of this process is whole; make the MeterProvider "
    "after the fork, and nothing is dropped"
)
SEVERAL_READERS = (
    "its interval overlaps with one that was exported: expected one metric reader with this "
    "exporter"
)


class ExportedIncreases:
    """Remembers of each instrument until when its increases were exported.

    Parameters
    ----------
    forked : callable
        Called in each forked process.
    """

    def __init__(self, forked: Callable[[], object]) -> None:
        self._ends: dict[str, int] = {}
        self._forked_at, self._forked = 0, forked
        _ALL_INCREASES.add(self)

    def fork(self) -> None:
        """Remember that this process was forked now."""
        self._forked_at = time.time_ns()
        self._forked()

    def check(self, exported: Mapping[str, list[Data]]) -> None:
        """Refuse an export with an increase that was exported before; remember its end otherwise.

        A reader's intervals follow each other. One that ends before the last one does is that of a
        clock which was set back.

        Raises
        ------
        UnusableError
            For the whole export.
        """
        intervals = {
            name: interval for name, data in exported.items() if (interval := _interval(data))
        }
        forked_at = self._forked_at
        is_parents = any(start < forked_at for start, _ in intervals.values())
        if intervals:
            self._forked_at = 0
        if not is_parents:
            for name, (start, end) in intervals.items():
                if start < self._ends.get(name, 0) <= end:
                    raise UnusableError("several_readers", SEVERAL_READERS)
        self._ends |= {name: end for name, (_, end) in intervals.items()}
        if is_parents:
            raise UnusableError("forked", FORKED_REASON)


def _interval(data: list[Data]) -> tuple[int, int] | None:
    """Return the begin and end of an instrument's increases, in ns; None if it has none."""
    delta = AggregationTemporality.DELTA
    increases = [
        points
        for points in data
        if not isinstance(points, Gauge) and points.aggregation_temporality is delta
    ]
    points = points_of(increases)
    if not points:
        return None
    starts = [point.start_time_unix_nano or 0 for point in points]
    return min(starts), max(point.time_unix_nano for point in points)


_ALL_INCREASES: weakref.WeakSet[ExportedIncreases] = weakref.WeakSet()


def _fork() -> None:
    for increases in _ALL_INCREASES:
        increases.fork()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_fork)
