"""A partition that a worker owns: its state and position, and how a worker takes it over."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aggregator.clock import SYSTEM, Clock
from aggregator.config.live_metrics import UNUSABLE_FIELD
from aggregator.config.settings import Aggregate
from aggregator.counting.continuity import VANISHED, KnownProgress, Log, Mark, broken, is_another
from aggregator.counting.measurements import Measurements
from aggregator.counting.rejection_limits import RejectionWindow
from aggregator.counting.retirement import retire
from aggregator.errors import (
    OtherCluster,
    OtherDeployment,
    OtherGroup,
    StateUnreadable,
    recount_command,
)
from aggregator.kafka.headers import message_bytes
from aggregator.kafka.obstacles import SKIPPED, Obstacle, Trouble
from aggregator.state import definition_history
from aggregator.state.decoder import Rejection
from aggregator.state.definition_history import Definitions, rules
from aggregator.state.partition import Partition
from aggregator.storage.progress import TORN, UNSET
from aggregator.storage.store import Store
from estimators import Metric
from estimators.durations import milliseconds

REMEDIES = (
    "Bring the log back, or accept the loss with `dither aggregate --set aggregate.on_gap=skip`",
    "Restore Redis from a backup, or accept the loss and count the rest of the log with "
    "`dither aggregate --set aggregate.on_gap=skip`",
)
"""Where Redis has the partition's sums, and where it does not."""


