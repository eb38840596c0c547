"""A pane: a statistic over one stretch of event time, open in memory."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from aggregator.state.batch_ids import BatchIds
from aggregator.state.decoded_batches import DecodedBatches, ReportColumns
from aggregator.state.rows import Integers
from aggregator.state.slice_tables import encode_chunk
from estimators import Metric
from estimators.estimate import Counts
from producers.wire.batch import BATCH_ID_BYTES

Uses = dict[bytes, int]
"""How many reports of each key were counted, by :func:`aggregator.state.admission.digest`."""
PANE_BYTES, KEY_BYTES = 800, 90
"""Measured: the memory of a pane without its arrays and tables, and of a key beside the tables."""


@dataclasses.dataclass(eq=False)
class Pane:
    """A statistic over one stretch of event time, or a chunk of its slices', open in memory."""

    metric: Metric
    first_offset: int  # offset of the message that opened it
    statistic: Counts
    # Ids of the batches counted in it: until the pane closes a second copy is recognised; after
    # that it is late.
    batch_ids: BatchIds = dataclasses.field(default_factory=BatchIds)
    # The ids that the store does not know yet, many in each.
    unsaved: list[bytes] = dataclasses.field(default_factory=list)
    # Where the metric has a limit: how many reports of each key were counted in it.
    used: Uses = dataclasses.field(default_factory=dict)
    # Those of which the store has another number.
    unsaved_keys: set[bytes] = dataclasses.field(default_factory=set)
    closed: bool = False  # since the last commit
    # Batches that are put aside for `settle`.
    waiting: list[ReportColumns] = dataclasses.field(default_factory=list)
    unchunked: int = 0  # ids that the store has in one value, as versions before 0.2 wrote them
    committed_bytes: int = 0  # what `nbytes` was at the last commit

    def add(self, batches: DecodedBatches, rows: NDArray[np.intp], uses: Uses) -> None:
        """Add the ids of admitted batches; put their reports aside for :meth:`settle`.

        Parameters
        ----------
        batches : DecodedBatches
            Admitted and others.
        rows : ndarray of intp
            Those of this pane that are admitted.
        uses : Uses
            The new numbers of reports of their keys.
        """
        ids = batches.ids if rows.size == batches.ids.size else batches.ids[rows]
        self.batch_ids.add(ids)
        self.unsaved.append(ids.tobytes())
        self.waiting += batches.columns(rows)
        self.used.update(uses)
        self.unsaved_keys.update(uses)

    def settle(self, add_to_slices: Callable[[Integers, Counts], None]) -> int:
        """Add the batches put aside to the statistic, all at once; return their reports.

        Parameters
        ----------
        add_to_slices : callable
            Called with codes and statistics of slices, where the metric has some: they sum to what
            is added to the pane.
        """
        decode, waiting = self.metric.randomizer.decode, self.waiting
        self.waiting = []
        if self.metric.slicing is None:
            levels = _levels(_joined([part.levels for part in waiting]))
            reports = decode(_joined([part.values for part in waiting]))
            self.metric.accumulate_checked(self.statistic, levels, reports)
            return len(levels)
        for part in waiting:
            codes, rows = np.unique(part.codes, return_inverse=True)
            slice_sums = np.zeros((codes.size, self.statistic.size), dtype=np.int64)
            levels, reports = _levels(part.levels), decode(part.values)
            self.metric.accumulate_slices(slice_sums, rows, part.sizes, levels, reports)
            self.statistic += slice_sums.sum(axis=0)
            add_to_slices(codes, slice_sums)
        return sum(len(part.levels) for part in waiting)

    @property
    def nbytes(self) -> int:
        """About how much memory it takes; a closed one is let go at the next commit."""
        if self.closed:
            return 0
        keys = len(self.used) * KEY_BYTES + sum(map(sys.getsizeof, (self.used, self.unsaved_keys)))
        return PANE_BYTES + self.statistic.nbytes + self.batch_ids.nbytes + keys

    @property
    def saved_ids(self) -> int:
        """How many ids the store has in chunks."""
        unsaved = sum(map(len, self.unsaved)) // BATCH_ID_BYTES
        return len(self.batch_ids) - unsaved - self.unchunked

    def encode(self, chunk: int | None) -> bytes | memoryview:
        """Return the statistic as it is stored: int64, little endian, or a chunk of slices."""
        if chunk is not None:
            return encode_chunk(chunk, self.statistic)
        return self.statistic.astype("<i8", copy=False).data.cast("B")  # not copied


def _levels(data: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(data, dtype=np.uint8)


def _joined(parts: list[bytes]) -> bytes:
    """Return the parts as one, a single one as it is."""
    return parts[0] if len(parts) == 1 else b"".join(parts)
