"""The state of one partition: a function of its log, from the first report to the next offset.

Nothing here reads a clock or talks to anybody: the same messages in the same order give the same
state, however they were cut into batches, which is what `dither verify` relies on.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Protocol

import numpy as np
from google.protobuf.message import DecodeError

from aggregator.keys import PaneKey, metric_key, rollups, width_ms
from estimators import Metric, ReportError
from estimators.estimate import Counts
from producers.reports_pb2 import ReportBatch

BATCH_ID_BYTES = 16
NEVER = -1


class Message(Protocol):
    """The part of a Kafka message that is looked at."""

    def offset(self) -> int:
        """Return the offset in the partition's log."""

    def value(self) -> bytes | None:
        """Return the payload; None for a tombstone."""

    def timestamp(self) -> tuple[int, int]:
        """Return the timestamp's type and its milliseconds since the epoch."""


@dataclasses.dataclass(frozen=True)
class Refusal:
    """A message that was not counted, and why."""

    message: Message
    reason: str
    detail: str


@dataclasses.dataclass(eq=False)
class Pane:
    """A statistic over one stretch of event time, open in memory.

    Attributes
    ----------
    first_offset : int
        Offset of the message that opened it.
    seen : set of bytes
        Ids of the batches counted in it: until the pane closes a second copy is recognised; after
        that it is late.
    unsaved : list of bytes
        The ids that the store does not know yet.
    changed, closed : bool
        Since the last commit.
    """

    metric: Metric
    first_offset: int
    statistic: Counts
    seen: set[bytes] = dataclasses.field(default_factory=set)
    unsaved: list[bytes] = dataclasses.field(default_factory=list)
    changed: bool = True
    closed: bool = False
    levels: list[bytes] = dataclasses.field(default_factory=list)
    values: list[bytes] = dataclasses.field(default_factory=list)

    def settle(self) -> int:
        """Add the batches put aside to the statistic, all at once; return their reports."""
        if not self.levels:
            return 0
        levels = np.frombuffer(b"".join(self.levels), dtype=np.uint8)
        reports = self.metric.randomizer.decode(b"".join(self.values))
        self.metric.accumulate_checked(self.statistic, levels, reports)
        self.levels.clear()
        self.values.clear()
        self.changed = True
        return len(levels)


@dataclasses.dataclass
class Watermark:
    """How far a metric's event time has come in a partition.

    Attributes
    ----------
    time : int
        The latest event time of a counted batch (never beyond Kafka's own timestamp for it), ms.
    arrived : int
        The latest Kafka timestamp of a counted batch, ms.
    """

    time: int = NEVER
    arrived: int = NEVER

    def __str__(self) -> str:
        """Return it as the store keeps it."""
        return f"{self.time}:{self.arrived}"

    @classmethod
    def parse(cls, text: str) -> Watermark:
        """Read back what ``str`` wrote."""
        time, arrived = text.split(":")
        return cls(int(time), int(arrived))


