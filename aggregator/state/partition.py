"""The state of one partition: a function of its log, from the first report to the next offset.

Nothing here reads a clock or talks to anybody: the same messages in the same order give the same
state, however they were cut into batches, which is what `dither verify` relies on.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from aggregator.state.admission import Uses, Verdict, digest, judge_in_turn
from aggregator.state.decoder import DecodedBatches, Decoder, Integers, Message, Rejection
from aggregator.state.pane_keys import PaneKey, counted_keys, rollups, width_ms
from aggregator.state.watermark import CONFIRMING_BATCHES, NEVER, Watermark
from aggregator.timestamps import shown
from estimators import Metric, ReportError
from estimators.estimate import Counts

__all__ = ["CONFIRMING_BATCHES", "NEVER", "Pane", "Partition", "Watermark"]

ANY_AGE = 2**62
"""No limit for how old an event may be, in ms."""
DAY_MS = 86_400_000


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
    used : dict of bytes to int
        Where the metric has a limit: how many reports of each key were counted in it.
    unsaved_keys : set of bytes
        Those of which the store has another number.
    changed, closed : bool
        Since the last commit.
    """

    metric: Metric
    first_offset: int
    statistic: Counts
    seen: set[bytes] = dataclasses.field(default_factory=set)
    unsaved: list[bytes] = dataclasses.field(default_factory=list)
    used: Uses = dataclasses.field(default_factory=dict)
    unsaved_keys: set[bytes] = dataclasses.field(default_factory=set)
    changed: bool = True
    closed: bool = False
    levels: list[bytes] = dataclasses.field(default_factory=list)
    values: list[bytes] = dataclasses.field(default_factory=list)

    def add(self, batches: DecodedBatches, which: NDArray[np.intp]) -> None:
        """Put batches aside for :meth:`settle`, each counted once; `seen` has their ids already."""
        self.unsaved += _chosen(batches.ids, which)
        for levels, values in batches.columns(which):
            self.levels.append(levels)
            self.values.append(values)

    def note(self, uses: Uses) -> None:
        """Take over the numbers of reports of keys."""
        self.used.update(uses)
        self.unsaved_keys.update(uses)

    def settle(self) -> int:
        """Add the batches put aside to the statistic, all at once; return their reports."""
        if not self.levels:
            return 0
        levels = np.frombuffer(_joined(self.levels), dtype=np.uint8)
        reports = self.metric.randomizer.decode(_joined(self.values))
        self.metric.accumulate_checked(self.statistic, levels, reports)
        self.levels.clear()
        self.values.clear()
        self.changed = True
        return len(levels)


