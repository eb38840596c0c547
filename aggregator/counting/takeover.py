"""Takes over a partition, and decides where counting continues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aggregator.clock import SYSTEM_CLOCK, Clock
from aggregator.config.live_metrics import UNUSABLE_FIELD
from aggregator.config.settings import Aggregate
from aggregator.counting.assigned_partition import AssignedPartition
from aggregator.counting.continuity import VANISHED_FIELD, Log, find_break, is_another
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
from aggregator.kafka.obstacles import SKIPPED_FIELD
from aggregator.state import definition_history
from aggregator.state.definition_history import CountingDefinitions
from aggregator.state.partition import Partition
from aggregator.storage.progress import TORN, UNSET
from aggregator.storage.snapshot import Snapshot
from aggregator.storage.store import Store
from estimators import Metric
from estimators.durations import milliseconds

GAP_REMEDIES = (
    "Bring the log back, or accept the loss with `dither aggregate --set aggregate.on_gap=skip`",
    "Restore Redis from a backup, or accept the loss and count the rest of the log with "
    "`dither aggregate --set aggregate.on_gap=skip`",
)
"""What to do if Redis has the sums of the partition, and if it does not."""


def acquire_partition(
    store: Store,
    number: int,
    worker: str,
    log: Log,
    metrics: Mapping[str, Metric],
    settings: Aggregate,
    excess: str = "",
    clock: Clock = SYSTEM_CLOCK,
) -> AssignedPartition:
    """Take a partition over and decide where counting continues.

    `store`: the store of the topic; `number`: the partition; `worker`: the name of this worker,
    which people see; `log`: a reader of the log; `metrics`: the definitions in force, by name;
    `settings`: the settings of counting; `excess`: the limit that the partition has reached, so
    that it must not be counted; "" if none; `clock`: the clock, which a simulation replaces.

    Returns
    -------
    AssignedPartition
        The partition. It is halted, with the reason and without panes, if there is an excess, if
        the log lacks the next messages and ``on_gap = "stop"``, or if the stored state is unusable.
    """
    future_ms, past_ms = milliseconds(settings.future), milliseconds(settings.past)
    counted: Mapping[str, Metric] = {} if excess else metrics

    def acquire(definitions: Mapping[str, Metric]) -> Snapshot:
        return store.partition.acquire(number, worker, settings.group, definitions)

    try:
        facts = log.origin()
        snapshot = acquire(counted)
        if not excess and retire_panes(store, number, acquire, snapshot, metrics):
            snapshot = acquire(counted)
        state = snapshot.partition(counted, future_ms, past_ms)
    except (OtherGroup, OtherDeployment, OtherCluster, StateUnreadable) as error:
        if not isinstance(error, OtherGroup):
            store.partition.halt(number, str(error))
        nothing = Partition(metrics, future_ms)
        owned = AssignedPartition(number, 0, nothing, TORN, {}, settings, clock, excess=excess)
        owned.halted = str(error)
        return owned
    owner, committed = snapshot.owner, snapshot.next_offset
    facts |= {"topic_id": log.topic_id or owner.get("topic_id", ""), UNUSABLE_FIELD: ""}
    facts |= {key: owner[key] for key in ("gap", VANISHED_FIELD, SKIPPED_FIELD) if key in owner}
    if committed == TORN:
        halted = owner.get("halted") or (
            "a commit was applied only in part, so the sums in Redis cannot be trusted. Run "
            f"`{recount_command(number)}` to count the partition again from its "
            "log"
        )
    else:
        halted = _find_position(state, facts, snapshot, log, settings.on_gap)
    halted = halted or excess
    if halted:
        state.drop_panes()
    else:
        facts |= _store_definitions(store, owner | facts, state, settings)
    owned = AssignedPartition(
        number, int(owner["epoch"]), state, committed, facts, settings, clock, excess=excess
    )
    owned.begin, owned.halted = int(facts.get("begin", owner.get("begin", 0))), halted
    owned.measured, owned.refused = Measurements.stored(owner), RejectionWindow.stored(owner)
    return owned


def _find_position(
    state: Partition, facts: dict[str, str | int], snapshot: Snapshot, log: Log, on_gap: str
) -> str:
    """Set the next offset, and the facts about losses; return why nothing may be counted, or ""."""
    owner, topic_id, (low, high) = snapshot.owner, str(facts["topic_id"]), log.range()
    problem = find_break(snapshot, log, low, high, topic_id)
    if problem is not None and on_gap != "skip":
        state.next_offset = snapshot.next_offset
        facts["topic_id"] = owner.get("topic_id", "")
        return f"{problem.reason}. {GAP_REMEDIES[snapshot.next_offset == UNSET]}"
    if problem is not None:
        facts["gap"] = int(owner.get("gap", 0)) + problem.missing
        if problem.vanished:
            facts[VANISHED_FIELD] = int(owner.get(VANISHED_FIELD, 0)) + problem.vanished
        facts["last"] = ""  # the next message that is counted will be the last
        if is_another(owner.get("topic_id", ""), topic_id):
            facts[SKIPPED_FIELD], facts["begin"] = "", low
            facts |= definition_history.cleared_history(owner)
        state.next_offset = problem.resume
    if snapshot.next_offset == UNSET:
        facts["begin"] = state.next_offset = low
    return ""


def _store_definitions(
    store: Store, owner: Mapping[str, Any], state: Partition, settings: Aggregate
) -> dict[str, str]:
    """Store the definitions if they have changed; return the fields for the owner's next commit."""
    definitions = CountingDefinitions.current(state.metrics, settings)
    facts = definition_history.changed_definitions(owner, state.next_offset, definitions.digest)
    if facts:
        store.registry.store_definitions(definitions.digest, definitions.encode())
    return facts
