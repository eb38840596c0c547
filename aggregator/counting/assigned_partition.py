"""A partition that a worker owns: its state, its troubles and halts, and its commit."""

from __future__ import annotations

import dataclasses
import functools
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import structlog

from aggregator.clock import SYSTEM_CLOCK, Clock
from aggregator.config.setting_checks import parse_skipped
from aggregator.config.settings import Aggregate, Settings
from aggregator.counting.continuity import VANISHED_FIELD, KnownProgress, Mark
from aggregator.counting.measurements import Measurements
from aggregator.counting.rejection_limits import RejectionWindow
from aggregator.counting.watchdog import Watchdog
from aggregator.kafka.headers import message_bytes
from aggregator.kafka.obstacles import SKIPPED_FIELD, Obstacle, Probe, Stall, Trouble
from aggregator.kafka.worker_clients import QUEUE_SHARE, WorkerClients
from aggregator.size_pieces import pieces
from aggregator.state.decoder import Rejection
from aggregator.state.partition import Partition
from aggregator.state.slice_tables import empty_chunk
from aggregator.storage.progress import TORN
from aggregator.storage.store import Store
from estimators import Metric
from producers.kafka.kafka_errors import describe_kafka_error

SLICE_MESSAGES, MANY_PANES, PANE_KEYS = 16_000, 10_000, 7
"""Messages are counted in slices of SLICE_MESSAGES; after MANY_PANES changed panes a commit comes
before the next slice.

Three panes a message (its own, an hour and a day) of 15 words each, and a message key of 2 words,
then fit into a commit: PANE_KEYS changed keys are as many words as a pane."""
CHANGED_SHARE = 8
"""Changes take at most 1/8 of `aggregate.memory`; with those of the last slice, at most 1/4."""
PIECE_BYTES = 8_000_000
"""The most bytes of messages that are counted together; counting takes a multiple of this
memory."""
DEFECT_NOTICE = "this is a defect of Dither: report it with the worker's log"

log = structlog.get_logger("dither.worker")


@dataclasses.dataclass(frozen=True)
class WorkerContext:
    """The settings, the store and the clients that the parts of a worker share."""

    settings: Settings
    store: Store
    name: str  # the worker's, shown as the owner of its partitions
    clients: WorkerClients
    watchdog: Watchdog
    clock: Clock