class Partition:
    """The sums of one partition and the next offset that they stand for.

    Parameters
    ----------
    metrics : mapping of str to Metric
        The metrics that are counted, by name.
    future_ms : int
        How far a batch's event time may be ahead of Kafka's timestamp.
    past_ms : int
        How far it may be behind.
    next_offset : int
        The first offset that is not counted yet.

    Attributes
    ----------
    unsaved : int
        Reports, counted or refused, since the store last had everything.
    arrivals : array of int
        Kafka's timestamps of the messages since then, in ms.
    """

    def __init__(
        self,
        metrics: Mapping[str, Metric],
        future_ms: int,
        next_offset: int = 0,
        past_ms: int = ANY_AGE,
    ) -> None:
        self.metrics, self.next_offset = metrics, next_offset
        self.future_ms, self.past_ms = future_ms, past_ms
        self.unsaved = 0
        self.arrivals = array("q")
        self.panes: dict[PaneKey, Pane] = {}
        self.watermarks: defaultdict[str, Watermark] = defaultdict(Watermark)
        self.counts: defaultdict[str, int] = defaultdict(int)
        self._decoder = Decoder(metrics)
        self._keys = {name: counted_keys(metric) for name, metric in metrics.items()}

    def count(self, messages: Iterable[Message]) -> list[Rejection]:
        """Count messages in log order; return those that could not be.

        Messages below the next offset were counted before and are passed over.
        """
        fresh = self._fresh(list(messages))
        if not fresh:
            return []
        found, refusals = self._decoder.decode(fresh)
        stamps = [message.timestamp()[1] for message in fresh]
        arrived = np.fromiter(stamps, np.int64, len(fresh))
        self.arrivals.frombytes(arrived.tobytes())
        for (name, number), batches in found.items():
            key = self._keys[name][number - 1 if number else 0]
            refusals += self._place(self.metrics[name], key, batches, fresh, arrived)
        for refusal in refusals:
            self.counts[f"{refusal.reason}:{refusal.metric}"] += refusal.reports
            self.unsaved += refusal.reports
        for pane in self.panes.values():
            if counted := pane.settle():
                self.counts[f"accepted:{pane.metric.name}"] += counted
                self.unsaved += counted
        self.next_offset = fresh[-1].offset() + 1
        self._close()
        told = [refusal for refusal in refusals if refusal.reason != "duplicate"]
        return sorted(told, key=lambda refusal: refusal.message.offset())

    def has_changed(self, panes: int) -> bool:
        """Return whether the next commit will write more panes than that."""
        return len(self.panes) > panes < sum(pane.changed for pane in self.panes.values())

    @property
    def changed_bytes(self) -> int:
        """The size of the statistics that the next commit will write."""
        return sum(pane.statistic.nbytes for pane in self.panes.values() if pane.changed)

    def reach(self, offset: int) -> None:
        """Pass over offsets that belong to no message: markers of transactions, what was aborted.

        Nothing else changes: the same log gives the same state, whether they were passed or not.
        """
        self.next_offset = max(self.next_offset, offset)

    def _fresh(self, messages: list[Message]) -> list[Message]:
        """Return the messages that were not counted before, each offset once, in their order."""
        found = [message.offset() for message in messages]
        offsets = np.fromiter(found, np.int64, len(messages))
        if not offsets.size or (offsets[0] >= self.next_offset and (np.diff(offsets) > 0).all()):
            return messages
        fresh, following = [], self.next_offset
        for message, offset in zip(messages, offsets.tolist(), strict=True):
            if offset >= following:
                fresh.append(message)
                following = offset + 1
        return fresh

    def _place(
        self,
        metric: Metric,
        name: str,
        batches: DecodedBatches,
        messages: Sequence[Message],
        arrived: Integers,
    ) -> list[Rejection]:
        """Put a metric's batches into their panes; return those that come at a wrong time.

        `name` is the key under which they are counted. Each is judged by the watermark that those
        before it have left behind.
        """
        kafka_ms = arrived[batches.index]
        time = np.where(batches.time_ms == 0, kafka_ms, batches.time_ms)
        before_epoch = time < 0
        ahead = ~before_epoch & (time > kafka_ms + self.future_ms)
        beats = batches.are_heartbeats()
        too_old = ~beats & (time < kafka_ms - self.past_ms)  # a heartbeat opens no pane
        wrong = before_epoch | ahead | too_old
        start = time - time % metric.pane_ms
        watermark = self.watermarks[name]
        watermark.close(metric)  # it may have less lateness than before, or be held open no longer
        reached = np.minimum(time, kafka_ms)
        panes = self._open(name, start)
        seen = defaultdict(set, {begin: pane.seen for begin, pane in panes.items()})
        uses: dict[int, Uses] = {}
        if metric.max_key_reports is None:
            ids = batches.ids
            verdict = _judge(metric, ids, reached, start, wrong, beats, watermark, seen)
        else:
            keys = [digest(messages[i].key()) for i in batches.index.tolist()]
            used = {begin: pane.used for begin, pane in panes.items()}
            verdict, uses = judge_in_turn(
                metric, batches, keys, reached, start, wrong, beats, watermark, seen, used
            )
        late = verdict.late
        refused = wrong | late | verdict.repeated
        if verdict.over:
            refused[list(verdict.over)] = True
        good = np.flatnonzero(~(refused | beats))
        watermark.close(metric)
        if good.size:
            watermark.arrived = max(watermark.arrived, int(kafka_ms[good].max()))
        for begin, inside in _by_start(start[good], good):
            key = PaneKey("pane", name, begin)
            pane = self.panes.get(key)
            if pane is None:
                first = messages[batches.index[inside[0]]].offset()
                pane = self.panes[key] = Pane(metric, first, metric.zero(), seen[begin])
            pane.add(batches, inside)
            pane.note(uses.get(begin, {}))
        refusals = []
        for row in np.flatnonzero(refused).tolist():
            error = self._misplaced(
                metric,
                int(time[row]),
                int(kafka_ms[row]),
                int(start[row]),
                batches.ids[row],
                verdict.passed.get(row),
            )
            message, reports = messages[batches.index[row]], batches.size(row)
            if row in verdict.over:
                error = _over_limit(metric, int(start[row]), verdict.over[row], reports)
            refusals.append(Rejection(message, error.reason, error.detail, metric.name, reports))
        return refusals

    def _open(self, name: str, start: Integers) -> dict[int, Pane]:
        """Return the open panes of a key that begin at these times."""
        found = {begin: self.panes.get(PaneKey("pane", name, begin)) for begin in _different(start)}
        return {begin: pane for begin, pane in found.items() if pane is not None}

    def _misplaced(
        self,
        metric: Metric,
        time: int,
        kafka_ms: int,
        start: int,
        batch_id: bytes,
        passed: int | None,
    ) -> ReportError:
        """Return why a batch that is well made was not counted; `passed` if it is late."""
        if time < 0:
            return ReportError("bad_time", f"event time {shown(time)} is before the epoch")
        if time > kafka_ms + self.future_ms:
            return ReportError(
                "future",
                f"event time {shown(time)} is {time - kafka_ms} ms ahead of Kafka's timestamp: "
                f"at most {self.future_ms} ms are allowed; the device's clock is wrong",
            )
        if time < kafka_ms - self.past_ms:
            return ReportError(
                "too_old",
                f"event time {shown(time)} is {(kafka_ms - time) / DAY_MS:,.1f} days before "
                f"Kafka's timestamp: at most {self.past_ms / DAY_MS:,.1f} are allowed "
                "(aggregate.past)",
            )
        if passed is not None:
            return ReportError(
                "late",
                f"the pane that begins at {shown(start)} was closed when event time reached "
                f"{shown(passed)}: {metric.name} allows a lateness of {metric.lateness}",
            )
        return ReportError("duplicate", f"batch {batch_id.hex()} was counted before")

    def _close(self) -> None:
        """Close the panes that the watermark has left behind, adding them to the coarser ones."""
        for key, pane in list(self.panes.items()):
            if key.grain == "pane" and not pane.closed and self._is_over(key, pane):
                pane.closed = pane.changed = True
                for coarser in rollups(pane.metric, key):
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
        return key.start + width <= self.watermarks[key.metric].closed

    def saved(self) -> dict[PaneKey, Pane]:
        """Mark the state as committed; evict and return the closed panes."""
        self.unsaved = 0
        self.arrivals = array("q")
        for pane in self.panes.values():
            pane.changed = False
            pane.unsaved.clear()
            pane.unsaved_keys.clear()
        closed = {key: pane for key, pane in self.panes.items() if pane.closed}
        for key in closed:
            del self.panes[key]
        return closed

    def restore(
        self, key: PaneKey, first_offset: int, statistic: bytes, seen: set[bytes], used: Uses
    ) -> None:
        """Take an open pane over from the store; one of a metric that is gone is left alone."""
        metric = self.metrics.get(key.metric.partition("@")[0])
        if metric is not None and key.metric in self._keys[metric.name]:
            vector = np.frombuffer(statistic, dtype="<i8").astype(np.int64)
            self.panes[key] = Pane(metric, first_offset, vector, seen, used=used, changed=False)


