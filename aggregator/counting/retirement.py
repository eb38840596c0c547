"""Closes open panes whose definition has long been out of force.

A pane closes when reports move its watermark. Without reports of its definition, a pane would stay
open forever, with the ids of its batches, even beyond the metric's `retention`. A worker that takes
over the partition closes such panes as if the watermark had passed them. Until then, the definition
may be restored, and its panes continue to count.

The log does not determine when that happens. So the hash of the partition's owner in Redis has the
offset of each closing, and `dither verify` closes the panes at the same offset.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence

import structlog

from aggregator.errors import CommitTooLarge, Fenced, StateUnreadable
from aggregator.state.definition_history import (
    CountingDefinitions,
    add_retired,
    definitions_by_offset,
)
from aggregator.state.pane_keys import counted_metric, metric_key, retention_ms, rollups, width_ms
from aggregator.state.watermark import NO_TIME
from aggregator.storage import parsing
from aggregator.storage.snapshot import Snapshot
from aggregator.storage.store import Store
from estimators import Metric

MAX_ABSENCE_MS = 7 * 86_400_000
"""How long, by Kafka's timestamps, open panes wait for their definition to be restored: from their
end and lateness, and from its last report. A shorter `retention` shortens this time."""

Acquire = Callable[[Mapping[str, Metric]], Snapshot]
"""Takes a partition over, and returns its state under definitions, given by name."""

log = structlog.get_logger("dither.worker")


def retire_panes(
    store: Store, number: int, acquire: Acquire, snapshot: Snapshot, metrics: Mapping[str, Metric]
) -> bool:
    """Close the panes of a partition whose definition has been out of force for too long.

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
            is_taken = True
            _close_panes(store, number, acquire, metric, ends)
            log.info("retired", partition=number, metric=metric.name, panes=[*ends])
    except (Fenced, StateUnreadable, CommitTooLarge) as error:  # the next acquisition shows why
        log.warning("open panes not retired", partition=number, error=str(error))
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
    defined = {key: _latest_definition(tables, key) for key in {key.metric for key in keys}}
    due: dict[str, tuple[Metric, dict[str, int]]] = {}
    for key in keys:
        metric = defined[key.metric]
        if metric is None:
            continue
        counted = marks[key.question].arrived if key.question in marks else now
        for pane in (key, *rollups(metric, key)):
            away = min(MAX_ABSENCE_MS, retention_ms(pane.grain, metric) or MAX_ABSENCE_MS)
            end = pane.start + width_ms(pane.grain, metric)
            if max(end + metric.lateness_ms, counted) + away <= now:
                name = metric_key(metric.name, metric.revision)
                _, ends = due.setdefault(name, (metric, {}))
                ends[key.question] = max(end, ends.get(key.question, end))
    return [*due.values()]


def _latest_definition(tables: Sequence[Mapping[str, Metric]], key: str) -> Metric | None:
    """Return the last definition under which a key was counted; None if it is unknown."""
    definitions = (counted_metric(metrics, key) for metrics in tables)
    return next((metric for metric in definitions if metric is not None), None)


def _tables(store: Store, snapshot: Snapshot) -> list[Mapping[str, Metric]]:
    """Return the stored definitions that were in force in a partition, the last ones first."""
    documents, tables = store.registry.definitions(), []
    for _, digest in reversed(definitions_by_offset(snapshot.owner)):
        with contextlib.suppress(KeyError, ValueError):
            tables.append(CountingDefinitions.decode(documents.pop(digest)).metrics)
    return tables


def _close_panes(
    store: Store, number: int, acquire: Acquire, metric: Metric, ends: dict[str, int]
) -> None:
    """Close panes of a definition, in a separate commit.

    `ends`: the latest end of the panes to close, in ms, by the key of a metric or round.
    """
    retired_metrics = {metric.name: metric}
    snapshot = acquire(retired_metrics)
    state = snapshot.partition(retired_metrics, 0)
    for question, end in ends.items():
        state.close_until(question, end)
    facts = add_retired(snapshot.owner, snapshot.next_offset, ends)
    epoch = int(snapshot.owner["epoch"])
    store.partition.commit(number, epoch, snapshot.next_offset, state, facts)
