"""A partition that a worker owns: its state and position, and how a worker takes it over."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aggregator.clock import SYSTEM, Clock
from aggregator.config.live_metrics import UNUSABLE_FIELD
from aggregator.config.settings import Aggregate
from aggregator.counting.continuity import (
    VANISHED_FIELD,
    KnownProgress,
    Log,
    Mark,
    find_break,
    is_another,
)
from aggregator.counting.measurements import Measurements
from aggregator.counting.rejection_limits import RejectionWindow
from aggregator.counting.retirement import retire_panes
from aggregator.errors import (
    OtherCluster,
    OtherDeployment,
    OtherGroup,
    StateUnreadable,
    recount_command,
)
from aggregator.kafka.headers import message_bytes
from aggregator.kafka.obstacles import SKIPPED_FIELD, Obstacle, Trouble
from aggregator.state import definition_history
from aggregator.state.decoder import Rejection
from aggregator.state.definition_history import CountingDefinitions, counting_rules
from aggregator.state.partition import Partition
from aggregator.storage.progress import TORN, UNSET
from aggregator.storage.store import Store
from estimators import Metric
from estimators.durations import milliseconds

GAP_REMEDIES = (
    "Bring the log back, or accept the loss with `dither aggregate --set aggregate.on_gap=skip`",
    "Restore Redis from a backup, or accept the loss and count the rest of the log with "
    "`dither aggregate --set aggregate.on_gap=skip`",
)
"""For a Redis that has the partition's sums, and for one that does not."""


@dataclasses.dataclass
class AssignedPartition:
    """A partition that this worker owns."""

    number: int
    epoch: int  # grows with each change of owner; the store refuses older ones
    state: Partition
    committed: int  # the next offset in the store
    facts: dict[str, str | int]  # what else the store shall know, such as `begin`, `gap` and `last`
    begin: int = 0  # the first counted offset
    measured: Measurements = dataclasses.field(default_factory=Measurements)  # over all owners
    halted: str = ""  # why nothing is counted, for a person to act on; or empty
    fences: int = 0  # consecutive fences by another owner
    retry_at: float = 0.0
    is_fenced: bool = False
    # Since the last commit. They become dead letters just before the next one, when counting has
    # passed them.
    rejections: list[Rejection] = dataclasses.field(default_factory=list)
    refused_bytes: int = 0
    # Recent rejections.
    refused: RejectionWindow = dataclasses.field(default_factory=RejectionWindow)
    excess: str = ""  # the limit that was reached, so that it halts when acquired again
    must_seek: bool = False  # whether a seek to the next offset failed
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
        """The committed progress, in case Redis forgets it; empty before the first commit."""
        if self.committed < 0:
            return ()
        topic_id, vanished = (
            str(self.facts.get("topic_id", "")),
            int(self.facts.get(VANISHED_FIELD, 0)),
        )
        name = str(self.facts.get("deployment", ""))
        return (KnownProgress(self.begin, self.committed, topic_id, vanished, name),)

    @property
    def open_bytes(self) -> int:
        """About the memory of the open panes and of uncommitted rejections, in bytes."""
        return self.state.open_bytes + self.refused_bytes

    def count(self, messages: Sequence[Any], settings: Aggregate) -> list[Rejection]:
        """Count messages; return the rejections, which become dead letters at the next commit.

        If a limit is reached, `excess` names it: the uncommitted state must then be dropped.
        """
        arrivals_before = len(self.state.arrivals)
        if messages[-1].offset() >= self.state.next_offset:
            self._last = messages[-1]
        rejections = self.state.count(messages)
        passed = len(self.state.arrivals) - arrivals_before
        refused: list[tuple[int, str]] = []
        if rejections:
            fresh = messages[len(messages) - passed :]
            index = {message.offset(): i for i, message in enumerate(fresh)}
            refused = [(index.get(r.message.offset(), 0), r.reason) for r in rejections]
        if passed:
            self.excess = self.refused.add(self.state.arrivals[arrivals_before:], refused, settings)
        self.rejections += rejections
        for rejection in rejections:
            self.refused_bytes += message_bytes(rejection.message)
            self.measured = self.measured.with_refusal(rejection.reason)
        return rejections

    def has_jumped(self, first: int, last: int) -> bool:
        """Return whether the first messages after a takeover begin too late.

        Offsets have gaps (transactions, compaction). Only a second fetch from the expected offset
        tells such a gap from messages that were queued for an earlier assignment.
        """
        if not self._expects or last < self.state.next_offset:
            return False
        self._expects = False
        return first > self.state.next_offset

    def recheck_offset(self) -> None:
        """Check the offset of the next message again."""
        self._expects = True

    def skip_obstacle(self, obstacle: Obstacle) -> None:
        """Continue after an obstacle; the next commit stores which offsets were skipped."""
        following = obstacle.end + 1
        self.facts["gap"] = int(self.facts.get("gap", 0)) + following - obstacle.first
        passed = f"{obstacle.first}-{obstacle.end}"
        self.facts[SKIPPED_FIELD] = f"{self.facts.get(SKIPPED_FIELD, '')},{passed}".lstrip(",")
        self.state.next_offset = following
        self.trouble = Trouble()
        self.recheck_offset()

    def fence(self, retry_at: float) -> None:
        """Stop counting until `retry_at` (monotonic seconds), when the state is read again."""
        self.is_fenced, self.retry_at = True, retry_at
        self.state.drop_panes()

    def commit(self, store: Store, high: int, clock: Clock = SYSTEM) -> int:
        """Write everything counted so far; return the written bytes.

        Parameters
        ----------
        store : Store
        high : int
            The end of the partition's log, from which readers derive the lag.
        clock : Clock
        """
        if self.is_unreadable:
            return 0
        now = clock.now_ms()
        if self._last is not None:
            self.facts["last"], self._last = str(Mark.of(self._last)), None
        measured = self.measured.with_arrivals(self.state.arrivals, now)
        halted = self.halted or self.trouble.shown
        facts = {**self.facts, "halted": halted, "high": high, "updated": now}
        facts |= measured.facts() | self.refused.facts()
        written = store.partition.commit(self.number, self.epoch, self.committed, self.state, facts)
        if written is None:  # the store has the measurements of an earlier attempt
            measured = Measurements.stored(store.owner(self.number))
        self.measured = measured
        self.committed, self.fences = self.state.next_offset, 0
        return written or 0