def _judge(
    metric: Metric,
    ids: list[bytes],
    reached: Integers,
    start: Integers,
    wrong: NDArray[np.bool_],
    beats: NDArray[np.bool_],
    watermark: Watermark,
    seen: defaultdict[int, set[bytes]],
) -> Verdict:
    """Judge batches that have no limit, all at once, and move the watermark by those that count.

    The ids of these are added to `seen`.
    """
    timely = ~(wrong | beats)
    repeated = _claim(ids, start, timely, seen)
    moving = ~(wrong | repeated)
    late = _late(metric, reached, start, timely, moving, watermark)
    passed = {}
    if late.any():
        moving &= ~late
        along = watermark.along(reached[moving])
        before = np.cumsum(moving)
        for row in np.flatnonzero(late).tolist():
            passed[row] = int(along[before[row]])
            if not repeated[row]:
                seen[int(start[row])].discard(ids[row])
    watermark.take_all(reached[moving])
    return Verdict(late, repeated, passed)


def _late(
    metric: Metric,
    reached: Integers,
    start: Integers,
    timely: NDArray[np.bool_],
    moving: NDArray[np.bool_],
    watermark: Watermark,
) -> NDArray[np.bool_]:
    """Return which batches come after the watermark has closed their pane.

    The oldest pane first: whether it closes depends on no batch of a later one being late.
    """
    late = timely & (start + metric.pane_ms <= watermark.closed)
    open_still = timely & ~late
    if metric.hold_open or not open_still.any():
        return late
    latest = max(watermark.latest, int(reached[moving].max(initial=NEVER)))
    for begin in _different(start[open_still]):
        close = begin + metric.pane_ms + metric.lateness_ms
        rows = np.flatnonzero(moving & ~late)
        place = None if latest < close else watermark.reaches(close, reached[rows])
        if place is None:
            break
        inside = np.flatnonzero(open_still & (start == begin))
        late[inside[inside > rows[place]]] = True
    return late