@dataclasses.dataclass
class AssignedPartition:
    """A partition that this worker owns."""

    number: int
    epoch: int  # grows with each change of owner; the store refuses older ones
    state: Partition
    committed: int  # the next offset in the store
    facts: dict[str, str | int]  # further fields to store, such as `begin`, `gap` and `last`
    settings: Aggregate = dataclasses.field(default_factory=Aggregate)
    clock: Clock = SYSTEM_CLOCK
    begin: int = 0  # the first counted offset
    measured: Measurements = dataclasses.field(default_factory=Measurements)  # over all owners
    halted: str = ""  # why nothing is counted, for a person to act on; or empty
    fences: int = 0  # how often in a row another owner has fenced this worker
    retry_at: float = 0.0
    is_fenced: bool = False
    # The messages rejected since the last commit. They become dead letters just before the next
    # one, when counting has passed them.
    rejections: list[Rejection] = dataclasses.field(default_factory=list)
    refused_bytes: int = 0
    # Recent rejections.
    refused: RejectionWindow = dataclasses.field(default_factory=RejectionWindow)
    excess: str = ""  # the limit that was reached: the next acquisition halts the partition
    must_seek: bool = False  # whether Kafka's client must be moved to the next offset
    trouble: Trouble = dataclasses.field(default_factory=Trouble)
    _expects: bool = True
    _last: Any = None

    @property
    def is_unreadable(self) -> bool:
        """Whether counting cannot continue from the stored state until a person repairs it."""
        return self.committed == TORN

    @property
    def is_counting(self) -> bool:
        """Whether messages may be counted."""
        return not (self.halted or self.is_fenced or self.trouble.is_blocked)

    @property
    def position(self) -> int:
        """The offset to fetch from."""
        return max(0, self.state.next_offset)

    @property
    def progress(self) -> tuple[KnownProgress, ...]:
        """The committed progress, in case Redis loses it; empty before the first commit."""
        if self.committed < 0:
            return ()
        topic_id, name = (str(self.facts.get(key, "")) for key in ("topic_id", "deployment"))
        vanished = int(self.facts.get(VANISHED_FIELD, 0))
        return (KnownProgress(self.begin, self.committed, topic_id, vanished, name),)

    @property
    def open_bytes(self) -> int:
        """The approximate memory that open panes and uncommitted rejections take, in bytes."""
        return self.state.open_bytes + self.refused_bytes

    @property
    def is_filled(self) -> bool:
        """Whether the changes must be committed before more is counted."""
        panes = len(self.state.changed) + self.state.changed_keys // PANE_KEYS
        max_bytes = self.settings.memory // CHANGED_SHARE
        return panes > MANY_PANES or self.state.changed_bytes > max_bytes

    @functools.cached_property
    def slice_messages(self) -> int:
        """The number of messages counted between two checks of the changes.

        In the worst case, each message opens a pane and a chunk of slices of the metric with the
        largest panes.
        """
        largest = max(map(_opened_bytes, self.state.metrics.values()), default=1)
        return max(1, min(SLICE_MESSAGES, self.settings.memory // CHANGED_SHARE // largest))

    # -- Counting -----------------------------------------------------------------------------

    def take(self, messages: Sequence[Any], watchdog: Watchdog) -> bool:
        """Count messages in log order; return whether all were counted.

        Uncounted messages are fetched again; after many changes, counting stops until a commit. If
        counting fails, the messages are fetched again and counted one by one, until a single
        message fails; the partition stops before this message.
        """
        for first in range(0, len(messages), self.slice_messages):
            if self.is_filled:
                self.must_seek = True
                return False
            part = messages[first : first + self.slice_messages]
            watchdog.enter("counting", self.number, part[0].offset())
            for piece in _pieces(part, self.trouble):
                if not self._take_piece(piece):
                    return False
            trouble = self.trouble
            if trouble.stall is not None or 0 <= trouble.suspect_until < self.state.next_offset:
                self.trouble = Trouble(culprit=trouble.culprit)
        return True

    def follows(self, first: int, last: int) -> bool:
        """Return whether messages may be counted; if they begin too late, fetch them again.

        `first`, `last`: the messages' first and last offset. Offsets have gaps (transactions,
        compaction). Only a second fetch from the expected offset tells such a gap from messages
        that were queued for an earlier assignment.
        """
        if not self.is_counting or not self._expects or last < self.state.next_offset:
            return self.is_counting
        self._expects = False
        has_jumped = first > self.state.next_offset
        self.must_seek |= has_jumped
        return not has_jumped

    def _take_piece(self, messages: Sequence[Any]) -> bool:
        first, last, culprit = messages[0].offset(), messages[-1].offset(), self.trouble.culprit
        if culprit is not None and self.state.next_offset <= culprit.first == first:
            if self._skip_named(culprit):
                return True
            self._halt_before(culprit)
            self.trouble.is_blocked = True
            return False
        try:
            self._count_messages(messages)
        except Exception as error:
            self._drop_failed(first, last, error)
            return False
        if self.excess:
            self.fence()  # drops the partition; the next acquisition halts it
            return False
        return True

    def _count_messages(self, messages: Sequence[Any]) -> None:
        """Count messages; their rejections become dead letters at the next commit.

        If too many are rejected, `excess` says so, and the uncommitted state must be dropped.
        """
        arrivals_before = len(self.state.arrivals)
        if messages[-1].offset() >= self.state.next_offset:
            self._last = messages[-1]
        rejections = self.state.count(messages)
        arrived = self.state.arrivals[arrivals_before:]
        fresh = messages[len(messages) - len(arrived) :] if rejections else ()
        index = {message.offset(): i for i, message in enumerate(fresh)}
        refused = [(index.get(r.message.offset(), 0), r.reason) for r in rejections]
        if arrived:
            self.excess = self.refused.add(arrived, refused, self.settings)
        self.rejections += rejections
        for rejection in rejections:
            self.refused_bytes += message_bytes(rejection.message)
            self.measured = self.measured.with_refusal(rejection.reason)

    def recheck_offset(self) -> None:
        """Make :meth:`follows` check the offset of the next message."""
        self._expects = True

    # -- What stops it ------------------------------------------------------------------------

    def _drop_failed(self, first: int, last: int, error: Exception) -> None:
        """Drop the uncommitted state, and narrow the search for the failing message.

        `first`, `last`: the offsets of the messages that could not be counted; `error`: why.
        """
        log_fields = {"partition": self.number, "first": first, "last": last}
        log.error("counting failed", **log_fields, stack=_stack(error))
        if first == last <= self.trouble.suspect_until:
            why = f"checking it fails ({type(error).__name__}); {DEFECT_NOTICE}"
            self.trouble.culprit = Obstacle(first, first, why)
        self.trouble.suspect_until = max(self.trouble.suspect_until, last)
        self.fence()

    def fence(self, seconds: float = 0.0) -> None:
        """Stop counting for some seconds; then the state is read from the store again."""
        self.is_fenced, self.retry_at = True, self.clock.monotonic() + seconds
        self.state.drop_panes()

    def refuse(self, excess: str) -> None:
        """Stop counting; the next acquisition halts the partition, with `excess` as its reason."""
        self.excess = excess
        self.fence()

    def block_unsendable(self, rejection: Rejection, error: Exception) -> None:
        """Stop before a message that can neither be counted nor become a dead letter.

        `rejection`: the message, and why it is refused; `error`: the error of writing it as a dead
        letter.
        """
        offset = rejection.message.offset()
        log.error("dead letter failed", partition=self.number, offset=offset, stack=_stack(error))
        why = f"its dead letter cannot be made ({type(error).__name__}); {DEFECT_NOTICE}"
        self.trouble.culprit = Obstacle(offset, offset, why)
        self.fence()

    def note_stall(self, message: Any, start_probe: Callable[[int, int], Probe]) -> None:
        """Handle an unreadable offset: skip it if the settings name it; halt if the error lasts.

        Parameters
        ----------
        message : Message
            Kafka's message that contains the error.
        start_probe : callable
            Starts the search for the end of a record batch, given partition and first offset.
        """
        trouble, now = self.trouble, self.clock.monotonic()
        at, base = self.state.next_offset, message.offset()
        stall = trouble.stall
        if stall is None or (stall.at, stall.base) != (at, base):
            why = f"Kafka's client cannot read it ({describe_kafka_error(message.error())})"
            stall = trouble.stall = Stall(at, base, why, now)
            trouble.probe = None
            log.warning("kafka error", partition=self.number, offset=base, error=why)
        stall.times += 1
        is_listed = any(parse_skipped(text)[0] == self.number for text in self.settings.skip)
        if not (is_listed or stall.is_lasting(now)):
            return
        probe = trouble.probe
        if probe is None or (probe.is_over and probe.last is None):
            probe = trouble.probe = start_probe(self.number, base)
        obstacle = Obstacle(max(base, at), probe.last, stall.why)
        if probe.last is not None and self._skip_named(obstacle):
            self.must_seek = True
        elif stall.is_lasting(now):
            self._halt_before(obstacle)

    def _skip_named(self, obstacle: Obstacle) -> bool:
        """Skip an obstacle if `aggregate.skip` names its offsets; return whether it does.

        The next commit stores the skipped offsets.
        """
        if not obstacle.is_skippable(self.number, self.settings.skip):
            return False
        following = obstacle.end + 1
        self.facts["gap"] = int(self.facts.get("gap", 0)) + following - obstacle.first
        passed = f"{obstacle.first}-{obstacle.end}"
        self.facts[SKIPPED_FIELD] = f"{self.facts.get(SKIPPED_FIELD, '')},{passed}".lstrip(",")
        self.state.next_offset = following
        self.trouble = Trouble()
        self.recheck_offset()
        log_fields = {"first": obstacle.first, "last": obstacle.last, "reason": obstacle.why}
        log.warning("skipped", partition=self.number, **log_fields)
        return True

    def _halt_before(self, obstacle: Obstacle) -> None:
        reason = obstacle.reason(self.number)
        if reason != self.trouble.shown:
            log.error("halted", partition=self.number, reason=reason)
        self.trouble.shown = reason

    # -- Committing ---------------------------------------------------------------------------

    def commit(self, store: Store, high: int) -> int:
        """Write everything counted so far; return the number of bytes written.

        `store`: the store to write to; `high`: the end of the partition's log, from which readers
        derive the lag.
        """
        if self.is_unreadable:
            return 0
        now = self.clock.now_ms()
        if self._last is not None:
            self.facts["last"], self._last = str(Mark.of(self._last)), None
        measured = self.measured.with_arrivals(self.state.arrivals, now)
        facts = {**self.facts, **measured.facts(), **self.refused.facts()}
        facts |= {"halted": self.halted or self.trouble.shown, "high": high, "updated": now}
        written = store.partition.commit(self.number, self.epoch, self.committed, self.state, facts)
        if written is None:  # the store has the measurements of an earlier attempt
            measured = Measurements.stored(store.owner(self.number))
        self.measured = measured
        self.committed, self.fences = self.state.next_offset, 0
        return written or 0


def limit_memory(partitions: Iterable[AssignedPartition], memory: int) -> None:
    """Halt the partitions with the largest open panes, until those of the others fit into memory.

    Parameters
    ----------
    partitions : iterable of AssignedPartition
        All partitions of a worker.
    memory : int
        `aggregate.memory`, in bytes.
    """
    allowed = memory * (QUEUE_SHARE - 1) // QUEUE_SHARE
    counting = [owned for owned in partitions if not (owned.is_fenced or owned.halted)]
    counting.sort(key=lambda owned: owned.open_bytes)
    while (total := sum(owned.open_bytes for owned in counting)) > allowed:
        counting.pop().refuse(
            f"the open panes of this worker take {total >> 20} MB, and aggregate.memory "
            f"leaves {allowed >> 20} MB for them. Start more workers, send larger batches, "
            "give the metric narrower panes or a shorter lateness, or allow more memory; "
            "then restart the workers"
        )


def _opened_bytes(metric: Metric) -> int:
    """Return the size of the statistics that one message of a metric can open, in bytes."""
    chunk = 0 if metric.slicing is None else empty_chunk(metric).nbytes
    return metric.zero().nbytes + chunk


def _stack(error: Exception) -> str:
    """Return the stack of an error without its message, whose values may be personal."""
    return "".join([*traceback.format_tb(error.__traceback__), type(error).__name__])


def _pieces(messages: Sequence[Any], trouble: Trouble) -> Iterable[Sequence[Any]]:
    """Return messages in pieces to count together; a message that may fail is a separate piece."""
    wall = trouble.culprit.first if trouble.culprit else -1
    is_suspect = messages[0].offset() <= max(trouble.suspect_until, wall)
    if not is_suspect and sum(map(len, messages)) <= PIECE_BYTES:
        return [messages]

    def size_of(message: Any) -> int:
        is_alone = message.offset() <= trouble.suspect_until or message.offset() == wall
        return PIECE_BYTES + 1 if is_alone else len(message)

    return pieces(messages, size_of, PIECE_BYTES)
