"""Messages into columns: what each batch of a log says, or why it cannot be counted.

Devices that run the same code write the same bytes in the same places, so that messages of one
length are mostly one layout: a matrix of bytes, of which the ids, times, levels and values are
columns. Whatever does not fit its neighbours' layout is parsed by itself, with protobuf; both ways
give the same rows and the same refusals.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from aggregator.state.rows import Integers
from estimators import Metric, ReportError
from producers.wire.batch import BATCH_ID_BYTES, check_batch, parse_batch
from producers.wire.reports_pb2 import ReportBatch

ALIKE = 16
"""From so many messages of one length on, they are read as a matrix."""

MOST_LAYOUTS = 4
"""Of one metric and length: there is one, but for what strangers send."""

LEAST_BYTES = 2
"""A tag and the length of the metric's name."""

TIME_BYTES = 6
VARINT_MORE = 0x80
LEAST_TIME, LARGEST_TIME = 1 << 7 * (TIME_BYTES - 1), (1 << 7 * TIME_BYTES) - 1
"""Times of six bytes on the wire: 1971 to 2109."""
MOST_KNOWN = 1_000
"""Layouts that are kept: they are as many as metrics times numbers of reports in a batch."""

MIXING = np.cumprod(np.full(LEAST_BYTES + 255, 0x9E3779B97F4A7C15, dtype=np.uint64))
"""Tells names apart by a sum of their bytes; rows that it mixes up are told apart by layout."""

PLACES = 1 << 7 * np.arange(TIME_BYTES, dtype=np.int64)

Asked = tuple[str, int]
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


@dataclasses.dataclass(frozen=True)
class Rows(ABC):
    """Batches of one metric that may be counted, a row each: the mechanism can have made them.

    Attributes
    ----------
    index : ndarray of int64, shape (n,)
        Which of the messages each row is, ascending.
    time_ms : ndarray of int64, shape (n,)
        The event time that the batch names; 0: none.
    ids : list of bytes, n of them
    """

    index: Integers
    time_ms: Integers
    ids: list[bytes]

    @abstractmethod
    def size(self, row: int) -> int:
        """Return the number of reports in a row."""

    @abstractmethod
    def columns(self, which: NDArray[np.intp]) -> tuple[bytes, bytes]:
        """Return the levels and the values of some rows, one after the other."""


@dataclasses.dataclass(frozen=True)
class MatrixRows(Rows):
    """Rows of one size.

    Attributes
    ----------
    levels, values : bytes
        Of all rows.
    """

    levels: bytes
    values: bytes

    def size(self, row: int) -> int:
        """Return the number of reports in a row."""
        return len(self.levels) // len(self.ids)

    def columns(self, which: NDArray[np.intp]) -> tuple[bytes, bytes]:
        """Return the levels and the values of some rows, one after the other."""
        if which.size == len(self.ids):
            return self.levels, self.values
        parts = (np.frombuffer(x, np.uint8) for x in (self.levels, self.values))
        levels, values = (part.reshape(len(self.ids), -1)[which].tobytes() for part in parts)
        return levels, values


@dataclasses.dataclass(frozen=True)
class ParsedRows(Rows):
    """Rows that were parsed one by one."""

    batches: list[ReportBatch]

    def size(self, row: int) -> int:
        """Return the number of reports in a row."""
        return len(self.batches[row].levels)

    def columns(self, which: NDArray[np.intp]) -> tuple[bytes, bytes]:
        """Return the levels and the values of some rows, one after the other."""
        batches = [self.batches[i] for i in which]
        return b"".join([b.levels for b in batches]), b"".join([b.values for b in batches])


