"""Decodes payloads of messages into columns of batches, and says why others cannot be counted.

Devices with the same code write the same fields at the same positions. So messages of one length
usually share a layout and are read as a matrix of bytes, with columns for ids, times, levels and
values. Other messages are parsed by protobuf. Both ways give the same rows and rejections. Frames
of a schema registry are removed first.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from aggregator.state.batch_ids import as_ids
from aggregator.state.batch_layout import (
    MAX_LAYOUT_TIME_MS,
    MIN_LAYOUT_TIME_MS,
    BatchLayout,
    BatchRows,
    Integers,
)
from estimators import Metric, ReportError
from producers.wire.batch import attributes_of, check_batch, parse_batch
from producers.wire.framing import INDEXES_OFFSET, LONGEST_FRAME, MAGIC_BYTE, MESSAGE_INDEXES
from producers.wire.reports_pb2 import ReportBatch

MIN_MATRIX_MESSAGES = 16
"""At least this many messages of the same length are read as a matrix."""

MAX_LAYOUTS_PER_LENGTH = 4
"""The most layouts that are tried for a metric and a length; honest devices use one."""

MIN_BATCH_BYTES = 2
"""The bytes of a tag and of the length of the metric's name."""

MAX_CACHED_LAYOUTS = 1_000
"""The most layouts that are cached; honest devices use one per metric and reports in a batch."""

NAME_HASH_FACTORS = np.cumprod(np.full(MIN_BATCH_BYTES + 255, 0x9E3779B97F4A7C15, dtype=np.uint64))
"""Factors of a hash of names; the layout tells colliding names apart."""

MetricRound = tuple[str, int]
"""A metric's name, and the answered round; 0 without rounds."""


class Message(Protocol):
    """The used part of a Kafka message."""

    def offset(self) -> int:
        """Return the offset in the partition's log."""

    def key(self) -> bytes | None:
        """Return the key, or None."""

    def value(self) -> bytes | None:
        """Return the payload; None for a tombstone."""

    def timestamp(self) -> tuple[int, int]:
        """Return the timestamp's type and its milliseconds since the epoch."""


@dataclasses.dataclass(frozen=True)
class Rejection:
    """An uncounted message, and the reason."""

    message: Message
    reason: str
    detail: str
    metric: str = ""  # the claimed metric; empty if unknown
    reports: int = 1  # number of refused reports, at least 1


class ReportColumns(NamedTuple):
    """The reports of some batches, batch after batch."""

    levels: bytes
    values: bytes
    sizes: Integers  # the number of reports in each batch
    codes: Integers | None  # the slice of each batch; None without slices


