"""Buffers randomized reports until their batch is full or old, or its pane is over.

A batch has the reports of one pane and one slice: devices that say the same of themselves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.metrics.attributes import Attributes


class Columns(NamedTuple):
    """Reports in columns: levels, rows, and event times in ms; and what all their devices say."""

    level: NDArray[np.uint8]
    reports: NDArray[np.integer[Any]]
    time_ms: NDArray[np.int64]
    attributes: Attributes = ()

    def part(self, rows: slice | NDArray[np.intp]) -> Columns:
        """Return some of the reports."""
        level, reports, time_ms, attributes = self
        return Columns(level[rows], reports[rows], time_ms[rows], attributes)


@dataclasses.dataclass(slots=True)
class _Slice:
    opened: float
    count: int = 0
    columns: list[Columns] = dataclasses.field(default_factory=list)

    def joined(self) -> Columns:
        if len(self.columns) == 1:
            return self.columns[0]
        level, reports, time_ms, attributes = zip(*self.columns, strict=True)
        return Columns(
            np.concatenate(level), np.concatenate(reports), np.concatenate(time_ms), attributes[0]
        )


class PaneBuffer:
    """Randomized reports that wait for their batch, by pane and slice.

    A slice with `batch_reports` in a pane is sent at once, others `batch_age` seconds after their
    first report. Reports count until `lateness_ms` after the end of their pane.
    """

    def __init__(
        self, pane_ms: int, lateness_ms: int, batch_reports: int, batch_age: float
    ) -> None:
        self.pane_ms, self.lateness_ms = pane_ms, lateness_ms
        self.batch_reports, self.batch_age = batch_reports, batch_age
        self._panes: dict[int, dict[Attributes, _Slice]] = {}

    def __len__(self) -> int:
        """Return the number of reports waiting."""
        return sum(waiting.count for pane in self._panes.values() for waiting in pane.values())

    def add(self, columns: Columns, now: float) -> list[Columns]:
        """Add reports at monotonic time `now`; return the batches to send, in order of event time.

        Each has one pane and slice. These are full batches, and those of panes that the new reports
        close on the workers: they must arrive first.
        """
        full: list[Columns] = []
        for start, part in by_pane(columns, self.pane_ms):
            over = int(part.time_ms.max()) - self.pane_ms - self.lateness_ms
            for closed in sorted(start_ms for start_ms in self._panes if start_ms <= over):
                full += [reports.joined() for reports in self._panes.pop(closed).values()]
            pane = self._panes.setdefault(start, {})
            sliced = pane.setdefault(columns.attributes, _Slice(now))
            sliced.columns.append(part)
            sliced.count += part.level.size
            if sliced.count >= self.batch_reports:
                full += self._cut(pane, sliced, now)
        return full

    def pop_aged(self, now: float) -> list[Columns]:
        """Remove and return the batches that have reached their age, in order of event time."""
        batches = []
        for start in sorted(self._panes):
            pane = self._panes[start]
            old = [key for key, waiting in pane.items() if now - waiting.opened >= self.batch_age]
            batches += [pane.pop(key).joined() for key in old]
            if not pane:
                del self._panes[start]
        return batches

    def pop_all(self) -> list[Columns]:
        """Remove and return all that is waiting, in order of event time."""
        panes = [self._panes.pop(start) for start in sorted(self._panes)]
        return [waiting.joined() for pane in panes for waiting in pane.values()]

    def _cut(self, pane: dict[Attributes, _Slice], full: _Slice, now: float) -> Iterator[Columns]:
        joined, size = full.joined(), self.batch_reports
        cut_count = full.count - full.count % size
        if cut_count == full.count:
            del pane[joined.attributes]
        else:  # what is left came with the last call: a slice is cut as soon as it is full
            remaining = joined.part(slice(cut_count, None))
            pane[joined.attributes] = _Slice(now, full.count - cut_count, [remaining])
        for begin in range(0, cut_count, size):
            yield joined.part(slice(begin, begin + size))


def by_pane(columns: Columns, pane_ms: int) -> Iterator[tuple[int, Columns]]:
    """Yield the start of each pane and its reports, in order of event time."""
    starts = columns.time_ms - columns.time_ms % pane_ms
    if starts.size == 1 or starts.min() == starts.max():
        yield int(starts[0]), columns
        return
    order = np.argsort(starts, kind="stable")
    sorted_starts = starts[order]
    edges = np.flatnonzero(np.diff(sorted_starts)) + 1
    for rows in np.split(order, edges):
        yield int(starts[rows[0]]), columns.part(rows)
