"""Admission: the rules that a decoded batch must pass to be counted, in order.

1. ``bad_time``: the event time is not before the epoch, Kafka's timestamp not after the year 9999.
2. ``future``: the event time is ahead of Kafka's timestamp by at most `aggregate.future`.
3. ``too_old``: it is behind Kafka's timestamp by at most `aggregate.past`.
4. ``late``: the watermark has not closed the batch's pane.
5. ``duplicate``: the batch's id was not counted in the pane before.
6. ``over_limit``: the batch's key may add all its reports to the pane (`max_key_reports`).

The first broken rule is the reason for the refusal. Rules 4 to 6 depend on earlier batches. Only
counted batches move the watermark, make later copies duplicates and use up a limit. A heartbeat
opens no pane; it moves the watermark if it passes the first two rules.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from aggregator.state.batch_ids import BatchIds, Ids
from aggregator.state.decoder import DecodedBatches, Rejection, split_by_key
from aggregator.state.pane import Pane, Uses
from aggregator.state.pane_keys import PaneKey
from aggregator.state.watermark import NO_TIME, Watermark
from aggregator.timestamps import LAST_MS, format_time
from estimators import Metric

ANY_AGE = 2**62
"""A maximum age of events in ms that allows any age."""
DAY_MS = 86_400_000
DIGEST_BYTES = 16


class Rule(enum.IntEnum):
    """The first rule that a batch breaks; its name is the reason of the rejection."""

    ADMITTED = 0
    BAD_TIME = 1
    FUTURE = 2
    TOO_OLD = 3
    LATE = 4
    DUPLICATE = 5
    OVER_LIMIT = 6


Bools = NDArray[np.bool_]
RowIndices = NDArray[np.intp]


@dataclasses.dataclass(frozen=True)
class TimeLimits:
    """How far event times may be ahead of Kafka's timestamps (future) and behind them (past)."""

    future_ms: int
    past_ms: int = ANY_AGE


def digest(key: bytes | None) -> bytes:
    """Return the digest of a message's key; all messages without a key have the same digest.

    All digests have the same length; whoever looks for two keys with the same digest needs about
    2^64 attempts.

    >>> len(digest(b"x" * 1_000_000)), digest(None) == digest(b"")
    (16, True)
    """
    return hashlib.blake2b(key or b"", digest_size=DIGEST_BYTES).digest()


def admit(
    metric: Metric,
    batches: DecodedBatches,
    limits: TimeLimits,
    watermark: Watermark,
    panes: Mapping[PaneKey, Pane],
    key: str,
) -> BatchAdmission:
    """Apply the rules to a metric's batches in the log's order; counted batches move its watermark.

    `metric`: the metric; `batches`: batches of this metric alone; `limits`: the limits on event
    times; `watermark`: the metric's watermark after all earlier batches; `panes`: the open panes;
    they are not changed; `key`: the key of the metric, or of its round, in `panes`.
    """
    watermark.close(metric)  # a new definition may have less lateness, or panes held open no longer
    admission = BatchAdmission(metric, batches, limits, watermark)
    admission.open_panes(panes, key)
    admission.apply_time_limits()
    if metric.max_key_reports is None:
        admission.apply_all_at_once()
    else:
        admission.apply_in_turn(metric.max_key_reports)
    watermark.close(metric)
    admission.set_admitted()
    return admission


