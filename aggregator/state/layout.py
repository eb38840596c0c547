"""The positions of a batch's fields; batches of one layout are read as one matrix."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from aggregator.state.batch_ids import ID
from aggregator.state.decoded_batches import MatrixRows, Rows
from aggregator.state.rows import Integers
from estimators import Metric, ReportError
from producers.wire.batch import BATCH_ID_BYTES, attributes_of, parse_bare_batch
from producers.wire.reports_pb2 import ReportBatch

TIME_BYTES = 6
VARINT_MORE = 0x80
LEAST_TIME, LARGEST_TIME = 1 << 7 * (TIME_BYTES - 1), (1 << 7 * TIME_BYTES) - 1
"""Times of six bytes on the wire: 1971 to 2109."""
MOST_KNOWN = 4_096
"""Attributes whose slice is remembered, as their bytes."""
PLACES = 1 << 7 * np.arange(TIME_BYTES, dtype=np.int64)


@dataclasses.dataclass(frozen=True)
class Layout:
    """The positions of the fields of a batch of one metric and one size.

    Attributes
    ----------
    places : ndarray of intp, shape (m,)
        The bytes outside the ids, levels and values: tags, lengths, the metric's name and revision,
        the time.
    least, spread : ndarray of uint8, shape (m,)
        Each is at least the first, and at most the second above it: nothing, where it is the same
        in all such batches.
    ids, times, levels, values, attributes : slice
    round : int
    """

    metric: Metric
    places: NDArray[np.intp]
    least: NDArray[np.uint8]
    spread: NDArray[np.uint8]
    ids: slice
    times: slice
    levels: slice
    values: slice
    attributes: slice
    round: int

    @classmethod
    def of(cls, metric: Metric, batch: ReportBatch, payload: bytes) -> Layout:
        """Return the layout of a batch that protobuf serializes to `payload`.

        Parameters
        ----------
        metric : Metric
            The batch's.
        batch : ReportBatch
            As it was parsed.
        payload : bytes
            As it is serialized.
        """
        head = ReportBatch(metric=batch.metric, revision=batch.revision).ByteSize() + 2
        ids = slice(head, head + BATCH_ID_BYTES)
        times = slice(ids.stop + 1, ids.stop + 1 + TIME_BYTES)
        sent = len(payload) - ReportBatch(attributes=batch.attributes).ByteSize()
        end = sent - ReportBatch(round=batch.round).ByteSize()
        ends = end - ReportBatch(values=batch.values).ByteSize()
        levels = slice(ends - len(batch.levels), ends)
        values = slice(end - len(batch.values), end)
        least = np.frombuffer(payload, dtype=np.uint8).copy()
        spread = np.zeros_like(least)
        least[times], spread[times] = VARINT_MORE, VARINT_MORE - 1
        least[times.stop - 1], spread[times.stop - 1] = 1, VARINT_MORE - 2
        attributes = slice(sent, len(payload))
        own = (ids, levels, values, attributes)
        places = np.delete(np.arange(len(payload)), np.r_[own])
        bounds = least[places], spread[places]
        parts = ids, times, levels, values, attributes
        return cls(metric, places, *bounds, *parts, batch.round)

    def fits(self, matrix: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return which rows of a matrix have this layout."""
        above = matrix.take(self.places, axis=1)
        above -= self.least  # what is below wraps around
        within = above <= self.spread
        if within.all():  # far faster than row by row
            return np.ones(len(matrix), dtype=np.bool_)
        fitting: NDArray[np.bool_] = np.logical_and.reduce(within, axis=1)
        return fitting

    def read(
        self, matrix: NDArray[np.uint8], index: Integers, fitting: NDArray[np.bool_]
    ) -> Rows | None:
        """Return the rows that fit, or None if some report or attribute in them cannot be one.

        Parameters
        ----------
        matrix : ndarray of uint8, shape (n, bytes)
            Payloads of the same size.
        index : ndarray of int64, shape (n,)
            Of each one's message.
        fitting : ndarray of bool, shape (n,)
            Which of them have this layout.
        """
        if not fitting.all():
            matrix, index = matrix[fitting], index[fitting]
        levels, values = (matrix[:, part].tobytes() for part in (self.levels, self.values))
        try:
            self.metric.randomizer.check(levels, values)
            codes = self._read_codes(matrix[:, self.attributes])
        except ReportError:
            return None
        ids = np.ascontiguousarray(matrix[:, self.ids]).view(ID)[:, 0]
        time_ms = (matrix[:, self.times] & (VARINT_MORE - 1)) @ PLACES
        return MatrixRows(index, time_ms, ids, codes, levels, values)

    def _read_codes(self, attributes: NDArray[np.uint8]) -> Integers | None:
        """Return the slice of each row; None if the metric has no slices.

        Raises
        ------
        ReportError
            If the bytes of a row are no attributes as our producers write them.
        """
        slicing, size = self.metric.slicing, attributes.shape[1]
        if not size:
            return None if slicing is None else np.full(len(attributes), slicing.code({}))
        sent = np.ascontiguousarray(attributes).view(f"V{size}")[:, 0].tolist()
        known = {} if slicing is None else slicing.code_cache
        if len(known) > MOST_KNOWN:
            known.clear()
        for each in set(sent).difference(known):
            batch = parse_bare_batch(each)
            found = attributes_of(batch)
            if ReportBatch(attributes=batch.attributes).SerializeToString() != each:
                raise ReportError("bad_attributes", f"{each!r}")
            known[each] = 0 if slicing is None else slicing.code(found)
        if slicing is None:
            return None
        return np.array([known[each] for each in sent], dtype=np.int64)
