"""A pane: a statistic over a stretch of event time, open in memory."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
from numpy.typing import NDArray

from aggregator.state.batch_ids import BatchIds
from aggregator.state.batch_layout import Integers
from aggregator.state.decoder import DecodedBatches
from aggregator.state.slice_tables import encode_chunk
from estimators import Metric
from estimators.estimate import Counts
from producers.wire.batch import BATCH_ID_BYTES

Uses = dict[bytes, int]
"""The number of counted reports by :func:`aggregator.state.admission.digest` of the key."""
CodedSums = tuple[Integers, Counts] | None
"""Codes of a metric's slices, and their statistics, a row each; None for a metric without them."""
PANE_BYTES, KEY_BYTES = 800, 90
"""Measured: the memory of a pane without its arrays and tables, and of a key without the tables."""


@dataclasses.dataclass(eq=False)
class Pane:
    """A statistic over a stretch of event time, or a chunk of its slices, open in memory."""

    metric: Metric
    first_offset: int  # offset of the message that opened the pane
    statistic: Counts
    # Counted batches; a copy is a duplicate until the pane closes.
    batch_ids: BatchIds = dataclasses.field(default_factory=BatchIds)
    # Ids that the store does not have, many in each.
    unsaved: list[bytes] = dataclasses.field(default_factory=list)
    # Reports by key, where the metric has a limit.
    used: Uses = dataclasses.field(default_factory=dict)
    # Keys with another number in the store.
    unsaved_keys: set[bytes] = dataclasses.field(default_factory=set)
    closed: bool = False  # since the last commit
    unchunked: int = 0  # number of ids that the store has in one value
    committed_bytes: int = 0  # `nbytes` at the last commit

    def add(
        self, batches: DecodedBatches, rows: NDArray[np.intp], uses: Uses
    ) -> tuple[int, CodedSums]:
        """Add admitted batches; return the number of their reports, and the sums of their slices.

        `batches`: the batches; `rows`: the admitted rows of this pane; `uses`: for each key of
        these batches, its new number of reports in the pane.
        """
        ids = batches.ids if rows.size == batches.ids.size else batches.ids[rows]
        self.batch_ids.add(ids)
        self.unsaved.append(ids.tobytes())
        self.used.update(uses)
        self.unsaved_keys.update(uses)
        level_bytes, values, sizes, codes = batches.reports(rows)
        levels = np.frombuffer(level_bytes, dtype=np.uint8)
        reports = self.metric.randomizer.decode(values)
        if codes is None:
            self.metric.accumulate_checked(self.statistic, levels, reports)
            return len(levels), None
        slices, rows_by_slice = np.unique(codes, return_inverse=True)
        slice_sums = np.zeros((slices.size, self.statistic.size), dtype=np.int64)
        self.metric.accumulate_slices(slice_sums, rows_by_slice, sizes, levels, reports)
        self.statistic += slice_sums.sum(axis=0)
        return len(levels), (slices, slice_sums)

    @property
    def nbytes(self) -> int:
        """The pane's approximate memory in bytes; 0 if it is closed: the next commit drops it."""
        if self.closed:
            return 0
        keys = len(self.used) * KEY_BYTES + sum(map(sys.getsizeof, (self.used, self.unsaved_keys)))
        return PANE_BYTES + self.statistic.nbytes + self.batch_ids.nbytes + keys

    @property
    def saved_ids(self) -> int:
        """The number of ids that the store has in chunks."""
        return len(self.batch_ids) - sum(map(len, self.unsaved)) // BATCH_ID_BYTES - self.unchunked

    def encode(self, chunk: int | None) -> bytes | memoryview:
        """Return the bytes to store: little-endian int64, or a chunk of slices.

        `chunk`: the chunk's number; None for a pane that is no chunk of slices.
        """
        if chunk is not None:
            return encode_chunk(chunk, self.statistic)
        return self.statistic.astype("<i8", copy=False).data.cast("B")  # not copied
