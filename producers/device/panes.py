"""Buffers randomized reports by pane until a batch is full or old, or its pane is over."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Columns(NamedTuple):
    """Reports in columns: levels, rows, and event times in ms since the epoch."""

    level: NDArray[np.uint8]
    reports: NDArray[np.integer[Any]]
    time_ms: NDArray[np.int64]

    def part(self, which: slice | NDArray[np.intp]) -> Columns:
        """Return some of the reports."""
        return Columns(self.level[which], self.reports[which], self.time_ms[which])


@dataclasses.dataclass(slots=True)
class _Pane:
    opened: float
    count: int = 0
    columns: list[Columns] = dataclasses.field(default_factory=list)

    def joined(self) -> Columns:
        if len(self.columns) == 1:
            return self.columns[0]
        return Columns(*(np.concatenate(column) for column in zip(*self.columns, strict=True)))


class PaneBuffer:
    """Randomized reports that wait for their batch, by pane.

    Parameters
    ----------
    pane_ms, lateness_ms : int
        The width of a pane, and how long after its end its reports are still counted.
    batch_reports : int
        A pane with this many reports gives a batch.
    batch_age : float
        A batch is sent this many seconds after its first report.
    """

    def __init__(
        self, pane_ms: int, lateness_ms: int, batch_reports: int, batch_age: float
    ) -> None:
        self.pane_ms, self.lateness_ms = pane_ms, lateness_ms
        self.batch_reports, self.batch_age = batch_reports, batch_age
        self._panes: dict[int, _Pane] = {}

    def __len__(self) -> int:
        """Return the number of reports waiting."""
        return sum(pane.count for pane in self._panes.values())

    def add(self, columns: Columns, now: float) -> list[Columns]:
        """Add reports; return the batches to send, each within one pane, in order of event time.

        These are the full batches, and those of panes that the new reports will close on the
        workers: they must arrive first.

        Parameters
        ----------
        columns : Columns
            The reports, with their levels and event times.
        now : float
            Seconds on the clock of `aged`.
        """
        full: list[Columns] = []
        for start, part in self._by_pane(columns):
            over = int(part.time_ms.max()) - self.pane_ms - self.lateness_ms
            full += [self._panes.pop(s).joined() for s in sorted(self._panes) if s <= over]
            pane = self._panes.setdefault(start, _Pane(now))
            pane.columns.append(part)
            pane.count += part.level.size
            if pane.count >= self.batch_reports:
                full += self._cut(start, pane, now)
        return full

    def pop_aged(self, now: float) -> list[Columns]:
        """Remove and return the batches that have reached their age, in order of event time."""
        old = [s for s, pane in self._panes.items() if now - pane.opened >= self.batch_age]
        return [self._panes.pop(start).joined() for start in sorted(old)]

    def pop_all(self) -> list[Columns]:
        """Remove and return all that is waiting, in order of event time."""
        waiting = [self._panes[start].joined() for start in sorted(self._panes)]
        self._panes.clear()
        return waiting

    def _by_pane(self, columns: Columns) -> Iterator[tuple[int, Columns]]:
        starts = columns.time_ms - columns.time_ms % self.pane_ms
        if starts.size == 1 or starts.min() == starts.max():
            yield int(starts[0]), columns
            return
        order = np.argsort(starts, kind="stable")
        sorted_starts = starts[order]
        edges = np.flatnonzero(np.diff(sorted_starts)) + 1
        for which in np.split(order, edges):
            yield int(starts[which[0]]), columns.part(which)

    def _cut(self, start: int, pane: _Pane, now: float) -> Iterator[Columns]:
        joined, size = pane.joined(), self.batch_reports
        whole = pane.count - pane.count % size
        if whole == pane.count:
            del self._panes[start]
        else:  # what is left came with the last call: a pane is cut as soon as it is full
            self._panes[start] = _Pane(now, pane.count - whole, [joined.part(slice(whole, None))])
        for begin in range(0, whole, size):
            yield joined.part(slice(begin, begin + size))