def _claim(
    ids: list[bytes],
    start: Integers,
    timely: NDArray[np.bool_],
    seen: defaultdict[int, set[bytes]],
) -> NDArray[np.bool_]:
    """Add ids to those seen in their panes; return which were there, or come a second time."""
    repeated = np.zeros(len(ids), dtype=np.bool_)
    rows = np.flatnonzero(timely)
    for begin, inside in _by_start(start[rows], rows):
        there, new = seen[begin], _chosen(ids, inside)
        if there.isdisjoint(new):
            before = len(there)
            there.update(new)
            if len(there) == before + len(new):
                continue
            there.difference_update(new)
        for row, identity in zip(inside.tolist(), new, strict=True):
            repeated[row] = identity in there
            there.add(identity)
    return repeated


def _chosen(ids: list[bytes], which: NDArray[np.intp]) -> list[bytes]:
    """Return the ids of some rows, ascending; mostly of all."""
    return ids if which.size == len(ids) else [ids[row] for row in which.tolist()]


def _by_start(start: Integers, rows: NDArray[np.intp]) -> list[tuple[int, NDArray[np.intp]]]:
    """Return the rows of each start, in their order; mostly there is one start."""
    if start.size and (start == start[0]).all():
        return [(int(start[0]), rows)]
    order = np.argsort(start, kind="stable")
    first = np.flatnonzero(np.diff(start[order], prepend=-1))
    starts = start[order][first].tolist()
    return list(zip(starts, np.split(rows[order], first[1:]), strict=False))


def _different(times: Integers) -> list[int]:
    """Return the different ones, ascending; mostly there is one."""
    if times.size and (times == times[0]).all():
        return [int(times[0])]
    return sorted(set(times.tolist()))


def _joined(parts: list[bytes]) -> bytes:
    """Return the parts as one, a single one as it is."""
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _over_limit(metric: Metric, start: int, counted: int, reports: int) -> ReportError:
    return ReportError(
        "over_limit",
        f"{reports} more reports of a key that has {counted} in the pane that begins at "
        f"{shown(start)}: {metric.name} allows {metric.max_key_reports} (max_key_reports)",
    )