class DecodedBatches:
    """The batches of one metric in a stretch of a log, one row each, in the log's order.

    Attributes
    ----------
    kafka_ms, time_ms : ndarray of int64
        Kafka's timestamps, and the event times in the batches; 0 if a batch has none.
    ids : ndarray of 16 bytes
        The id of each batch.
    sizes : ndarray of int64
        The numbers of reports; 0 for a heartbeat.
    """

    def __init__(
        self, messages: Sequence[Message], arrived: Integers, blocks: Sequence[BatchRows]
    ) -> None:
        index = np.concatenate([block.message_index for block in blocks])
        sizes = np.concatenate([block.sizes for block in blocks])
        codes = [block.codes for block in blocks if block.codes is not None]
        self._order = np.argsort(index, kind="stable")
        self._index, self._messages = index[self._order], messages
        self._reports = ReportColumns(
            b"".join([block.levels for block in blocks]),
            b"".join([block.values for block in blocks]),
            sizes,
            np.concatenate(codes) if codes else None,
        )
        self.kafka_ms, self.sizes = arrived[self._index], sizes[self._order]
        self.time_ms = np.concatenate([block.time_ms for block in blocks])[self._order]
        self.ids = np.concatenate([block.ids for block in blocks])[self._order]

    def message(self, row: int) -> Message:
        """Return the message of a batch."""
        return self._messages[int(self._index[row])]

    def reports(self, rows: NDArray[np.intp]) -> ReportColumns:
        """Return the reports of the batches in `rows`, maybe in another order than `rows`."""
        levels, values, sizes, codes = self._reports
        if rows.size == sizes.size:
            return self._reports
        positions = np.sort(self._order[rows])
        return ReportColumns(
            _select(levels, sizes, positions),
            _select(values, sizes * (len(values) // len(levels)), positions),
            sizes[positions],
            None if codes is None else codes[positions],
        )


class Decoder:
    """Decodes batches of the given metrics."""

    def __init__(self, metrics: Mapping[str, Metric]) -> None:
        self.metrics = metrics
        self._layouts: dict[tuple[bytes, int], BatchLayout] = {}

    def decode(
        self, messages: Sequence[Message], arrived: Integers
    ) -> tuple[dict[MetricRound, DecodedBatches], list[Rejection]]:
        """Return the batches of each metric and round, and a rejection for each other message.

        `arrived` are Kafka's timestamps of the messages, in ms.
        """
        payloads = [message.value() for message in messages]
        rows: defaultdict[MetricRound, list[BatchRows]] = defaultdict(list)
        unread = self._read_matrices(payloads, rows)
        parsed: defaultdict[MetricRound, list[tuple[int, ReportBatch]]] = defaultdict(list)
        rejections = []
        for index in sorted(unread):
            batch = None
            try:
                batch = _parse(payloads[index])
                check_batch(batch, self.metrics, heartbeats=True)
            except ReportError as error:
                name = batch.metric if batch is not None and batch.metric in self.metrics else ""
                size = 1 if batch is None else max(1, len(batch.levels))
                rejection = Rejection(messages[index], error.reason, error.detail, name, size)
                rejections.append(rejection)
            else:
                parsed[batch.metric, batch.round].append((index, batch))
        for question, indexed_batches in parsed.items():
            indices, batches = zip(*indexed_batches, strict=True)
            rows[question].append(
                BatchRows(
                    np.array(indices),
                    np.array([batch.time_ms for batch in batches], dtype=np.int64),
                    as_ids(batch.batch_id for batch in batches),
                    np.array([len(batch.levels) for batch in batches], dtype=np.int64),
                    self._read_codes(question[0], batches),
                    b"".join([batch.levels for batch in batches]),
                    b"".join([batch.values for batch in batches]),
                )
            )
        decoded = {name: DecodedBatches(messages, arrived, blocks) for name, blocks in rows.items()}
        return decoded, rejections

    def _read_codes(self, metric: str, batches: Sequence[ReportBatch]) -> Integers | None:
        """Return the slice of each batch; None for a metric without slices."""
        slicing = self.metrics[metric].slicing
        if slicing is None:
            return None
        return np.array([slicing.code(attributes_of(b)) for b in batches], dtype=np.int64)

    def _read_matrices(
        self, payloads: Sequence[bytes | None], rows: defaultdict[MetricRound, list[BatchRows]]
    ) -> list[int]:
        """Read the messages that share a layout; return the indices of the others."""
        unread: list[int] = []
        for members in _by_length(payloads):
            payload_bytes = len(payloads[members[0]] or b"")
            if members.size < MIN_MATRIX_MESSAGES or payload_bytes < MIN_BATCH_BYTES:
                unread += members.tolist()
                continue
            every = members.size == len(payloads)
            selected_payloads = payloads if every else [payloads[i] for i in members.tolist()]
            joined = b"".join(selected_payloads)  # type: ignore[arg-type]
            matrix = np.frombuffer(joined, dtype=np.uint8).reshape(members.size, -1)
            for frame_rows, size in _by_frame(matrix):
                bare, index = matrix[frame_rows, size:], members[frame_rows]
                if bare.shape[1] < MIN_BATCH_BYTES:
                    unread += index.tolist()
                    continue
                for chosen in _by_metric(bare):
                    unread += self._read_matrix(bare[chosen], index[chosen], rows)
        return unread

    def _read_matrix(
        self,
        matrix: NDArray[np.uint8],
        index: NDArray[np.intp],
        rows: defaultdict[MetricRound, list[BatchRows]],
    ) -> list[int]:
        """Read messages of equal length that mostly share a layout; return indices of the rest."""
        unread: list[int] = []
        for _ in range(MAX_LAYOUTS_PER_LENGTH):
            if index.size < MIN_MATRIX_MESSAGES:
                break
            layout = self._layout(matrix[0].tobytes())
            fits_layout = np.arange(index.size) == 0 if layout is None else layout.fits(matrix)
            read = None if layout is None else layout.read(matrix, index, fits_layout)
            if layout is not None and read is not None:
                rows[layout.metric.name, layout.round].append(read)
            else:
                unread += index[fits_layout].tolist()
            if fits_layout.all():
                return unread
            matrix, index = matrix[~fits_layout], index[~fits_layout]
        unread += index.tolist()
        return unread

    def _layout(self, payload: bytes) -> BatchLayout | None:
        """Return the layout of a batch; None if the batch is not in canonical form."""
        key = payload[: payload[1] + MIN_BATCH_BYTES], len(payload)
        row = np.frombuffer(payload, dtype=np.uint8)[None]
        cached_layout = self._layouts.get(key)
        if cached_layout is not None and cached_layout.fits(row).all():
            return cached_layout
        layout = self._new_layout(payload)
        if layout is not None:
            if len(self._layouts) >= MAX_CACHED_LAYOUTS:
                self._layouts.clear()
            self._layouts[key] = layout
        return layout

    def _new_layout(self, payload: bytes) -> BatchLayout | None:
        try:
            batch = _parse(payload)
            check_batch(batch, self.metrics)
        except ReportError:
            return None
        batch.DiscardUnknownFields()  # which are serialized after the known fields
        has_time = MIN_LAYOUT_TIME_MS <= batch.time_ms <= MAX_LAYOUT_TIME_MS
        if not has_time or batch.SerializeToString() != payload:
            return None
        return BatchLayout.of(self.metrics[batch.metric], batch, payload)


def split_by_key(rows: NDArray[np.intp], keys: NDArray[Any]) -> list[NDArray[np.intp]]:
    """Return the rows of each distinct key, ascending by key; usually there is a single key.

    `rows`, `keys`, shape (n,): rows, and the key of each.
    """
    if not keys.size or (keys == keys[0]).all():
        return [rows]
    order = np.argsort(keys, kind="stable")
    return np.split(rows[order], np.flatnonzero(np.diff(keys[order])) + 1)


def _select(data: bytes, row_bytes: Integers, positions: NDArray[np.intp]) -> bytes:
    """Return the bytes of the rows at ascending positions, given the bytes of each row."""
    array = np.frombuffer(data, dtype=np.uint8)
    if (row_bytes == row_bytes[0]).all():  # the special case is several times as fast
        return array.reshape(row_bytes.size, -1)[positions].tobytes()
    is_selected = np.zeros(row_bytes.size, dtype=np.bool_)
    is_selected[positions] = True
    return array[np.repeat(is_selected, row_bytes)].tobytes()


def _by_length(payloads: Sequence[bytes | None]) -> Iterable[NDArray[np.intp]]:
    """Return the indices of the payloads of each length, ascending."""
    try:
        lengths = list(map(len, payloads))  # type: ignore[arg-type]
    except TypeError:  # a tombstone
        return _by_length([payload or b"" for payload in payloads])
    indices = np.arange(len(lengths))
    is_single = not lengths or lengths.count(lengths[0]) == len(lengths)
    return [indices] if is_single else split_by_key(indices, np.array(lengths))


def _by_frame(matrix: NDArray[np.uint8]) -> Iterable[tuple[NDArray[np.intp] | slice, int]]:
    """Yield the rows with each size of frame; the size is 0 without a valid frame."""
    framed = np.flatnonzero(matrix[:, 0] == MAGIC_BYTE)
    if not framed.size or matrix.shape[1] < LONGEST_FRAME:
        yield slice(None), 0
        return
    sizes = np.zeros(len(matrix), dtype=np.intp)
    for indexes in MESSAGE_INDEXES:
        end = INDEXES_OFFSET + len(indexes)
        is_so = matrix[framed, INDEXES_OFFSET:end] == np.frombuffer(indexes, dtype=np.uint8)
        sizes[framed[is_so.all(axis=1)]] = end
    for size in np.unique(sizes):
        yield np.flatnonzero(sizes == size), int(size)


def _by_metric(matrix: NDArray[np.uint8]) -> Iterable[NDArray[np.intp] | slice]:
    """Return the rows of each metric; the first bytes of a row name its metric."""
    name = matrix[:, : int(matrix[0, 1]) + MIN_BATCH_BYTES]
    if (name == name[0]).all():
        return [slice(None)]
    return split_by_key(np.arange(len(name)), name @ NAME_HASH_FACTORS[: name.shape[1]])


def _parse(payload: bytes | None) -> ReportBatch:
    if payload is None:
        raise ReportError("malformed", "a message without a value")
    return parse_batch(payload)
