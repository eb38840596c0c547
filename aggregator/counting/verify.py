"""Proof of the sums: replay the log and compare the state byte by byte."""

from __future__ import annotations

import dataclasses
import datetime
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from confluent_kafka import OFFSET_INVALID, Consumer, KafkaError, KafkaException, TopicPartition

from aggregator.config.settings import Settings
from aggregator.errors import DitherError, StateUnreadable
from aggregator.kafka import clients, worker_clients
from aggregator.kafka.log_ends import LogEnds
from aggregator.kafka.obstacles import between, is_of_data, spans
from aggregator.state.admission import ANY_AGE
from aggregator.state.definition_history import Definitions, in_force, rules
from aggregator.state.pane import Pane
from aggregator.state.pane_keys import PaneKey, counted_keys
from aggregator.state.partition import Partition
from aggregator.storage.progress import TORN, UNSET
from aggregator.storage.redis_keys import definitions_key, partitions_key
from aggregator.storage.snapshot import Snapshot
from aggregator.storage.store import Store
from estimators import Metric, TrustedMetric
from estimators.durations import milliseconds

CONSUME_MESSAGES = 10_000
CONSUME_SECONDS = 0.5
SILENCE_SECONDS = 60.0
EXPIRY_SLACK_MS = 600_000
"""A pane's expiry follows its closing commit, which a replay knows to within a commit."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """A place where the store is not what the log says.

    Attributes
    ----------
    partition : int
    where : str
        The pane (or counter) in words, with its key.
    detail : str
    """

    partition: int
    where: str
    detail: str

    def __str__(self) -> str:
        """Return it as one line."""
        return f"partition {self.partition}: {self.where}: {self.detail}"


@dataclasses.dataclass
class Verification:
    """The outcome of a replay.

    Attributes
    ----------
    partitions, messages, panes : int
        What was replayed and compared.
    differences : list of Difference
    unverifiable : list of Difference
        Panes whose reports are no longer all in the log.
    unjudged : list of Difference
        Partitions that have messages in their log, and no state; and messages whose definitions are
        lost.
    uncounted : dict of int to int
        By partition, how many messages of the log were not counted yet.
    halted : dict of int to str
        By partition, why nothing more of it is counted.
    definitions : list of str
        Digests of the definitions by which messages were judged, in the order of their use: those
        that were in force when the messages were counted.
    """

    partitions: int = 0
    messages: int = 0
    panes: int = 0
    differences: list[Difference] = dataclasses.field(default_factory=list)
    unverifiable: list[Difference] = dataclasses.field(default_factory=list)
    unjudged: list[Difference] = dataclasses.field(default_factory=list)
    uncounted: dict[int, int] = dataclasses.field(default_factory=dict)
    halted: dict[int, str] = dataclasses.field(default_factory=dict)
    definitions: list[str] = dataclasses.field(default_factory=list)

    @property
    def verified(self) -> bool:
        """Whether everything in the store was proved from the log."""
        return not (self.differences or self.unverifiable or self.unjudged)

    def compare_end(self, number: int, snapshot: Snapshot, log: LogEnds) -> None:
        """Note what a partition's log has, and the store has not counted."""
        if why := snapshot.owner.get("halted"):
            self.halted[number] = why
        if not (lag := log.lag(number, snapshot.next_offset)):
            return
        self.uncounted[number] = lag
        if snapshot.next_offset == UNSET:
            detail = (
                f"no state in Redis, though its log has {lag} messages: a worker that runs counts "
                "them"
            )
            self.unjudged.append(Difference(number, "everything", detail))


