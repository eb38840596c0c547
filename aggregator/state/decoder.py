"""Decodes messages into columns of batches, or the reasons why they cannot be counted.

Devices that run the same code write the same fields at the same positions. So messages of one
length usually have one layout, and are read as a matrix of bytes, whose columns are the ids, times,
levels and values. A message of another layout is parsed by itself, with protobuf. Both ways give
the same rows and the same rejections. Frames of a schema registry are cut off first.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from aggregator.state.batch_ids import as_ids
from aggregator.state.decoded_batches import DecodedBatches, ParsedRows, Rows
from aggregator.state.layout import LARGEST_TIME, LEAST_TIME, Layout
from aggregator.state.rows import Integers
from estimators import Metric, ReportError
from producers.wire.batch import attributes_of, check_batch, parse_batch
from producers.wire.framing import INDEXES_OFFSET, LONGEST_FRAME, MAGIC_BYTE, MESSAGE_INDEXES
from producers.wire.reports_pb2 import ReportBatch

MATRIX_MESSAGES = 16
"""From so many messages of one length on, they are read as a matrix."""

MOST_LAYOUTS = 4
"""Of one metric and length: there is one, but for what strangers send."""

SHORTEST_BATCH = 2
"""A tag and the length of the metric's name."""

MOST_LAYOUTS_KEPT = 1_000
"""Layouts that are kept: they are as many as metrics times numbers of reports in a batch."""

MIXING = np.cumprod(np.full(SHORTEST_BATCH + 255, 0x9E3779B97F4A7C15, dtype=np.uint64))
"""Tells names apart by a sum of their bytes; rows that it mixes up are told apart by layout."""

MetricRound = tuple[str, int]
"""A metric's name, and the round that is answered; 0 where it has none."""


class Message(Protocol):
    """The part of a Kafka message that is looked at."""

    def offset(self) -> int:
        """Return the offset in the partition's log."""

    def key(self) -> bytes | None:
        """Return the key; None where there is none."""

    def value(self) -> bytes | None:
        """Return the payload; None for a tombstone."""

    def timestamp(self) -> tuple[int, int]:
        """Return the timestamp's type and its milliseconds since the epoch."""


@dataclasses.dataclass(frozen=True)
class Rejection:
    """A message that was not counted, and why.

    Attributes
    ----------
    metric : str
        The metric that it claims to be of; empty where there is none of that name.
    reports : int
        How many reports were refused with it, one at least.
    """

    message: Message
    reason: str
    detail: str
    metric: str = ""
    reports: int = 1