class DecodedBatches:
    """The batches of one metric in a stretch of a log, in the log's order.

    Parameters
    ----------
    blocks : sequence of Rows

    Attributes
    ----------
    index, time_ms, ids
        As :class:`Rows` has them.
    """

    def __init__(self, blocks: Sequence[Rows]) -> None:
        self._blocks = blocks
        sizes = [len(block.ids) for block in blocks]
        self.index, self.time_ms, self.ids = blocks[0].index, blocks[0].time_ms, blocks[0].ids
        self._block, self._row = np.zeros(sizes[0], dtype=np.intp), np.arange(sizes[0])
        if len(blocks) == 1:
            return
        index = np.concatenate([block.index for block in blocks])
        order = np.argsort(index, kind="stable")
        self.index = index[order]
        self.time_ms = np.concatenate([block.time_ms for block in blocks])[order]
        ids = [identity for block in blocks for identity in block.ids]
        self.ids = [ids[i] for i in order.tolist()]
        self._block = np.repeat(np.arange(len(blocks)), sizes)[order]
        self._row = np.concatenate([np.arange(size) for size in sizes])[order]

    def size(self, which: int) -> int:
        """Return the number of reports in a batch."""
        return self._blocks[int(self._block[which])].size(int(self._row[which]))

    def are_heartbeats(self) -> NDArray[np.bool_]:
        """Return which batches have no report: see :func:`producers.wire.batch.heartbeat`."""
        empty = np.zeros(len(self.ids), dtype=np.bool_)
        for number, block in enumerate(self._blocks):
            if isinstance(block, ParsedRows):  # those that are read as a matrix have reports
                mine = self._block == number
                sizes = np.array([len(batch.levels) for batch in block.batches])
                empty[mine] = sizes[self._row[mine]] == 0
        return empty

    def columns(self, which: NDArray[np.intp]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the levels and the values of some batches."""
        if len(self._blocks) == 1:
            yield self._blocks[0].columns(which)
            return
        for number, block in enumerate(self._blocks):
            rows = self._row[which[self._block[which] == number]]
            if rows.size:
                yield block.columns(rows)


class Decoder:
    """Reads batches of these metrics.

    Parameters
    ----------
    metrics : mapping of str to Metric
        By name.
    """

    def __init__(self, metrics: Mapping[str, Metric]) -> None:
        self.metrics = metrics
        self._layouts: dict[tuple[bytes, int], _Layout] = {}

    def decode(
        self, messages: Sequence[Message]
    ) -> tuple[dict[Asked, DecodedBatches], list[Rejection]]:
        """Return the batches of each question, and a refusal for each message that is none."""
        payloads = [message.value() for message in messages]
        rows: defaultdict[Asked, list[Rows]] = defaultdict(list)
        rest = self._read_alike(payloads, rows)
        parsed: defaultdict[Asked, list[tuple[int, ReportBatch]]] = defaultdict(list)
        refusals = []
        for index in sorted(rest):
            batch = None
            try:
                batch = _parsed(payloads[index])
                check_batch(batch, self.metrics, heartbeats=True)
            except ReportError as error:
                refusals.append(self._refusal(messages[index], error, batch))
            else:
                parsed[batch.metric, batch.round].append((index, batch))
        for asked, found in parsed.items():
            indices, batches = zip(*found, strict=True)
            times = np.array([batch.time_ms for batch in batches], dtype=np.int64)
            ids = [batch.batch_id for batch in batches]
            rows[asked].append(ParsedRows(np.array(indices), times, ids, list(batches)))
        return {asked: DecodedBatches(blocks) for asked, blocks in rows.items()}, refusals

    def _read_alike(
        self, payloads: Sequence[bytes | None], rows: defaultdict[Asked, list[Rows]]
    ) -> list[int]:
        """Read the messages that share a layout; return the indices of the rest."""
        rest: list[int] = []
        for members in _by_length(payloads):
            if members.size < ALIKE or len(payloads[members[0]] or b"") < LEAST_BYTES:
                rest += members.tolist()
                continue
            every = members.size == len(payloads)
            alike = payloads if every else [payloads[i] for i in members.tolist()]
            joined = b"".join(alike)  # type: ignore[arg-type]
            matrix = np.frombuffer(joined, dtype=np.uint8).reshape(members.size, -1)
            for chosen in _by_metric(matrix):
                rest += self._read_matrix(matrix[chosen], members[chosen], rows)
        return rest

    def _read_matrix(
        self,
        matrix: NDArray[np.uint8],
        index: NDArray[np.intp],
        rows: defaultdict[Asked, list[Rows]],
    ) -> list[int]:
        """Read messages of one length, most of which have a layout in common."""
        rest: list[int] = []
        for _ in range(MOST_LAYOUTS):
            if index.size < ALIKE:
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

    def _layout(self, payload: bytes) -> _Layout | None:
        """Return the layout of a batch as our producers write it, or None."""
        key = payload[: payload[1] + LEAST_BYTES], len(payload)
        row = np.frombuffer(payload, dtype=np.uint8)[None]
        known = self._layouts.get(key)
        if known is not None and known.fits(row).all():
            return known
        layout = self._new_layout(payload)
        if layout is not None:
            if len(self._layouts) >= MOST_KNOWN:
                self._layouts.clear()
            self._layouts[key] = layout
        return layout

    def _new_layout(self, payload: bytes) -> _Layout | None:
        try:
            batch = _parsed(payload)
            check_batch(batch, self.metrics)
        except ReportError:
            return None
        batch.DiscardUnknownFields()  # they stand after the known ones
        if not LEAST_TIME <= batch.time_ms <= LARGEST_TIME or batch.SerializeToString() != payload:
            return None
        return _Layout.of(self.metrics[batch.metric], batch, payload)

    def _refusal(
        self, message: Message, error: ReportError, batch: ReportBatch | None
    ) -> Rejection:
        if batch is None:
            return Rejection(message, error.reason, error.detail)
        name = batch.metric if batch.metric in self.metrics else ""
        return Rejection(message, error.reason, error.detail, name, max(1, len(batch.levels)))


@dataclasses.dataclass(frozen=True)
class _Layout:
    """Where a batch of one metric and one size has its fields.

    Attributes
    ----------
    places : ndarray of intp, shape (m,)
        The bytes outside the ids, levels and values: tags, lengths, the metric's name and revision,
        the time.
    least, spread : ndarray of uint8, shape (m,)
        Each is at least the first, and at most the second above it: nothing, where it is the same
        in all such batches.
    ids, times, levels, values : slice
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
    round: int

    @classmethod
    def of(cls, metric: Metric, batch: ReportBatch, payload: bytes) -> _Layout:
        """Return the layout of a batch that protobuf serializes to `payload`."""
        head = ReportBatch(metric=batch.metric, revision=batch.revision).ByteSize() + 2
        ids = slice(head, head + BATCH_ID_BYTES)
        times = slice(ids.stop + 1, ids.stop + 1 + TIME_BYTES)
        end = len(payload) - ReportBatch(round=batch.round).ByteSize()
        ends = end - ReportBatch(values=batch.values).ByteSize()
        levels = slice(ends - len(batch.levels), ends)
        values = slice(end - len(batch.values), end)
        least = np.frombuffer(payload, dtype=np.uint8).copy()
        spread = np.zeros_like(least)
        least[times], spread[times] = VARINT_MORE, VARINT_MORE - 1
        least[times.stop - 1], spread[times.stop - 1] = 1, VARINT_MORE - 2
        own = (ids, levels, values)
        places = np.delete(np.arange(len(payload)), np.r_[own])
        return cls(
            metric, places, least[places], spread[places], ids, times, levels, values, batch.round
        )

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
        """Return the rows that fit, or None if some report in them cannot be one."""
        if not fitting.all():
            matrix, index = matrix[fitting], index[fitting]
        levels, values = (matrix[:, part].tobytes() for part in (self.levels, self.values))
        try:
            self.metric.randomizer.check(levels, values)
        except ReportError:
            return None
        ids = np.ascontiguousarray(matrix[:, self.ids]).view(f"V{BATCH_ID_BYTES}")[:, 0].tolist()
        time_ms = (matrix[:, self.times] & (VARINT_MORE - 1)) @ PLACES
        return MatrixRows(index, time_ms, ids, levels, values)


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


def _by_metric(matrix: NDArray[np.uint8]) -> Iterable[NDArray[np.intp] | slice]:
    """Return the rows of each metric, as far as their first bytes tell: a tag, a length, a name."""
    name = matrix[:, : int(matrix[0, 1]) + LEAST_BYTES]
    if (name == name[0]).all():
        return [slice(None)]
    mixed = name @ MIXING[: name.shape[1]]
    order = np.argsort(mixed, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(mixed[order])) + 1)


def _parsed(payload: bytes | None) -> ReportBatch:
    if payload is None:
        raise ReportError("malformed", "a message without a value")
    return parse_batch(payload)
