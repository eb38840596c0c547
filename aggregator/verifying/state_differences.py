"""Compares a partition's stored snapshot with a replay of its log, byte by byte."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aggregator.counting.continuity import VANISHED_FIELD, Mark, is_another
from aggregator.errors import StateUnreadable
from aggregator.kafka.log_ends import LogEnds
from aggregator.kafka.obstacles import SKIPPED_FIELD, skipped_spans
from aggregator.size_pieces import pieces
from aggregator.state.definition_history import CountingDefinitions
from aggregator.state.pane import Pane
from aggregator.state.pane_keys import PaneKey, counted_metric, describe, retention_ms, width_ms
from aggregator.state.slice_tables import describe_difference, empty_chunk
from aggregator.state.watermark import Watermark
from aggregator.storage import parsing
from aggregator.storage.progress import UNSET
from aggregator.storage.snapshot import Snapshot
from aggregator.storage.store import Store
from aggregator.verifying.log_replay import LogReplay
from estimators import TrustedMetric

EXPIRY_SLACK_MS = 60_000
"""The largest assumed difference between Redis's clock and the verifier's."""
NOT_COMPARED = (
    *("epoch", "token", "worker", "group", "deployment", "updated", "halted", "unusable"),
    *("recount", "vanished", "measured", "refused"),
)
"""Fields of the owner's hash that the log does not determine: who counted, when, and with which
measurements and decisions. It does not determine the lifetime of `P:committed` either."""
LOG_FACTS = ("last", "high", "committed")
"""Fields that the present log determines, even if an earlier log was counted before it."""
READ_BYTES = 2**22
"""The most bytes of closed panes that are read together, and that Redis must buffer."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """A value for which the store differs from the log."""

    partition: int
    where: str  # the pane or counter in words, with its key
    detail: str

    def __str__(self) -> str:
        """Return the difference as a line of text."""
        return f"partition {self.partition}: {self.where}: {self.detail}"


@dataclasses.dataclass
class Verification:
    """The outcome of a replay."""

    partitions: int = 0
    messages: int = 0
    panes: int = 0
    differences: list[Difference] = dataclasses.field(default_factory=list)
    # Values whose reports are not all in the log.
    unverifiable: list[Difference] = dataclasses.field(default_factory=list)
    # Logs without a state, messages before the first counted offset, lost definitions.
    unjudged: list[Difference] = dataclasses.field(default_factory=list)
    uncounted: dict[int, int] = dataclasses.field(default_factory=dict)  # messages by partition
    halted: dict[int, str] = dataclasses.field(default_factory=dict)  # reasons by partition
    skipped: dict[int, str] = dataclasses.field(default_factory=dict)  # offsets by partition
    # Digests, in the order of their use.
    definitions: list[str] = dataclasses.field(default_factory=list)

    @property
    def verified(self) -> bool:
        """Whether the log proves everything in the store."""
        return not (self.differences or self.unverifiable or self.unjudged)

    def differ(self, number: int, where: str, detail: str) -> None:
        """Record a difference.

        `number`: the partition; `where`: the pane or counter; `detail`: the difference in words.
        """
        self.differences.append(Difference(number, where, detail))

    def leave_unjudged(self, number: int, where: str, detail: str) -> None:
        """Record values that cannot be judged.

        `number`: the partition; `where`: which values; `detail`: why they cannot be judged.
        """
        self.unjudged.append(Difference(number, where, detail))

    def compare_topic(
        self, number: int, snapshot: Snapshot, ids: Mapping[str, str], partitions: int
    ) -> None:
        """Record a difference if the sums of a partition come from another topic.

        `number`: the partition; `snapshot`: the partition's stored state; `ids`: the ids of the
        cluster and the topic in Kafka by the owner's field, "" if unknown; `partitions`: the
        topic's number of partitions.
        """
        owner = snapshot.owner
        for field, current_id in ids.items():
            if is_another(owner.get(field, ""), current_id):
                self.differ(number, field, f"{owner[field]} in the store, {current_id} in Kafka")
        if (stated := int(owner.get("partitions", 0))) > partitions:
            self.differ(number, "partitions", f"{stated} in the store, {partitions} in Kafka")

    def compare_end(self, number: int, snapshot: Snapshot, log: LogEnds) -> None:
        """Record what the store has not counted of a partition's log, its halt and its skips.

        `number`: the partition; `snapshot`: the partition's stored state; `log`: the log's ends,
        read before the state.
        """
        if why := snapshot.owner.get("halted"):
            self.halted[number] = why
        if passed := skipped_spans(snapshot.owner):
            self.skipped[number] = snapshot.owner[SKIPPED_FIELD]
            offsets = sum(last + 1 - first for first, last in passed)
            if offsets > (gap := int(snapshot.owner.get("gap", 0))):
                detail = f"Redis has {offsets} offsets as skipped, and {gap} as lost"
                self.differ(number, "skipped offsets", detail)
        first_replayed, low = int(snapshot.owner.get("begin", 0)), log.ranges.get(number, (0, 0))[0]
        if snapshot.next_offset != UNSET and first_replayed > low:
            detail = (
                f"in the log, and Redis says that counting began at offset {first_replayed}: it is "
                "unknown whether they were counted"
            )
            self.leave_unjudged(number, f"offsets {low} to {first_replayed - 1}", detail)
        if not (lag := log.lag(number, snapshot.next_offset)):
            return
        self.uncounted[number] = lag
        if snapshot.next_offset == UNSET:
            detail = (
                f"no state in Redis, although its log has {lag} messages: start a worker to count "
                "them"
            )
            self.leave_unjudged(number, "everything", detail)


class PartitionComparison:
    """Compares the state of one partition.

    Parameters
    ----------
    stored : mapping of PaneKey to int
        The indexed panes with their first offsets, read before the snapshot.
    definitions : iterable of CountingDefinitions
        All definitions that were ever in force; panes of other definitions are not compared.
    outcome : Verification
        Receives the differences.
    """

    def __init__(
        self,
        store: Store,
        number: int,
        stored: Mapping[PaneKey, int],
        definitions: Iterable[CountingDefinitions],
        replay: LogReplay,
        outcome: Verification,
    ) -> None:
        self._store, self._number, self._outcome = store, number, outcome
        self._replay, self._snapshot, self._panes = replay, replay.snapshot, replay.panes
        tables = [definition.metrics for definition in definitions]
        self._metrics = {
            key: metric
            for key in {key.metric for key in stored}
            for metrics in tables
            if (metric := counted_metric(metrics, key)) is not None
        }
        self._stored = {k: first for k, first in stored.items() if k.metric in self._metrics}
        self._unjudged = {key.metric for key in stored} - self._metrics.keys()
        self._vanished = int(self._snapshot.owner.get(VANISHED_FIELD, 0))

    def run(self) -> None:
        """Compare everything, and record each difference."""
        self._outcome.partitions += 1
        self._outcome.messages += self._replay.messages
        self._compare_owner()
        self._compare_panes()
        self._compare_open()
        if self._vanished or (self._replay.is_truncated and self._must_report_truncation):
            for where in ("counts", "watermarks"):
                self._add_doubt(where, self._truncation)
        elif not (self._replay.is_truncated or self._unjudged):
            self._compare_counters()
        if self._unjudged and not self._replay.is_truncated:
            detail = "in the store under a definition that no offset of the log was counted by"
            self._add_doubt(", ".join(sorted(self._unjudged)), detail)

    @property
    def _must_report_truncation(self) -> bool:
        """Whether the comparison has to report that the log begins too late."""
        return self._replay.judged_from < self._replay.begin

    @property
    def _truncation(self) -> str:
        if self._vanished:
            return f"{self._vanished} counted messages were in an earlier log, which is gone"
        first_replayed = self._replay.begin
        return (
            f"some of its reports are no longer in the log, which begins at offset {first_replayed}"
        )

    def _is_whole(self, key: PaneKey) -> bool:
        """Return whether the replayed part of the log has all reports of a stored pane."""
        if not self._replay.is_truncated:
            return True
        return key.grain == "pane" and self._stored.get(key, -1) >= self._replay.begin

    def _is_open(self, key: PaneKey) -> bool:
        """Return whether a pane cannot have been closed, so that none of its reports was late."""
        watermark = self._snapshot.watermarks.get(key.question)
        end = key.start + width_ms(key.grain, self._panes[key].metric)
        return watermark is None or end > watermark.closed

    def _compare_owner(self) -> None:
        """Compare the owner's facts with the log, and check the mark of the last commit."""
        owner, replay = self._snapshot.owner, self._replay
        last = Mark.parse(stored) if (stored := owner.get("last", "")) else None
        is_replayed = last is None or last.offset >= replay.begin
        if stored and is_replayed and stored != str(replay.last or ""):
            self._add_difference("last", f"{stored} in the store, {replay.last} in the log")
        if int(owner.get("high", 0)) > replay.end:
            self._add_difference(
                "high", f"{owner['high']} in the store, but the log ends at {replay.end}"
            )
        (mark,) = self._store.ask([("GET", f"{self._snapshot.prefix}:committed")])
        if mark not in (None, b"1"):
            self._add_difference("committed", f"{mark!r}: expected b'1'")

    def _add_difference(self, where: PaneKey | str, detail: str) -> None:
        """Record a difference, as unverifiable if reports of an earlier log may explain it."""
        if self._vanished and where not in LOG_FACTS:
            self._add_doubt(where, f"{detail}; {self._truncation}")
        else:
            self._outcome.differences.append(self._difference(where, detail))

    def _add_doubt(self, where: PaneKey | str, detail: str) -> None:
        self._outcome.unverifiable.append(self._difference(where, detail))

    def _difference(self, where: PaneKey | str, detail: str) -> Difference:
        shown = describe(where) if isinstance(where, PaneKey) else where
        return Difference(self._number, shown, detail)

    def _compare_panes(self) -> None:
        replayed, stored = self._panes, self._stored
        if self._replay.is_truncated:
            stored = {}
            for key, first in self._stored.items():
                if self._is_whole(key):
                    stored[key] = first
                elif self._must_report_truncation:
                    self._add_doubt(key, self._truncation)
            self._check_present(sorted(self._stored.keys() - stored.keys()))
            replayed = self._comparable(replayed, stored)
        for key in sorted(stored.keys() - replayed.keys()):
            self._add_difference(key, "in the store, but no report of it in the log")
        if replayed.keys() - stored.keys():  # panes that were opened meanwhile are stored by now
            indexed_panes = stored_panes(self._store, self._number)
            for key in sorted(replayed.keys() - indexed_panes.keys()):
                self._add_difference(key, "missing in its index: readers leave it out")
        for key in sorted(stored.keys() & replayed.keys()):
            self._compare_first(key, stored[key])
        keys = sorted(replayed)
        self._outcome.panes += len(keys)
        for key, stored_bytes in zip(keys, self._stored_statistics(keys), strict=True):
            self._compare_pane(key, replayed[key], stored_bytes)

    def _compare_first(self, key: PaneKey, stored: int) -> None:
        replayed = self._panes[key].first_offset
        if stored != replayed:
            self._add_difference(
                key, f"opened at offset {stored} by the store, at {replayed} by the log"
            )

    def _check_present(self, keys: list[PaneKey]) -> None:
        """Record the panes that cannot be compared and have no readable statistic."""
        panes = self._store.panes
        for key, stored_bytes in zip(keys, self._stored_statistics(keys), strict=True):
            metric, redis_key = self._metrics[key.metric], f"{self._snapshot.prefix}:{key}"
            if stored_bytes:
                try:
                    parsing.pane(redis_key, key, stored_bytes, metric)
                except StateUnreadable as error:
                    self._add_difference(key, error.fact)
            elif stored_bytes is not None or not panes.may_expire(self._number, key, metric):
                self._add_difference(key, "missing in the store")

    def _comparable(
        self, replayed: Mapping[PaneKey, Pane], stored: Mapping[PaneKey, int]
    ) -> dict[PaneKey, Pane]:
        """Return the replayed panes that can be compared although the log's beginning is missing.

        A replayed pane that the index lacks is included, so that it is found to differ, if it must
        still be open. If it may have been closed, all its reports may have been late. Only the
        deleted messages could tell, so the pane is noted as doubtful and omitted.
        """
        certain = {}
        for key, pane in replayed.items():
            if key in stored or (
                key not in self._stored and key.grain == "pane" and self._is_open(key)
            ):
                certain[key] = pane
            elif key not in self._stored:
                detail = (
                    f"in the log, which begins at offset {self._replay.begin}, and in no index: "
                    "deleted messages would tell whether all of it was late"
                )
                self._add_doubt(key, detail)
        return certain

    def _stored_statistics(self, keys: list[PaneKey]) -> Iterator[bytes | None]:
        """Yield the stored statistics: open panes from the snapshot, closed panes from Redis."""
        open_panes = self._snapshot.open
        for keys_together in pieces(keys, self._size, READ_BYTES):
            closed = [(self._number, key) for key in keys_together if key not in open_panes]
            statistics = iter(self._store.panes.statistics(closed))
            for key in keys_together:
                yield (open_panes[key].statistic or b"") if key in open_panes else next(statistics)

    def _size(self, key: PaneKey) -> int:
        metric = self._panes[key].metric if key in self._panes else self._metrics[key.metric]
        return metric.zero().nbytes if key.chunk is None else empty_chunk(metric).nbytes

    def _compare_pane(self, key: PaneKey, pane: Pane, stored_bytes: bytes | None) -> None:
        expected = bytes(pane.encode(key.chunk))
        if stored_bytes == expected or (not stored_bytes and self._is_expired(key, pane)):
            return
        if not stored_bytes:
            detail = f"missing in the store; the log has {_reports(pane, pane.statistic)} reports"
        elif key.chunk is not None:
            detail = describe_difference(key.chunk, stored_bytes, pane.statistic, pane.metric)
        elif len(stored_bytes) != len(expected):
            detail = f"{len(stored_bytes)} bytes in the store, {len(expected)} from the log"
        else:
            stored, replayed = (np.frombuffer(sums, "<i8") for sums in (stored_bytes, expected))
            cells = np.flatnonzero(stored != replayed)
            first = int(cells[0])
            level, cell = divmod(first, pane.metric.randomizer.columns)
            values = f"stored {stored[first]}, replayed {replayed[first]} "
            if isinstance(pane.metric, TrustedMetric):  # sums of true values stay secret
                values = ""
            detail = (
                f"{len(cells)} cells differ, the first at level {level}, cell {cell}: {values}"
                f"({_reports(pane, stored)} and {_reports(pane, pane.statistic)} reports in all)"
            )
        self._add_difference(key, detail)

    def _is_expired(self, key: PaneKey, pane: Pane) -> bool:
        pane_retention_ms = retention_ms(key.grain, pane.metric)
        if pane_retention_ms is None or key not in self._replay.closed:
            return False
        expires = self._replay.closed[key][1] + pane_retention_ms
        return expires <= time.time() * 1000 + EXPIRY_SLACK_MS

    def _compare_open(self) -> None:
        """Compare the open panes, and the batches and keys counted in them."""
        open_panes = {key: pane for key, pane in self._panes.items() if not pane.closed}
        for key in sorted(open_panes.keys() - self._snapshot.open.keys()):
            is_total = key.grain != "pane" and key in self._stored and self._is_open(key)
            if (self._is_whole(key) or is_total) and self._is_open(key):
                self._add_difference(key, "not among the open panes: running totals lack it")
        for key, stored in self._snapshot.open.items():
            pane = self._replay.state.panes.get(key)
            if pane is None or not self._is_whole(key):
                continue
            if stored.first_offset != self._stored.get(key):
                self._compare_first(key, stored.first_offset)
            if pane.batch_ids != stored.ids:
                ids, replayed = len(stored.ids), len(pane.batch_ids)
                self._add_difference(key, f"{ids} batch ids in the store, {replayed} from the log")
            if pane.used != (used := stored.used):
                keys = sum(used.get(k) != pane.used.get(k) for k in used.keys() | pane.used.keys())
                self._add_difference(
                    key,
                    f"{keys} message keys have other numbers of reports in the store than in the "
                    f"log ({len(used)} and {len(pane.used)} keys)",
                )

    def _compare_counters(self) -> None:
        for name in sorted(self._snapshot.counts.keys() | self._replay.state.counts.keys()):
            counts = self._snapshot.counts, self._replay.state.counts
            stored, replayed = (outcomes.get(name, 0) for outcomes in counts)
            if stored != replayed:
                self._add_difference(f"count {name}", f"stored {stored}, replayed {replayed}")
        marks, stored_marks = (
            {k: v for k, v in watermarks.items() if v != Watermark()}  # none if all was refused
            for watermarks in (self._replay.state.watermarks, self._snapshot.watermarks)
        )
        if marks != stored_marks:
            self._add_difference(
                "watermarks", f"stored {_text(stored_marks)}, replayed {_text(marks)}"
            )


def stored_panes(store: Store, number: int) -> dict[PaneKey, int]:
    """Return the indexed panes of a partition, each with its first offset."""
    first_offsets: dict[PaneKey, int] = {}
    for grain, metric in store.panes.indexed(number):
        panes = store.panes.starts(number, grain, metric)
        first_offsets |= {PaneKey(grain, metric, start): first for start, first in panes.items()}
    return first_offsets


def _reports(pane: Pane, statistic: NDArray[np.int64]) -> int:
    rows = statistic.astype(np.int64).reshape(-1, pane.metric.zero().size)
    return sum(int(pane.metric.counts(row).sum()) for row in rows)


def _text(marks: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {mark}" for name, mark in sorted(marks.items()))