def verify(
    settings: Settings,
    metrics: Mapping[str, Metric],
    store: Store,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Verification:
    """Replay every partition's log up to its committed offset and compare the state.

    Parameters
    ----------
    progress : callable
        Called with a partition and the offset reached in it.

    Returns
    -------
    Verification
        Safe beside running workers: a partition's open state is read in one piece first.
    """
    outcome = Verification()
    given = Definitions(metrics, rules(settings.aggregate))
    # Questions queue behind a fetch that waits: it must not wait long.
    quick = {"fetch.wait.max.ms": 10, "enable.partition.eof": True}
    consumer = clients.consumer(settings, f"dither-verify-{uuid.uuid4()}", **quick)
    try:
        listed = store.partitions()
        log = _log_ends(consumer, settings.topics.reports)  # before the state: no lag that is none
        for number in sorted({*listed, *log.ranges}):
            try:
                stored = _stored_panes(store, number)  # before the snapshot: all in it are replayed
                snapshot = store.partition.snapshot(number)
                begin, history, lost = _history(store, snapshot, given)
            except StateUnreadable as error:
                outcome.differences.append(Difference(number, "everything", str(error)))
                continue
            outcome.compare_end(number, snapshot, log)
            if snapshot.next_offset == TORN:
                why = snapshot.owner.get("halted") or "a commit was applied by half"
                outcome.differences.append(Difference(number, "everything", why))
            elif snapshot.next_offset != UNSET:
                if number not in listed:
                    detail = f"not among {partitions_key(store.topic)}: readers leave it out"
                    outcome.differences.append(Difference(number, "everything", detail))
                digests = [one.digest for _, one in history]
                outcome.definitions += [d for d in digests if d not in outcome.definitions]
                low = log.ranges.get(number, (0, 0))[0]
                if lost and begin > low:
                    detail = _lost(store.topic, lost, low, begin, bool(history))
                    outcome.unjudged.append(Difference(number, "everything", detail))
                if history:
                    replay = _Replay(settings, history, store, number, stored, snapshot, outcome)
                    replay.run(consumer, progress, begin)
    finally:
        consumer.close()
    return outcome


class _Replay:
    """The replay of one partition."""

    def __init__(
        self,
        settings: Settings,
        history: Sequence[tuple[int, Definitions]],
        store: Store,
        number: int,
        stored: Mapping[PaneKey, int],
        snapshot: Snapshot,
        outcome: Verification,
    ) -> None:
        self.store, self.number, self.snapshot, self.outcome = store, number, snapshot, outcome
        self.topic = settings.topics.reports
        metrics = [metric for _, one in history for metric in one.metrics.values()]
        self.keys = {key for metric in metrics for key in counted_keys(metric)}
        self.history = deque(history)
        self.state = _start(self.history.popleft()[1])
        self.left: dict[PaneKey, Pane] = {}
        self.stored = {key: first for key, first in stored.items() if key.metric in self.keys}
        self.has_older = len(self.stored) < len(stored)
        self.closed: dict[PaneKey, tuple[Pane, int]] = {}
        self.log_begins = 0

    def run(
        self, consumer: Consumer, progress: Callable[[int, int], None], judged_from: int
    ) -> None:
        """Replay and compare what came from an offset on, of which the definitions are known."""
        begin = int(self.snapshot.owner.get("begin", 0))
        position = TopicPartition(self.topic, self.number)
        low, _ = consumer.get_watermark_offsets(position, timeout=clients.ANSWER_SECONDS)
        self.log_begins = max(low, begin, judged_from)
        self.state.next_offset = self.log_begins
        truncated = self.log_begins > begin
        for messages in self._log(consumer, progress):
            self.outcome.messages += len(messages)
            for part in self._by_definitions(messages):
                self.state.count(part)
                for key, pane in self.state.saved().items():
                    expires = self.state.watermarks[key.metric].arrived
                    self.closed[key] = (pane, expires)
        self._redefine(self.snapshot.next_offset)
        self.outcome.partitions += 1
        self._compare_panes(truncated, is_told=judged_from >= self.log_begins)
        if not truncated:
            self._compare_seen()
            self._compare_counters()

    def _by_definitions(self, messages: list[Any]) -> Iterator[list[Any]]:
        """Yield messages in parts, the state being that of the definitions of each part's time."""
        while self.history and _offset(messages[-1]) >= self.history[0][0]:
            before = [m for m in messages if _offset(m) < self.history[0][0]]
            if before:
                yield before
            messages = messages[len(before) :]
            self._redefine(self.history[0][0])
        yield messages

    def _redefine(self, offset: int) -> None:
        """Go on by the definitions in force at an offset, as a worker does that reloads them."""
        while self.history and self.history[0][0] <= offset:
            state, definitions = self.state, self.history.popleft()[1]
            self.left |= state.panes
            self.state = _start(definitions)
            self.state.next_offset = state.next_offset
            self.state.watermarks.update(state.watermarks)
            self.state.counts.update(state.counts)
            for key in [*self.left]:
                metric = definitions.metrics.get(key.metric.partition("@")[0])
                if metric is not None and key.metric in counted_keys(metric):
                    self.state.panes[key] = dataclasses.replace(self.left.pop(key), metric=metric)

    def _log(self, consumer: Consumer, progress: Callable[[int, int], None]) -> Iterator[list[Any]]:
        passed = spans(self.snapshot.owner)
        for start, stop in between(self.state.next_offset, self.snapshot.next_offset, passed):
            yield from self._stretch(consumer, progress, start, stop)
        consumer.unassign()

    def _stretch(
        self, consumer: Consumer, progress: Callable[[int, int], None], start: int, end: int
    ) -> Iterator[list[Any]]:
        """Yield the messages in [start, end); what stands behind may be unreadable."""
        here = TopicPartition(self.topic, self.number, start)
        consumer.assign([here])
        heard = time.monotonic()
        reached = start
        while reached < end:
            wanted = min(CONSUME_MESSAGES, end - reached)
            messages = consumer.consume(wanted, timeout=CONSUME_SECONDS)
            is_over = False
            for message in messages:
                error = message.error()
                if error is None or error.code() == KafkaError._PARTITION_EOF:
                    continue
                if not is_of_data(error, message.offset()) or _offset(message) < end:
                    raise KafkaException(error)
                is_over = True  # it comes behind all that can be read
            good = [m for m in messages if m.error() is None and _offset(m) < end]
            if good:
                heard = time.monotonic()
                yield good
            position = consumer.position([here])[0].offset
            reached = max(reached, position if position != OFFSET_INVALID else 0)
            reached = end if is_over else reached
            reached = max(reached, worker_clients.ends(messages).get(self.number, 0))
            progress(self.number, min(reached, end))
            if time.monotonic() - heard > SILENCE_SECONDS:
                raise DitherError(
                    f"partition {self.number}: the log gave nothing for {SILENCE_SECONDS:g} s at "
                    f"offset {reached}, and the state stands at {end}"
                )

    def _compare_panes(self, truncated: bool, is_told: bool) -> None:
        closed = {key: pane for key, (pane, _) in self.closed.items()}
        replayed = self.left | closed | self.state.panes
        stored = self.stored
        if truncated:
            for key, first in stored.items():
                if not is_told and (key.grain != "pane" or first < self.log_begins):
                    self._note(
                        self.outcome.unverifiable,
                        key,
                        f"its reports are no longer all in the log, which begins at offset "
                        f"{self.log_begins}",
                    )
            stored = {
                key: first
                for key, first in stored.items()
                if key.grain == "pane" and first >= self.log_begins
            }
            replayed = {key: pane for key, pane in replayed.items() if key in stored}
        for key in sorted(stored.keys() - replayed.keys()):
            self._note(
                self.outcome.differences, key, "in the store, but no report of it in the log"
            )
        if replayed.keys() - stored.keys():  # what was opened meanwhile is there by now
            known = _stored_panes(self.store, self.number)
            for key in sorted(replayed.keys() - known.keys()):
                detail = "missing in its index: readers leave it out"
                self._note(self.outcome.differences, key, detail)
        keys = sorted(replayed)
        self.outcome.panes += len(keys)
        for key, found in zip(keys, self._stored(keys), strict=True):
            self._compare(key, replayed[key], found)

    def _stored(self, keys: list[PaneKey]) -> list[bytes | None]:
        """Return what the store has: open panes as of the snapshot, closed ones as they are."""
        closed = [key for key in keys if key not in self.snapshot.open]
        found = self.store.panes.statistics([(self.number, key) for key in closed])
        values = dict(zip(closed, found, strict=True))
        return [
            self.snapshot.open[key][1] if key in self.snapshot.open else values[key] for key in keys
        ]

    def _compare(self, key: PaneKey, pane: Pane, found: bytes | None) -> None:
        expected = pane.statistic.astype("<i8").tobytes()
        if found == expected or (not found and self._is_expired(key, pane)):
            return
        if not found:
            detail = f"missing in the store; the log has {_reports(pane, expected)} reports"
        elif len(found) != len(expected):
            detail = f"{len(found)} bytes in the store, {len(expected)} from the log"
        else:
            cells = np.flatnonzero(np.frombuffer(found, "<i8") != np.frombuffer(expected, "<i8"))
            first = int(cells[0])
            level, cell = divmod(first, pane.metric.randomizer.columns)
            values = (
                f"stored {np.frombuffer(found, '<i8')[first]}, "
                f"replayed {np.frombuffer(expected, '<i8')[first]} "
            )
            if isinstance(pane.metric, TrustedMetric):  # sums of true values are not told
                values = ""
            detail = (
                f"{len(cells)} cells differ, the first at level {level}, cell {cell}: {values}"
                f"({_reports(pane, found)} and {_reports(pane, expected)} reports in all)"
            )
        self._note(self.outcome.differences, key, detail)

    def _is_expired(self, key: PaneKey, pane: Pane) -> bool:
        if pane.metric.retention_ms is None or key not in self.closed:
            return False
        expires = self.closed[key][1] + pane.metric.retention_ms
        return expires <= time.time() * 1000 + EXPIRY_SLACK_MS

    def _compare_seen(self) -> None:
        for key, (_, _, seen) in self.snapshot.open.items():
            pane = self.state.panes.get(key)
            if pane is not None and pane.seen != seen:
                self._note(
                    self.outcome.differences,
                    key,
                    f"{len(seen)} batch ids in the store, {len(pane.seen)} from the log",
                )
            if pane is not None and pane.used != (used := self.snapshot.used.get(key, {})):
                keys = sum(used.get(k) != pane.used.get(k) for k in used.keys() | pane.used.keys())
                self._note(
                    self.outcome.differences,
                    key,
                    f"{keys} message keys have other numbers of reports in the store than in the "
                    f"log ({len(used)} and {len(pane.used)} keys)",
                )

    def _compare_counters(self) -> None:
        if self.has_older:
            return
        for name in sorted(self.snapshot.counts.keys() | self.state.counts.keys()):
            stored, replayed = self.snapshot.counts.get(name, 0), self.state.counts.get(name, 0)
            if stored != replayed:
                self.outcome.differences.append(
                    Difference(
                        self.number, f"count {name}", f"stored {stored}, replayed {replayed}"
                    )
                )
        marks, known = (
            {k: v for k, v in found.items() if v.time >= 0}  # not where all was refused
            for found in (self.state.watermarks, self.snapshot.watermarks)
        )
        if marks != known:
            self.outcome.differences.append(
                Difference(
                    self.number,
                    "watermarks",
                    f"stored {_text(known)}, replayed {_text(marks)}",
                )
            )

    def _note(self, where: list[Difference], key: PaneKey, detail: str) -> None:
        where.append(Difference(self.number, describe(key), detail))


def _history(
    store: Store, snapshot: Snapshot, given: Definitions
) -> tuple[int, list[tuple[int, Definitions]], list[str]]:
    """Return which definitions were in force in a partition; those given if none are known.

    What was counted before the first ones that are known is judged by these.

    Returns
    -------
    begin : int
        From where on all are known: 0 if none is lost.
    history : list of (int, Definitions)
        From which offset on which were in force, from there on; empty if the last ones are lost.
    lost : list of str
        Digests of those that nobody knows any more.
    """
    said = in_force(snapshot.owner)
    documents = {**store.registry.definitions(), given.digest: given.encode()}
    found: list[tuple[int, Definitions]] = []
    lost: list[str] = []
    for at, digest in said:
        try:
            found.append((at, Definitions.decode(documents[digest])))
        except (KeyError, ValueError):
            found = []
            lost.append(digest)
    if not lost:
        return 0, found or [(0, given)], []
    return found[0][0] if found else max(0, snapshot.next_offset), found, lost


def _lost(topic: str, lost: Sequence[str], low: int, begin: int, is_past: bool) -> str:
    """Return what cannot be judged without definitions, and what to do."""
    what = (
        f"offsets {low} to {begin - 1} cannot be judged: the definitions that counted them "
        f"({', '.join(lost)}) cannot be read in {definitions_key(topic)}. "
    )
    if is_past:
        return f"{what}Panes that began at offset {begin} or later are compared"
    return (
        f"{what}A worker that runs writes those in force again within a minute: start one; or name "
        "with --metrics the file that the workers use"
    )


def _start(definitions: Definitions) -> Partition:
    """Return a partition of which nothing is counted, under some definitions."""
    found = definitions.rules
    past_ms = milliseconds(found["past"]) if "past" in found else ANY_AGE
    return Partition(definitions.metrics, milliseconds(found["future"]), past_ms=past_ms)


def _stored_panes(store: Store, number: int) -> dict[PaneKey, int]:
    """Return the panes of a partition that the store knows of, and their first offsets."""
    found: dict[PaneKey, int] = {}
    for grain, metric in store.panes.indexed(number):
        panes = store.panes.starts(number, grain, metric, None, None)
        found |= {PaneKey(grain, metric, start): first for start, first in panes.items()}
    return found


def _log_ends(consumer: Consumer, topic: str) -> LogEnds:
    """Return where the log of each of a topic's partitions begins and ends now."""
    about = consumer.list_topics(topic, timeout=clients.ANSWER_SECONDS).topics[topic]
    places = [] if about.error is not None else [TopicPartition(topic, n) for n in about.partitions]
    return LogEnds(
        {
            place.partition: consumer.get_watermark_offsets(place, timeout=clients.ANSWER_SECONDS)
            for place in places
        },
        "",
    )


def _offset(message: Any) -> int:
    return int(message.offset())


def describe(key: PaneKey) -> str:
    """Return a pane in words, its key behind.

    Examples
    --------
    >>> describe(PaneKey("pane", "delay@0000001f", 1357000200000))
    'pane of delay from 2013-01-01T00:30:00Z (pane:delay@0000001f:1357000200000)'
    """
    metric = key.metric.split("@")[0]
    if key.grain == "total":
        return f"total of {metric} ({key})"
    begin = datetime.datetime.fromtimestamp(key.start / 1000, datetime.UTC)
    return f"{key.grain} of {metric} from {begin:%Y-%m-%dT%H:%M:%SZ} ({key})"


def _reports(pane: Pane, statistic: bytes) -> int:
    return int(pane.metric.counts(np.frombuffer(statistic, "<i8").astype(np.int64)).sum())


def _text(marks: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {mark}" for name, mark in sorted(marks.items()))
