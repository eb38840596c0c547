"""Admission: the rules that a decoded batch must pass to be counted, in order.

1. ``bad_time``: its event time is not before the epoch, nor Kafka's timestamp beyond the year 9999;
2. ``future``: nor ahead of Kafka's timestamp by more than `aggregate.future`;
3. ``too_old``: nor behind it by more than `aggregate.past`;
4. ``late``: the watermark has not closed its pane;
5. ``duplicate``: its id was not counted in the pane before;
6. ``over_limit``: its key has room in the pane for all of its reports (`max_key_reports`).

The first rule that a batch breaks is the reason for its refusal. The last three depend on earlier
batches. Only counted batches move the watermark, are known as duplicates and use up a limit. A
heartbeat opens no pane; it moves the watermark if it passes the first two rules.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from aggregator.state.batch_ids import BatchIds
from aggregator.state.decoded_batches import DecodedBatches
from aggregator.state.decoder import Message
from aggregator.state.pane import Pane, Uses
from aggregator.state.pane_keys import PaneKey
from aggregator.state.rows import Integers, RowIndices, by_start, distinct
from aggregator.state.watermark import NO_TIME, Watermark
from aggregator.timestamps import LAST_MS, format_time
from estimators import Metric, ReportError

ANY_AGE = 2**62
"""No limit for how old an event may be, in ms."""
DAY_MS = 86_400_000
DIGEST_BYTES = 16

ADMITTED, BAD_TIME, FUTURE, TOO_OLD, LATE, DUPLICATE, OVER_LIMIT = range(7)

Bools = NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class TimeLimits:
    """The largest distance of a batch's event time from Kafka's timestamp."""

    future_ms: int  # ahead of it, and behind it
    past_ms: int = ANY_AGE


def digest(key: bytes | None) -> bytes:
    """Return what is kept of a message's key; messages without one have the same.

    Of one length, however long a key somebody sends: a collision takes 2^64 attempts.

    Examples
    --------
    >>> len(digest(b"x" * 1_000_000)), digest(None) == digest(b"")
    (16, True)
    """
    return hashlib.blake2b(key or b"", digest_size=DIGEST_BYTES).digest()


def admit(
    metric: Metric,
    batches: DecodedBatches,
    messages: Sequence[Message],
    arrived: Integers,
    limits: TimeLimits,
    watermark: Watermark,
    panes: Mapping[PaneKey, Pane],
    key: str,
) -> BatchAdmission:
    """Judge a metric's batches in the log's order, and move its watermark by those that count.

    Parameters
    ----------
    metric : Metric
        With its limits.
    batches : DecodedBatches
        Of this metric alone, in the order of the log.
    messages : sequence of Message
        Those that `batches.index` refers to.
    arrived : ndarray of int64
        Their Kafka timestamps, in ms.
    limits : TimeLimits
    watermark : Watermark
        As the batches before have left it behind.
    panes : mapping of PaneKey to Pane
        Those that are open; nothing in them is changed.
    key : str
        The metric's, or its round's, in these.
    """
    watermark.close(metric)  # it may have less lateness than before, or be held open no longer
    admission = BatchAdmission(metric, batches, arrived[batches.index], limits, watermark)
    admission.open_panes(panes, key)
    admission.apply_time_limits()
    if metric.max_key_reports is None:
        admission.apply_all_at_once()
    else:
        keys = [digest(messages[i].key()) for i in batches.index.tolist()]
        admission.apply_in_turn(keys, metric.max_key_reports)
    watermark.close(metric)
    admission.set_admitted()
    return admission


class BatchAdmission:
    """The outcome of a metric's batches, a row each, after all rules.

    Attributes
    ----------
    admitted : ndarray of intp
        The rows that are counted.
    start : ndarray of int64
        Of each row's pane.
    uses : dict of int to Uses
        By pane start: the new numbers of reports of the keys that added some.
    rule : ndarray of uint8
        The first rule that each batch breaks.
    detail : dict of int to int
        Of a late batch: the watermark before it. Of one over the limit: the reports that its key
        has in the pane.
    """

    def __init__(
        self,
        metric: Metric,
        batches: DecodedBatches,
        kafka_ms: Integers,
        limits: TimeLimits,
        watermark: Watermark,
    ) -> None:
        self.metric, self.batches, self.kafka_ms = metric, batches, kafka_ms
        self.limits, self.watermark = limits, watermark
        self.time = np.where(batches.time_ms == 0, kafka_ms, batches.time_ms)
        self.start = self.time - self.time % metric.pane_ms
        self.reached = np.minimum(self.time, kafka_ms)
        self.is_heartbeat = batches.are_heartbeats()
        self.rule = np.zeros(len(self.time), dtype=np.uint8)
        self.detail: dict[int, int] = {}
        self.counted_ids: dict[int, BatchIds] = {}
        self.used: dict[int, Uses] = {}
        self.uses: defaultdict[int, Uses] = defaultdict(dict)

    def open_panes(self, panes: Mapping[PaneKey, Pane], key: str) -> None:
        """Take over what the open panes of the batches have counted."""
        for begin in distinct(self.start):
            if pane := panes.get(PaneKey("pane", key, begin)):
                self.counted_ids[begin], self.used[begin] = pane.batch_ids, pane.used

    def apply_time_limits(self) -> None:
        """Apply the rules that look at a batch alone."""
        self.rule[~self.is_heartbeat & (self.time < self.kafka_ms - self.limits.past_ms)] = TOO_OLD
        self.rule[self.time > self.kafka_ms + self.limits.future_ms] = FUTURE
        self.rule[(self.time < 0) | (self.kafka_ms > LAST_MS)] = BAD_TIME

    def apply_all_at_once(self) -> None:
        """Apply the rules that look at the batches before, for a metric without a limit."""
        passed = self.rule == ADMITTED
        timely = passed & ~self.is_heartbeat
        repeated = self._find_repeats(timely)
        moving = passed & ~repeated
        late = self._late(timely, moving)
        if late.any():
            moving &= ~late
            along = self.watermark.along(self.reached[moving])
            moving_counts = np.cumsum(moving)
            for row in np.flatnonzero(late).tolist():
                self.detail[row] = int(along[moving_counts[row]])
        self.watermark.advance_all(self.reached[moving])
        self.rule[repeated] = DUPLICATE
        self.rule[late] = LATE

    def apply_in_turn(self, keys: Sequence[bytes], limit: int) -> None:
        """Apply them batch by batch: what a key may add depends on which of its batches counted.

        A batch is counted whole or not at all. One that is over the limit is not remembered: it
        moves no watermark, and a copy of it is over the limit again.
        """
        metric, watermark, batches = self.metric, self.watermark, self.batches
        was_counted = self._find_counted()
        counted_now: defaultdict[int, set[bytes]] = defaultdict(set)
        for row, (begin, key, identity) in enumerate(
            zip(self.start.tolist(), keys, batches.ids.tolist(), strict=True)
        ):
            if self.rule[row]:
                continue
            if not self.is_heartbeat[row]:
                counted = self.uses[begin].get(key, self.used.get(begin, {}).get(key, 0))
                reports = counted + batches.size(row)
                if begin + metric.pane_ms <= watermark.closed:
                    self.rule[row], self.detail[row] = LATE, watermark.time
                elif was_counted[row] or identity in counted_now[begin]:
                    self.rule[row] = DUPLICATE
                elif reports > limit:
                    self.rule[row], self.detail[row] = OVER_LIMIT, counted
                if self.rule[row]:
                    continue
                self.uses[begin][key] = reports
                counted_now[begin].add(identity)
            watermark.advance(int(self.reached[row]))
            watermark.close(metric)

    def errors_by_row(self) -> dict[int, ReportError]:
        """Return why batches are refused, by row, ascending."""
        return {row: self._error(row) for row in np.flatnonzero(self.rule).tolist()}

    def set_admitted(self) -> None:
        """Find the rows that are counted; have the watermark know when the last of them arrived."""
        self.admitted: RowIndices = np.flatnonzero((self.rule == ADMITTED) & ~self.is_heartbeat)
        arrived = self.kafka_ms[self.admitted]
        self.watermark.arrived = max(self.watermark.arrived, int(arrived.max(initial=NO_TIME)))

    def _late(self, timely: Bools, moving: Bools) -> Bools:
        """Return which batches come after the watermark has closed their pane.

        The oldest pane first: whether it closes depends on no batch of a later one being late.
        """
        metric, start, watermark = self.metric, self.start, self.watermark
        late: Bools = timely & (start + metric.pane_ms <= watermark.closed)
        open_still = timely & ~late
        if metric.hold_open or not open_still.any():
            return late
        latest = max(watermark.latest, int(self.reached[moving].max(initial=NO_TIME)))
        for begin in distinct(start[open_still]):
            close = begin + metric.pane_ms + metric.lateness_ms
            rows = np.flatnonzero(moving & ~late)
            confirming_index = (
                None if latest < close else watermark.reaches(close, self.reached[rows])
            )
            if confirming_index is None:
                break
            pane_rows = np.flatnonzero(open_still & (start == begin))
            late[pane_rows[pane_rows > rows[confirming_index]]] = True
        return late

    def _find_repeats(self, timely: Bools) -> Bools:
        """Return which batches were counted in their panes, or come again among these."""
        repeated = np.zeros(len(self.rule), dtype=np.bool_)
        rows = np.flatnonzero(timely)
        for begin, pane_rows in by_start(self.start[rows], rows):
            repeated[pane_rows] = self._ids(begin).find_repeats(self.batches.ids[pane_rows])
        return repeated

    def _find_counted(self) -> Bools:
        """Return which batches were counted in their panes before these."""
        counted = np.zeros(len(self.rule), dtype=np.bool_)
        for begin, rows in by_start(self.start, np.arange(len(self.rule))):
            counted[rows] = self._ids(begin).contains(self.batches.ids[rows])
        return counted

    def _ids(self, begin: int) -> BatchIds:
        """Return the ids that were counted in a pane."""
        return self.counted_ids.get(begin) or BatchIds()

    def _error(self, row: int) -> ReportError:
        """Return which rule a batch breaks, and how."""
        metric, rule, limits = self.metric, self.rule[row], self.limits
        time, kafka_ms = int(self.time[row]), int(self.kafka_ms[row])
        at, begin = format_time(time), format_time(int(self.start[row]))
        if rule == BAD_TIME and kafka_ms > LAST_MS:
            return ReportError(
                "bad_time",
                f"Kafka's timestamp {kafka_ms} ms is beyond the year 9999: the producer's clock "
                "is wrong, or its unit",
            )
        if rule == BAD_TIME:
            return ReportError("bad_time", f"event time {at} is before the epoch")
        if rule == FUTURE:
            return ReportError(
                "future",
                f"event time {at} is {time - kafka_ms} ms ahead of Kafka's timestamp: "
                f"at most {limits.future_ms} ms are allowed; the device's clock is wrong",
            )
        if rule == TOO_OLD:
            return ReportError(
                "too_old",
                f"event time {at} is {(kafka_ms - time) / DAY_MS:,.1f} days before "
                f"Kafka's timestamp: at most {limits.past_ms / DAY_MS:,.1f} are allowed "
                "(aggregate.past)",
            )
        if rule == LATE:
            return ReportError(
                "late",
                f"the pane that begins at {begin} was closed when event time reached "
                f"{format_time(self.detail[row])}: {metric.name} allows a lateness of "
                f"{metric.lateness}",
            )
        if rule == DUPLICATE:
            identity = self.batches.ids[row].tobytes().hex()
            return ReportError("duplicate", f"batch {identity} was counted before")
        return ReportError(
            "over_limit",
            f"{self.batches.size(row)} more reports of a key that has {self.detail[row]} in the "
            f"pane that begins at {begin}: {metric.name} allows {metric.max_key_reports} "
            "(max_key_reports)",
        )