class BatchAdmission:
    """The outcome of all rules for a metric's batches, one row each.

    Attributes
    ----------
    admitted : ndarray of intp
        The counted rows.
    start : ndarray of int64
        The start of each row's pane, in ms since the epoch.
    uses : dict of int to Uses
        By start of a pane: for each key that added reports, its new number of reports.
    rule : ndarray of uint8
        The first rule that each batch breaks.
    detail : dict of int to int
        By row: for a late batch, the watermark before it; for a batch over the limit, the number of
        reports that its key has in the pane.
    """

    def __init__(
        self, metric: Metric, batches: DecodedBatches, limits: TimeLimits, watermark: Watermark
    ) -> None:
        self.metric, self.batches, self.kafka_ms = metric, batches, batches.kafka_ms
        self.limits, self.watermark = limits, watermark
        self.time = np.where(batches.time_ms == 0, self.kafka_ms, batches.time_ms)
        self.start = self.time - self.time % metric.pane_ms
        self.reached = np.minimum(self.time, self.kafka_ms)
        self.is_heartbeat = batches.sizes == 0
        self.rule = np.zeros(len(self.time), dtype=np.uint8)
        self.detail: dict[int, int] = {}
        self.counted_ids: dict[int, BatchIds] = {}
        self.used: dict[int, Uses] = {}
        self.uses: defaultdict[int, Uses] = defaultdict(dict)

    def open_panes(self, panes: Mapping[PaneKey, Pane], key: str) -> None:
        """Load the counted ids and uses of the batches' open panes."""
        for pane_start, _ in self.by_pane(np.arange(self.start.size)):
            if pane := panes.get(PaneKey("pane", key, pane_start)):
                self.counted_ids[pane_start], self.used[pane_start] = pane.batch_ids, pane.used

    def apply_time_limits(self) -> None:
        """Apply the rules that depend on a batch alone."""
        is_old = self.time < self.kafka_ms - self.limits.past_ms
        self.rule[~self.is_heartbeat & is_old] = Rule.TOO_OLD
        self.rule[self.time > self.kafka_ms + self.limits.future_ms] = Rule.FUTURE
        self.rule[(self.time < 0) | (self.kafka_ms > LAST_MS)] = Rule.BAD_TIME

    def apply_all_at_once(self) -> None:
        """Apply the rules that depend on earlier batches, for a metric without a key limit."""
        passed = self.rule == Rule.ADMITTED
        timely = passed & ~self.is_heartbeat
        repeated = self._passing(np.flatnonzero(timely), BatchIds.find_repeats)
        moving = passed & ~repeated
        late = self._find_late(timely, moving)
        if late.any():
            moving &= ~late
            along = self.watermark.times_along(self.reached[moving])
            moving_counts = np.cumsum(moving)
            for row in np.flatnonzero(late).tolist():
                self.detail[row] = int(along[moving_counts[row]])
        self.watermark.advance_all(self.reached[moving])
        self.rule[repeated] = Rule.DUPLICATE
        self.rule[late] = Rule.LATE

    def apply_in_turn(self, limit: int) -> None:
        """Apply the rules that depend on earlier batches, for a metric with a key limit.

        A batch is counted whole or not at all, and a key's limit depends on which of its batches
        were counted. A batch over the limit leaves no trace: it moves no watermark, and a copy of
        it is over the limit again.
        """
        metric, watermark, batches = self.metric, self.watermark, self.batches
        was_counted = self._passing(np.arange(len(self.rule)), BatchIds.contains)
        counted_now: defaultdict[int, set[bytes]] = defaultdict(set)
        identities = zip(self.start.tolist(), batches.ids.tolist(), strict=True)
        for row, (pane_start, identity) in enumerate(identities):
            if self.rule[row]:
                continue
            if not self.is_heartbeat[row]:
                key = digest(batches.message(row).key())
                counted = self.uses[pane_start].get(key, self.used.get(pane_start, {}).get(key, 0))
                reports = counted + int(batches.sizes[row])
                if pane_start + metric.pane_ms <= watermark.closed:
                    self.rule[row], self.detail[row] = Rule.LATE, watermark.time
                elif was_counted[row] or identity in counted_now[pane_start]:
                    self.rule[row] = Rule.DUPLICATE
                elif reports > limit:
                    self.rule[row], self.detail[row] = Rule.OVER_LIMIT, counted
                if self.rule[row]:
                    continue
                self.uses[pane_start][key] = reports
                counted_now[pane_start].add(identity)
            watermark.advance(int(self.reached[row]))
            watermark.close(metric)

    def rejections(self) -> list[Rejection]:
        """Return the refused batches, each with the rule that it breaks, in order."""
        return [self._rejection(row) for row in np.flatnonzero(self.rule).tolist()]

    def _rejection(self, row: int) -> Rejection:
        message, reason = self.batches.message(row), Rule(self.rule[row]).name.lower()
        reports = max(1, int(self.batches.sizes[row]))
        return Rejection(message, reason, self._rejection_detail(row), self.metric.name, reports)

    def set_admitted(self) -> None:
        """Set `admitted`, and record the latest arrival of these rows in the watermark."""
        self.admitted = np.flatnonzero((self.rule == Rule.ADMITTED) & ~self.is_heartbeat)
        arrived = self.kafka_ms[self.admitted]
        self.watermark.arrived = max(self.watermark.arrived, int(arrived.max(initial=NO_TIME)))

    def _find_late(self, timely: Bools, moving: Bools) -> Bools:
        """Return which batches come after the watermark has closed their pane.

        The oldest pane is processed first, because a batch that is late for its pane closes no
        older pane.
        """
        metric, start, watermark = self.metric, self.start, self.watermark
        late: Bools = timely & (start + metric.pane_ms <= watermark.closed)
        is_in_open_pane = timely & ~late
        if metric.hold_open or not is_in_open_pane.any():
            return late
        latest = max(watermark.latest, int(self.reached[moving].max(initial=NO_TIME)))
        for pane_start, pane_rows in self.by_pane(np.flatnonzero(is_in_open_pane)):
            close = pane_start + metric.pane_ms + metric.lateness_ms
            rows = np.flatnonzero(moving & ~late)
            confirming_index = (
                None if latest < close else watermark.confirming_index(close, self.reached[rows])
            )
            if confirming_index is None:
                break
            late[pane_rows[pane_rows > rows[confirming_index]]] = True
        return late

    def by_pane(self, rows: RowIndices) -> list[tuple[int, RowIndices]]:
        """Return the start in ms of each pane of some rows, ascending, and its rows."""
        groups = split_by_key(rows, self.start[rows]) if rows.size else []
        return [(int(self.start[group[0]]), group) for group in groups]

    def _passing(self, rows: RowIndices, test: Callable[[BatchIds, Ids], Bools]) -> Bools:
        """Return which of the rows pass a test of their ids against those counted in their pane."""
        passes = np.zeros(len(self.rule), dtype=np.bool_)
        for pane_start, pane_rows in self.by_pane(rows):
            counted_ids = self.counted_ids.get(pane_start) or BatchIds()
            passes[pane_rows] = test(counted_ids, self.batches.ids[pane_rows])
        return passes

    def _rejection_detail(self, row: int) -> str:
        """Return how a batch breaks the rule that refuses it, with the values that break it."""
        metric, rule, limits = self.metric, self.rule[row], self.limits
        time, kafka_ms = int(self.time[row]), int(self.kafka_ms[row])
        at, pane_start = format_time(time), format_time(int(self.start[row]))
        if rule == Rule.BAD_TIME and kafka_ms > LAST_MS:
            return (
                f"Kafka's timestamp {kafka_ms} ms is beyond the year 9999: the producer's clock "
                "is wrong, or its unit"
            )
        if rule == Rule.BAD_TIME:
            return f"event time {at} is before the epoch"
        if rule == Rule.FUTURE:
            return (
                f"event time {at} is {time - kafka_ms} ms ahead of Kafka's timestamp: "
                f"at most {limits.future_ms} ms are allowed; the device's clock is wrong"
            )
        if rule == Rule.TOO_OLD:
            return (
                f"event time {at} is {(kafka_ms - time) / DAY_MS:,.1f} days before "
                f"Kafka's timestamp: at most {limits.past_ms / DAY_MS:,.1f} are allowed "
                "(aggregate.past)"
            )
        if rule == Rule.LATE:
            return (
                f"the pane that begins at {pane_start} was closed when event time reached "
                f"{format_time(self.detail[row])}: {metric.name} allows a lateness of "
                f"{metric.lateness}"
            )
        if rule == Rule.DUPLICATE:
            return f"batch {self.batches.ids[row].tobytes().hex()} was counted before"
        return (
            f"{self.batches.sizes[row]} more reports of a key that has {self.detail[row]} in the "
            f"pane that begins at {pane_start}: {metric.name} allows {metric.max_key_reports} "
            "(max_key_reports)"
        )