class Decoder:
    """Reads batches of these metrics.

    Parameters
    ----------
    metrics : mapping of str to Metric
        By name.
    """

    def __init__(self, metrics: Mapping[str, Metric]) -> None:
        self.metrics = metrics
        self._layouts: dict[tuple[bytes, int], Layout] = {}

    def decode(
        self, messages: Sequence[Message]
    ) -> tuple[dict[MetricRound, DecodedBatches], list[Rejection]]:
        """Return the batches of each question, and a rejection for each message that is none."""
        payloads = [message.value() for message in messages]
        rows: defaultdict[MetricRound, list[Rows]] = defaultdict(list)
        rest = self._read_matrices(payloads, rows)
        parsed: defaultdict[MetricRound, list[tuple[int, ReportBatch]]] = defaultdict(list)
        rejections = []
        for index in sorted(rest):
            batch = None
            try:
                batch = _parse(payloads[index])
                check_batch(batch, self.metrics, heartbeats=True)
            except ReportError as error:
                rejections.append(self._rejection(messages[index], error, batch))
            else:
                parsed[batch.metric, batch.round].append((index, batch))
        for question, found in parsed.items():
            indices, batches = zip(*found, strict=True)
            times = np.array([batch.time_ms for batch in batches], dtype=np.int64)
            ids = as_ids(batch.batch_id for batch in batches)
            codes = self._read_codes(question[0], batches)
            rows[question].append(ParsedRows(np.array(indices), times, ids, codes, list(batches)))
        return {question: DecodedBatches(blocks) for question, blocks in rows.items()}, rejections

    def _read_codes(self, metric: str, batches: Sequence[ReportBatch]) -> Integers | None:
        """Return the slice of each batch of a metric; None if it has no slices."""
        slicing = self.metrics[metric].slicing
        if slicing is None:
            return None
        return np.array([slicing.code(attributes_of(b)) for b in batches], dtype=np.int64)

    def _read_matrices(
        self, payloads: Sequence[bytes | None], rows: defaultdict[MetricRound, list[Rows]]
    ) -> list[int]:
        """Read the messages that share a layout; return the indices of the rest."""
        rest: list[int] = []
        for members in _by_length(payloads):
            if members.size < MATRIX_MESSAGES or len(payloads[members[0]] or b"") < SHORTEST_BATCH:
                rest += members.tolist()
                continue
            every = members.size == len(payloads)
            own = payloads if every else [payloads[i] for i in members.tolist()]
            joined = b"".join(own)  # type: ignore[arg-type]
            matrix = np.frombuffer(joined, dtype=np.uint8).reshape(members.size, -1)
            for alike, size in _by_frame(matrix):
                bare, index = matrix[alike, size:], members[alike]
                if bare.shape[1] < SHORTEST_BATCH:
                    rest += index.tolist()
                    continue
                for chosen in _by_metric(bare):
                    rest += self._read_matrix(bare[chosen], index[chosen], rows)
        return rest

    def _read_matrix(
        self,
        matrix: NDArray[np.uint8],
        index: NDArray[np.intp],
        rows: defaultdict[MetricRound, list[Rows]],
    ) -> list[int]:
        """Read messages of one length, most of which have a layout in common."""
        rest: list[int] = []
        for _ in range(MOST_LAYOUTS):
            if index.size < MATRIX_MESSAGES:
                break
            layout = self._layout(matrix[0].tobytes())
            fitting = np.arange(index.size) == 0 if layout is None else layout.fits(matrix)
            read = None if layout is None else layout.read(matrix, index, fitting)
            if layout is not None and read is not None:
                rows[layout.metric.name, layout.round].append(read)
            else:
                rest += index[fitting].tolist()
            if fitting.all():
                return rest
            matrix, index = matrix[~fitting], index[~fitting]
        rest += index.tolist()
        return rest

    def _layout(self, payload: bytes) -> Layout | None:
        """Return the layout of a batch as our producers write it, or None."""
        key = payload[: payload[1] + SHORTEST_BATCH], len(payload)
        row = np.frombuffer(payload, dtype=np.uint8)[None]
        known = self._layouts.get(key)
        if known is not None and known.fits(row).all():
            return known
        layout = self._new_layout(payload)
        if layout is not None:
            if len(self._layouts) >= MOST_LAYOUTS_KEPT:
                self._layouts.clear()
            self._layouts[key] = layout
        return layout

    def _new_layout(self, payload: bytes) -> Layout | None:
        try:
            batch = _parse(payload)
            check_batch(batch, self.metrics)
        except ReportError:
            return None
        batch.DiscardUnknownFields()  # they stand after the known ones
        if not LEAST_TIME <= batch.time_ms <= LARGEST_TIME or batch.SerializeToString() != payload:
            return None
        return Layout.of(self.metrics[batch.metric], batch, payload)

    def _rejection(
        self, message: Message, error: ReportError, batch: ReportBatch | None
    ) -> Rejection:
        if batch is None:
            return Rejection(message, error.reason, error.detail)
        name = batch.metric if batch.metric in self.metrics else ""
        return Rejection(message, error.reason, error.detail, name, max(1, len(batch.levels)))


def _by_length(payloads: Sequence[bytes | None]) -> Iterable[NDArray[np.intp]]:
    """Return the indices of the payloads of each length, ascending."""
    try:
        found = list(map(len, payloads))  # type: ignore[arg-type]
    except TypeError:  # one without a value
        return _by_length([payload or b"" for payload in payloads])
    if not found or found.count(found[0]) == len(found):
        return [np.arange(len(found))]
    lengths = np.array(found)
    order = np.argsort(lengths, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1)


def _by_frame(matrix: NDArray[np.uint8]) -> Iterable[tuple[NDArray[np.intp] | slice, int]]:
    """Yield the rows with frames of one size, and the size: 0 for bare batches and bad frames."""
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
    """Return the rows of each metric, as far as their first bytes tell: a tag, a length, a name."""
    name = matrix[:, : int(matrix[0, 1]) + SHORTEST_BATCH]
    if (name == name[0]).all():
        return [slice(None)]
    mixed = name @ MIXING[: name.shape[1]]
    order = np.argsort(mixed, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(mixed[order])) + 1)


def _parse(payload: bytes | None) -> ReportBatch:
    if payload is None:
        raise ReportError("malformed", "a message without a value")
    return parse_batch(payload)
