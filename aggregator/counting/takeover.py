"""Takes over a partition: acquires its snapshot, and decides where counting continues.

A takeover also closes open panes whose definition has long been out of force. A pane closes when
reports move its watermark. Without reports of its definition, a pane would stay open forever, with
the ids of its batches, even beyond the metric's `retention`. Such panes are closed as if the
watermark had passed them. Until then, the definition may be restored, and its panes continue to
count.

The log does not determine when that happens. So the hash of the partition's owner in Redis has the
offset of each closing, and `dither verify` closes the panes at the same offset.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

import structlog

from aggregator.clock import SYSTEM_CLOCK, Clock
from aggregator.config.live_metrics import UNUSABLE_FIELD
from aggregator.config.settings import Aggregate
from aggregator.counting.assigned_partition import AssignedPartition
from aggregator.counting.continuity import VANISHED_FIELD, Log, find_break, is_another
from aggregator.counting.measurements import Measurements
from aggregator.counting.rejection_limits import RejectionWindow
from aggregator.errors import (
    CommitTooLarge,
    Fenced,
    OtherCluster,
    OtherDeployment,
    OtherGroup,
    StateUnreadable,
    recount_command,
)
from aggregator.kafka.obstacles import SKIPPED_FIELD
from aggregator.state import definition_history
from aggregator.state.definition_history import CountingDefinitions
from aggregator.state.pane_keys import counted_metric, metric_key, retention_ms, rollups, width_ms
from aggregator.state.partition import Partition
from aggregator.state.watermark import NO_TIME
from aggregator.storage import parsing
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

MAX_ABSENCE_MS = 7 * 86_400_000
"""How long, by Kafka's timestamps, open panes wait for their definition to be restored: from their
end and lateness, and from its last report. A shorter `retention` shortens this time."""

Acquire = Callable[[Mapping[str, Metric]], Snapshot]
"""Takes a partition over, and returns its state under definitions, given by name."""

logger = structlog.get_logger("dither.worker")


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
    counted_metrics: Mapping[str, Metric] = {} if excess else metrics

    def acquire(definitions: Mapping[str, Metric]) -> Snapshot:
        return store.partition.acquire(number, worker, settings.group, definitions)

    try:
        facts = log.origin()
        snapshot = acquire(counted_metrics)
        if not excess and retire_panes(store, number, acquire, snapshot, metrics):
            snapshot = acquire(counted_metrics)
        state = snapshot.partition(counted_metrics, future_ms, past_ms)
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
            f"`{recount_command(number)}` to count the partition again from its log"
        )
    else:
        halted = _find_position(state, facts, snapshot, log, settings.on_gap)
    halted = halted or excess
    if halted:
        state.drop_panes()
    else:
        definitions = CountingDefinitions.current(state.metrics, settings)
        changed = definition_history.changed_definitions(
            owner | facts, state.next_offset, definitions.digest
        )
        if changed:
            store_definitions(store, definitions)
        facts |= changed
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


def store_definitions(store: Store, definitions: CountingDefinitions) -> None:
    """Store the definitions in force; if Redis refuses, counting goes on without them."""
    try:
        store.registry.store_definitions(definitions.digest, definitions.encode())
    except StateUnreadable as error:
        logger.warning("definitions not stored", error=str(error))


def retire_panes(
    store: Store, number: int, acquire: Acquire, snapshot: Snapshot, metrics: Mapping[str, Metric]
) -> bool:
    """Close the panes of a partition whose definition has been out of force for too long.

    The panes of each definition are closed in a separate commit.

    Returns whether the partition was taken over to close panes, and must be acquired again.
    `store`: the store of the topic; `number`: the partition; `acquire`: takes the partition over
    again; `snapshot`: the partition's state, as this worker has acquired it; `metrics`: the current
    definitions, by name.
    """
    if snapshot.next_offset < 0 or not snapshot.uncounted:
        return False
    is_taken = False
    try:
        for metric, ends in _due_definitions(store, snapshot, metrics):
            is_taken, retired_metrics = True, {metric.name: metric}
            retired = acquire(retired_metrics)
            state = retired.partition(retired_metrics, 0)
            for question, end in ends.items():
                state.close_until(question, end)
            facts = definition_history.add_retired(retired.owner, retired.next_offset, ends)
            epoch = int(retired.owner["epoch"])
            store.partition.commit(number, epoch, retired.next_offset, state, facts)
            logger.info("retired", partition=number, metric=metric.name, panes=[*ends])
    except (Fenced, StateUnreadable, CommitTooLarge) as error:  # the next acquisition shows why
        logger.warning("open panes not retired", partition=number, error=str(error))
    return is_taken


def _due_definitions(
    store: Store, snapshot: Snapshot, metrics: Mapping[str, Metric]
) -> list[tuple[Metric, dict[str, int]]]:
    """Return the definitions that have been out of force for too long, each with panes to close.

    The panes are given by their latest end, in ms, for each key of a metric or round.
    """
    marks = snapshot.watermarks
    now = max((mark.arrived for mark in marks.values()), default=NO_TIME)
    open_key = f"{snapshot.prefix}:open"
    keys = [parsing.opened(open_key, member)[0] for member in snapshot.uncounted]
    keys = [
        key
        for key in keys
        if not key.grain.endswith("total") and counted_metric(metrics, key.question) is None
    ]
    tables = _tables(store, snapshot) if keys else []
    defined: dict[str, Metric | None] = {}  # the last definition under which each key was counted
    for name in {key.metric for key in keys}:
        definitions = (counted_metric(table, name) for table in tables)
        defined[name] = next(filter(None, definitions), None)
    due: dict[str, tuple[Metric, dict[str, int]]] = {}
    for key in keys:
        metric = defined[key.metric]
        if metric is None:
            continue
        counted_metrics = marks[key.question].arrived if key.question in marks else now
        for pane in (key, *rollups(metric, key)):
            away = min(MAX_ABSENCE_MS, retention_ms(pane.grain, metric) or MAX_ABSENCE_MS)
            end = pane.start + width_ms(pane.grain, metric)
            if max(end + metric.lateness_ms, counted_metrics) + away <= now:
                name = metric_key(metric.name, metric.revision)
                _, ends = due.setdefault(name, (metric, {}))
                ends[key.question] = max(end, ends.get(key.question, end))
    return [*due.values()]


def _tables(store: Store, snapshot: Snapshot) -> list[Mapping[str, Metric]]:
    """Return the stored definitions that were in force in a partition, the last ones first."""
    documents, tables = store.registry.definitions(), []
    for _, digest in reversed(definition_history.definitions_by_offset(snapshot.owner)):
        with contextlib.suppress(KeyError, ValueError):
            tables.append(CountingDefinitions.decode(documents.pop(digest)).metrics)
    return tables
