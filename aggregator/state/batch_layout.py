"""The positions of a batch's fields; batches of one layout are read as one matrix."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from aggregator.state.batch_ids import ID_DTYPE, Ids
from estimators import Metric, ReportError
from producers.wire.batch import BATCH_ID_BYTES, attributes_of, parse_bare_batch
from producers.wire.reports_pb2 import ReportBatch

TIME_BYTES = 6
VARINT_MORE = 0x80
MIN_LAYOUT_TIME_MS, MAX_LAYOUT_TIME_MS = 1 << 7 * (TIME_BYTES - 1), (1 << 7 * TIME_BYTES) - 1
"""Event times of six bytes on the wire: 1971 to 2109."""
MAX_CACHED_ATTRIBUTES = 4_096
"""The most slices that are cached by the bytes of their attributes."""
VARINT_FACTORS = 1 << 7 * np.arange(TIME_BYTES, dtype=np.int64)

Integers = NDArray[np.int64]


class BatchRows(NamedTuple):
    """Batches of one metric, one row each, with valid reports of its mechanism."""

    message_index: Integers  # of each row's message, ascending
    time_ms: Integers  # the event time in the batch, or 0
    ids: Ids  # 16 bytes each
    sizes: Integers  # the number of reports
    codes: Integers | None  # the slice of each row; None without slices
    levels: bytes  # of all reports, row after row
    values: bytes


@dataclasses.dataclass(frozen=True)
class BatchLayout:
    """The positions of the fields in a batch of one metric and one size."""

    metric: Metric
    # Bytes of tags, lengths, metric, revision and time, shape (m,).
    fixed_positions: NDArray[np.intp]
    lowest: NDArray[np.uint8]  # the lowest value of each of these bytes
    spread: NDArray[np.uint8]  # the highest value above the lowest; 0 for a constant byte
    ids: slice
    times: slice
    levels: slice
    values: slice
    attributes: slice
    round: int

    @classmethod
    def of(cls, metric: Metric, batch: ReportBatch, payload: bytes) -> BatchLayout:
        """Return the layout of a batch that protobuf serializes to `payload`.

        `metric`: the metric; `batch`: the batch; `payload`: the bytes of the batch.
        """
        head = ReportBatch(metric=batch.metric, revision=batch.revision).ByteSize() + 2
        ids = slice(head, head + BATCH_ID_BYTES)
        times = slice(ids.stop + 1, ids.stop + 1 + TIME_BYTES)
        attributes_start = len(payload) - ReportBatch(attributes=batch.attributes).ByteSize()
        end = attributes_start - ReportBatch(round=batch.round).ByteSize()
        ends = end - ReportBatch(values=batch.values).ByteSize()
        levels = slice(ends - len(batch.levels), ends)
        values = slice(end - len(batch.values), end)
        lowest = np.frombuffer(payload, dtype=np.uint8).copy()
        spread = np.zeros_like(lowest)
        lowest[times], spread[times] = VARINT_MORE, VARINT_MORE - 1
        lowest[times.stop - 1], spread[times.stop - 1] = 1, VARINT_MORE - 2
        attributes = slice(attributes_start, len(payload))
        varying_parts = (ids, levels, values, attributes)
        fixed_positions = np.delete(np.arange(len(payload)), np.r_[varying_parts])
        bounds = lowest[fixed_positions], spread[fixed_positions]
        parts = ids, times, levels, values, attributes
        return cls(metric, fixed_positions, *bounds, *parts, batch.round)

    def fits(self, matrix: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return which rows of a matrix have this layout."""
        above = matrix.take(self.fixed_positions, axis=1)
        above -= self.lowest  # a lower byte wraps around to a large number
        is_within = above <= self.spread
        if is_within.all():  # the usual case, which is far faster
            return np.ones(len(matrix), dtype=np.bool_)
        fitting: NDArray[np.bool_] = np.logical_and.reduce(is_within, axis=1)
        return fitting

    def read(
        self, matrix: NDArray[np.uint8], index: Integers, fitting: NDArray[np.bool_]
    ) -> BatchRows | None:
        """Return the fitting rows; None if a report or an attribute is invalid.

        `matrix`, shape (n, bytes): the payloads, one a row; `index`, shape (n,): the index of each
        row's message; `fitting`, shape (n,): which rows have this layout.
        """
        if not fitting.all():
            matrix, index = matrix[fitting], index[fitting]
        levels, values = (matrix[:, part].tobytes() for part in (self.levels, self.values))
        try:
            self.metric.randomizer.check(levels, values)
            codes = self._read_codes(matrix[:, self.attributes])
        except ReportError:
            return None
        ids = np.ascontiguousarray(matrix[:, self.ids]).view(ID_DTYPE)[:, 0]
        time_ms = (matrix[:, self.times] & (VARINT_MORE - 1)) @ VARINT_FACTORS
        sizes = np.full(len(index), self.levels.stop - self.levels.start)
        return BatchRows(index, time_ms, ids, sizes, codes, levels, values)

    def _read_codes(self, attributes: NDArray[np.uint8]) -> Integers | None:
        """Return the slice of each row; None for a metric without slices.

        Raises ReportError if attributes are invalid.
        """
        slicing, size = self.metric.slicing, attributes.shape[1]
        if not size:
            return None if slicing is None else np.full(len(attributes), slicing.code({}))
        sent = np.ascontiguousarray(attributes).view(f"V{size}")[:, 0].tolist()
        codes_by_attributes = {} if slicing is None else slicing.code_cache
        if len(codes_by_attributes) > MAX_CACHED_ATTRIBUTES:
            codes_by_attributes.clear()
        for encoded in set(sent).difference(codes_by_attributes):
            batch = parse_bare_batch(encoded)
            batch_attributes = attributes_of(batch)
            if ReportBatch(attributes=batch.attributes).SerializeToString() != encoded:
                raise ReportError("bad_attributes", f"{encoded!r}")
            codes_by_attributes[encoded] = 0 if slicing is None else slicing.code(batch_attributes)
        if slicing is None:
            return None
        return np.array([codes_by_attributes[encoded] for encoded in sent], dtype=np.int64)