class Partition:
    """The sums of one partition and the next offset that they stand for.

    Parameters
    ----------
    metrics : mapping of str to Metric
        The metrics that are counted, by name.
    future_ms : int
        How far a batch's event time may be ahead of Kafka's timestamp.
    next_offset : int
        The first offset that is not counted yet.

    Attributes
    ----------
    unsaved : int
        Reports, counted or refused, since the store last had everything.
    arrivals : array of int
        Kafka's timestamps of the messages since then, in ms.
    """

    def __init__(self, metrics: Mapping[str, Metric], future_ms: int, next_offset: int = 0) -> None:
        self.metrics, self.future_ms, self.next_offset = metrics, future_ms, next_offset
        self.unsaved = 0
        self.arrivals = array("q")
        self.panes: dict[PaneKey, Pane] = {}
        self.watermarks: defaultdict[str, Watermark] = defaultdict(Watermark)
        self.counts: defaultdict[str, int] = defaultdict(int)
        self._keys = {name: metric_key(name, metric.revision) for name, metric in metrics.items()}

    def count(self, messages: Iterable[Message]) -> list[Refusal]:
        """Count messages in log order; return those that could not be.

        Messages below the next offset were counted before and are passed over.
        """
        refusals = []
        for message in messages:
            offset = message.offset()
            if offset < self.next_offset:
                continue
            batch, arrived = None, message.timestamp()[1]
            self.arrivals.append(arrived)
            try:
                batch = _parse(message.value())
                self._place(batch, offset, arrived)
            except ReportError as error:
                reports = 1 if batch is None else max(1, len(batch.levels))
                name = batch.metric if batch is not None and batch.metric in self.metrics else ""
                self.counts[f"{error.reason}:{name}"] += reports
                self.unsaved += reports
                if error.reason != "duplicate":
                    refusals.append(Refusal(message, error.reason, error.detail))
            self.next_offset = offset + 1
        for pane in self.panes.values():
            if counted := pane.settle():
                self.counts[f"accepted:{pane.metric.name}"] += counted
                self.unsaved += counted
        self._close()
        return refusals

    def _place(self, batch: ReportBatch, offset: int, kafka_ms: int) -> None:
        metric = self.metrics.get(batch.metric)
        if metric is None:
            raise ReportError("unknown_metric", f"metric {batch.metric[:80]!r} is not defined here")
        if batch.revision != metric.revision:
            raise ReportError(
                "wrong_revision",
                f"revision {batch.revision:08x} of {metric.name}: expected {metric.revision:08x}; "
                "the device has another definition of this metric",
            )
        if not batch.levels:
            raise ReportError("empty", "a batch without reports")
        if len(batch.batch_id) != BATCH_ID_BYTES:
            raise ReportError(
                "bad_batch_id", f"{len(batch.batch_id)} bytes: expected {BATCH_ID_BYTES}"
            )
        if batch.round:
            raise ReportError("bad_round", f"round {batch.round}: {metric.name} has no rounds")
        metric.randomizer.check(batch.levels, batch.values)
        time = batch.time_ms or kafka_ms
        if time < 0:
            raise ReportError("bad_time", f"event time {time} ms is before the epoch")
        if time > kafka_ms + self.future_ms:
            raise ReportError(
                "future",
                f"event time {time} ms is {time - kafka_ms} ms ahead of Kafka's timestamp: "
                f"at most {self.future_ms} ms are allowed; the device's clock is wrong",
            )
        self._add(metric, batch, offset, min(time, kafka_ms), kafka_ms, metric.pane_start(time))

    def _add(
        self, metric: Metric, batch: ReportBatch, offset: int, time: int, kafka_ms: int, start: int
    ) -> None:
        name = self._keys[metric.name]
        watermark = self.watermarks[name]
        if start + metric.pane_ms + metric.lateness_ms <= watermark.time:
            raise ReportError(
                "late",
                f"the pane that begins at {start} ms was closed when event time reached "
                f"{watermark.time} ms: {metric.name} allows a lateness of {metric.lateness}",
            )
        key = PaneKey("pane", name, start)
        pane = self.panes.get(key)
        if pane is None:
            pane = self.panes[key] = Pane(metric, offset, metric.zero())
        if batch.batch_id in pane.seen:
            raise ReportError("duplicate", f"batch {batch.batch_id.hex()} was counted before")
        pane.seen.add(batch.batch_id)
        pane.unsaved.append(batch.batch_id)
        pane.levels.append(batch.levels)
        pane.values.append(batch.values)
        watermark.time = max(watermark.time, time)
        watermark.arrived = max(watermark.arrived, kafka_ms)

    def _close(self) -> None:
        """Close the panes that the watermark has left behind, adding them to the coarser ones."""
        for key, pane in list(self.panes.items()):
            if key.grain == "pane" and not pane.closed and self._is_over(key, pane):
                pane.closed = pane.changed = True
                for coarser in rollups(pane.metric, key.start):
                    if coarser not in self.panes:
                        self.panes[coarser] = Pane(pane.metric, 0, pane.metric.zero())
                    self.panes[coarser].statistic += pane.statistic
                    self.panes[coarser].changed = True
        for key, pane in self.panes.items():
            if key.grain in ("hour", "day") and not pane.closed and self._is_over(key, pane):
                pane.closed = pane.changed = True

    def _is_over(self, key: PaneKey, pane: Pane) -> bool:
        width = width_ms(key.grain, pane.metric)
        assert width is not None  # noqa: S101
        return key.start + width + pane.metric.lateness_ms <= self.watermarks[key.metric].time

    def saved(self) -> dict[PaneKey, Pane]:
        """Note that the store has everything; let go of the closed panes and return them."""
        self.unsaved = 0
        self.arrivals = array("q")
        for pane in self.panes.values():
            pane.changed = False
            pane.unsaved.clear()
        closed = {key: pane for key, pane in self.panes.items() if pane.closed}
        for key in closed:
            del self.panes[key]
        return closed

    def restore(self, key: PaneKey, first_offset: int, statistic: bytes, seen: set[bytes]) -> None:
        """Take an open pane over from the store; one of a metric that is gone is left alone."""
        metric = self.metrics.get(key.metric.partition("@")[0])
        if metric is not None and self._keys[metric.name] == key.metric:
            vector = np.frombuffer(statistic, dtype="<i8").astype(np.int64)
            self.panes[key] = Pane(metric, first_offset, vector, seen, changed=False)


def _parse(value: bytes | None) -> ReportBatch:
    if value is None:
        raise ReportError("malformed", "a message without a value")
    try:
        return ReportBatch.FromString(value)
    except DecodeError as error:
        raise ReportError("malformed", f"not a ReportBatch: {error}") from None