@dataclasses.dataclass
class AssignedPartition:
    """A partition in a worker's hands.

    Attributes
    ----------
    epoch : int
        Raised at every change of owner; the store refuses commits of an older one.
    state : Partition
        The sums in memory.
    committed : int
        The next offset in the store.
    facts : dict
        What else the store should know of this partition: where counting began, lost offsets, and
        the last message that was counted, by which the log is known again.
    begin : int
        The first offset that was ever counted.
    measured : Measurements
        How counting it went so far, under whichever owner.
    halted : str
        Why nothing is counted, for a person to act on; empty when all is well.
    fences : int
        How often in a row another owner took it.
    rejections : list of Rejection
        What could not be counted since the last commit: sent to the dead letters just before the
        next one, so that nothing is diverted that is not passed.
    refused_bytes : int
        Their size.
    refused : RejectionWindow
        How much was refused lately.
    excess : str
        Why the next owner, if it is this worker, must not go on: a limit was reached.
    must_seek : bool
        Whether the consumer is still to be sent to the next offset.
    trouble : Trouble
        What was met in the log that cannot be counted.
    """

    number: int
    epoch: int
    state: Partition
    committed: int
    facts: dict[str, str | int]
    begin: int = 0
    measured: Measurements = dataclasses.field(default_factory=Measurements)
    halted: str = ""
    fences: int = 0
    retry_at: float = 0.0
    is_fenced: bool = False
    rejections: list[Rejection] = dataclasses.field(default_factory=list)
    refused_bytes: int = 0
    refused: RejectionWindow = dataclasses.field(default_factory=RejectionWindow)
    excess: str = ""
    must_seek: bool = False
    trouble: Trouble = dataclasses.field(default_factory=Trouble)
    _expects: bool = True
    _last: Any = None

    @property
    def is_unreadable(self) -> bool:
        """Whether what the store has cannot be counted on from, until somebody mends it."""
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
        """How far it was counted, should Redis forget: nothing if nothing was committed."""
        if self.committed < 0:
            return ()
        topic_id, vanished = str(self.facts.get("topic_id", "")), int(self.facts.get(VANISHED, 0))
        name = str(self.facts.get("deployment", ""))
        return (KnownProgress(self.begin, self.committed, topic_id, vanished, name),)

    @property
    def open_bytes(self) -> int:
        """About how much memory the open panes and what waits for the next commit take."""
        return self.state.open_bytes + self.refused_bytes

    def count(self, messages: Sequence[Any], settings: Aggregate) -> list[Rejection]:
        """Count messages; return those that could not be, which are then kept for the dead letters.

        Where a limit is reached, `excess` says so: what is in memory must then be dropped.
        """
        before = len(self.state.arrivals)
        if messages[-1].offset() >= self.state.next_offset:
            self._last = messages[-1]
        rejections = self.state.count(messages)
        passed = len(self.state.arrivals) - before
        found: list[tuple[int, str]] = []
        if rejections:
            fresh = messages[len(messages) - passed :]
            index = {message.offset(): i for i, message in enumerate(fresh)}
            found = [(index.get(r.message.offset(), 0), r.reason) for r in rejections]
        if passed:
            self.excess = self.refused.add(self.state.arrivals[before:], found, settings)
        self.rejections += rejections
        for rejection in rejections:
            self.refused_bytes += message_bytes(rejection.message)
            self.measured = self.measured.refused(rejection.reason)
        return rejections

    def jumped(self, first: int, last: int) -> bool:
        """Whether the first messages after taking over are further on than they should be.

        Offsets have gaps (transactions, compaction), so only asking again from the expected offset
        can tell a gap from messages that were still queued for an earlier assignment.
        """
        if not self._expects or last < self.state.next_offset:
            return False
        self._expects = False
        return first > self.state.next_offset

    def unconfirm(self) -> None:
        """Check the next message's offset again."""
        self._expects = True

    def skip_obstacle(self, obstacle: Obstacle) -> None:
        """Go on behind what cannot be counted; the next commit says which offsets were given up."""
        following = obstacle.end + 1
        self.facts["gap"] = int(self.facts.get("gap", 0)) + following - obstacle.first
        passed = f"{obstacle.first}-{obstacle.end}"
        self.facts[SKIPPED] = f"{self.facts.get(SKIPPED, '')},{passed}".lstrip(",")
        self.state.next_offset = following
        self.trouble = Trouble()
        self.unconfirm()

    def fence(self, retry_at: float) -> None:
        """Stop counting until `retry_at` (monotonic seconds), when the state is read again."""
        self.is_fenced, self.retry_at = True, retry_at
        self.state.release()

    def commit(self, store: Store, high: int, clock: Clock = SYSTEM) -> int:
        """Write everything counted so far; return the bytes written.

        Parameters
        ----------
        store : Store
            Where it was acquired.
        high : int
            The end of the partition's log, so that readers can show the lag.
        clock : Clock

        Raises
        ------
        Fenced
            If the store is not where this state came from.
        """
        if self.is_unreadable:
            return 0
        now = clock.now_ms()
        if self._last is not None:
            self.facts["last"], self._last = str(Mark.of(self._last)), None
        measured = self.measured.arrived(self.state.arrivals, now)
        halted = self.halted or self.trouble.shown
        facts = {**self.facts, "halted": halted, "high": high, "updated": now}
        facts |= measured.facts() | self.refused.facts()
        written = store.partition.commit(self.number, self.epoch, self.committed, self.state, facts)
        if written is None:  # what an earlier attempt measured is in the store
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
    """Take a partition over and decide where to continue counting.

    Parameters
    ----------
    store : Store
        Where the partition's state is.
    number : int
        The partition's.
    worker : str
        Name of this worker, for people.
    log : Log
        What can be asked about the partition's log.
    topic_id : str
        Kafka's id of the topic; empty where the cluster does not tell.
    metrics : mapping of str to Metric
        By name, as they are defined now.
    settings : Aggregate
        Which times are refused, what to do about a gap, and the consumer group.
    excess : str
        Why it must not be counted: a limit was reached.
    origin : callable
        Returns what the owner shall say of its origin, or refuses the partition; see
        :class:`aggregator.counting.origin.OriginCheck`.

    Returns
    -------
    AssignedPartition
        Halted, with the reason and without panes, if there is an excess; if the log no longer has
        what comes next and the settings say ``on_gap = "stop"``; or if what is stored cannot be
        counted on from.
    """
    future_ms, past_ms = milliseconds(settings.future), milliseconds(settings.past)
    counted: Mapping[str, Metric] = {} if excess else metrics
    try:
        facts = origin()
        snapshot = store.partition.acquire(number, worker, settings.group, counted)
        if not excess and retire(store, number, worker, settings.group, snapshot, metrics):
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
        key: snapshot.owner[key] for key in ("gap", VANISHED, SKIPPED) if key in snapshot.owner
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
        problem = broken(snapshot, log, low, high, topic_id)
        if problem is not None and settings.on_gap != "skip":
            state.next_offset = snapshot.next_offset
            facts["topic_id"] = snapshot.owner.get("topic_id", "")
            halted = f"{problem.reason}. {REMEDIES[snapshot.next_offset == UNSET]}"
        elif problem is not None:
            facts["gap"] = int(snapshot.owner.get("gap", 0)) + problem.missing
            if problem.vanished:
                facts[VANISHED] = int(snapshot.owner.get(VANISHED, 0)) + problem.vanished
            facts["last"] = ""  # the next message that is counted will be the last
            if is_another(snapshot.owner.get("topic_id", ""), topic_id):
                facts[SKIPPED], facts["begin"] = "", low
                begin = low
                facts |= definition_history.forgotten(snapshot.owner)
            state.next_offset = problem.resume
        if snapshot.next_offset == UNSET and not halted:
            facts["begin"] = begin = state.next_offset = low
    halted = halted or excess
    if halted:
        state.release()
    else:
        facts |= _keep_definitions(store, snapshot.owner | facts, state, settings)
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


def _keep_definitions(
    store: Store, owner: Mapping[str, Any], state: Partition, settings: Aggregate
) -> dict[str, str]:
    """Have the store keep the definitions, and return what to say of them with the next commit."""
    definitions = Definitions(state.metrics, rules(settings))
    facts = definition_history.changed(owner, state.next_offset, definitions.digest)
    if facts:
        store.registry.keep_definitions(definitions.digest, definitions.encode())
    return facts