def acquire_partition(
    store: Store,
    number: int,
    worker: str,
    log: Log,
    topic_id: str,
    metrics: Mapping[str, Metric],
    settings: Aggregate,
    excess: str = "",
    origin: Callable[[], dict[str, str | int]] = dict,
) -> AssignedPartition:
    """Take a partition over and decide where counting continues.

    Parameters
    ----------
    store : Store
    number : int
    worker : str
        Name of this worker, for people.
    log : Log
    topic_id : str
        Kafka's id of the topic; empty if unknown.
    metrics : mapping of str to Metric
    settings : Aggregate
    excess : str
        The limit that was reached, so that the partition must not be counted; or empty.
    origin : callable
        Returns the owner's facts of its origin, or refuses the partition; see
        :class:`aggregator.counting.origin.OriginCheck`.

    Returns
    -------
    AssignedPartition
        Halted, with the reason and without panes, if there is an excess, if the log lacks the next
        messages and ``on_gap = "stop"``, or if the stored state is unusable.
    """
    future_ms, past_ms = milliseconds(settings.future), milliseconds(settings.past)
    counted: Mapping[str, Metric] = {} if excess else metrics
    try:
        facts = origin()
        snapshot = store.partition.acquire(number, worker, settings.group, counted)
        if not excess and retire_panes(store, number, worker, settings.group, snapshot, metrics):
            snapshot = store.partition.acquire(number, worker, settings.group, counted)
        state = snapshot.partition(counted, future_ms, past_ms)
    except (OtherGroup, OtherDeployment, OtherCluster, StateUnreadable) as error:
        if not isinstance(error, OtherGroup):
            store.partition.halt(number, str(error))
        return AssignedPartition(
            number, 0, Partition(metrics, future_ms), TORN, {}, halted=str(error), excess=excess
        )
    topic_id = topic_id or snapshot.owner.get("topic_id", "")
    facts |= {"topic_id": topic_id, UNUSABLE_FIELD: ""}
    facts |= {
        key: snapshot.owner[key]
        for key in ("gap", VANISHED_FIELD, SKIPPED_FIELD)
        if key in snapshot.owner
    }
    begin = int(snapshot.owner.get("begin", 0))
    halted = ""
    if snapshot.next_offset == TORN:
        halted = snapshot.owner.get("halted") or (
            "a commit was applied only in part, so the sums in Redis cannot be trusted. Run "
            f"`{recount_command(f'{store.topic}:{number}')}` to count the partition again from its "
            "log"
        )
    else:
        low, high = log.range()
        problem = find_break(snapshot, log, low, high, topic_id)
        if problem is not None and settings.on_gap != "skip":
            state.next_offset = snapshot.next_offset
            facts["topic_id"] = snapshot.owner.get("topic_id", "")
            halted = f"{problem.reason}. {GAP_REMEDIES[snapshot.next_offset == UNSET]}"
        elif problem is not None:
            facts["gap"] = int(snapshot.owner.get("gap", 0)) + problem.missing
            if problem.vanished:
                facts[VANISHED_FIELD] = (
                    int(snapshot.owner.get(VANISHED_FIELD, 0)) + problem.vanished
                )
            facts["last"] = ""  # the next message that is counted will be the last
            if is_another(snapshot.owner.get("topic_id", ""), topic_id):
                facts[SKIPPED_FIELD], facts["begin"] = "", low
                begin = low
                facts |= definition_history.cleared_history(snapshot.owner)
            state.next_offset = problem.resume
        if snapshot.next_offset == UNSET and not halted:
            facts["begin"] = begin = state.next_offset = low
    halted = halted or excess
    if halted:
        state.drop_panes()
    else:
        facts |= _store_definitions(store, snapshot.owner | facts, state, settings)
    return AssignedPartition(
        number=number,
        epoch=int(snapshot.owner["epoch"]),
        state=state,
        committed=snapshot.next_offset,
        facts=facts,
        begin=begin,
        measured=Measurements.stored(snapshot.owner),
        refused=RejectionWindow.stored(snapshot.owner),
        halted=halted,
        excess=excess,
    )


def _store_definitions(
    store: Store, owner: Mapping[str, Any], state: Partition, settings: Aggregate
) -> dict[str, str]:
    """Store new definitions; return their facts for the next commit."""
    definitions = CountingDefinitions(state.metrics, counting_rules(settings))
    facts = definition_history.changed_definitions(owner, state.next_offset, definitions.digest)
    if facts:
        store.registry.store_definitions(definitions.digest, definitions.encode())
    return facts
