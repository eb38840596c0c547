"""Open panes of definitions that are no longer in force: what a takeover does with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from aggregator.state.pane_keys import metric_key
from aggregator.state.partition import Partition
from aggregator.storage.store import Store
from estimators import Metric
from tests.support.reports.counted import TOPIC
from tests.support.reports.messages import EPOCH, batch, log
from tests.support.reports.partitions import DELAY, FUTURE_MS

PREFIX = f"{{dither:{TOPIC}:0}}"
OLD = {"delay": dataclasses.replace(DELAY, lateness="1d", retention="1d", max_key_reports=99)}
NEW = {"delay": dataclasses.replace(OLD["delay"], pane="5m")}
BATCHES = 20


def counted(
    store: Store, metrics: Mapping[str, Metric], batches: int = BATCHES
) -> tuple[Partition, int]:
    """Take the partition over, count batches of its open pane, and commit."""
    taken = store.partition.acquire(0, "one", metrics=metrics)
    state, first = taken.partition(metrics, FUTURE_MS), max(0, taken.next_offset)
    found = (batch(metrics["delay"], [1.0], 1, EPOCH, first + i) for i in range(batches))
    state.count(log(*found, first=first))
    store.partition.commit(0, int(taken.owner["epoch"]), taken.next_offset, state, {})
    return state, first


def pieces_read(store: Store) -> int:
    client: Any = store.client
    return sum(
        client.info("commandstats").get(f"cmdstat_{name}", {"calls": 0})["calls"]
        for name in ("getrange", "hscan")
    )


def test_a_takeover_reads_nothing_of_panes_that_no_definition_counts(store: Store) -> None:
    counted(store, OLD)
    read = pieces_read(store)
    taken = store.partition.acquire(0, "two", metrics=NEW)
    assert (pieces_read(store), taken.open) == (read, {})
    assert taken.uncounted == store.members(f"{PREFIX}:open")
    counted(store, NEW)
    revisions = {key.metric for key in store.partition.acquire(0, "two", metrics=NEW).open}
    assert revisions == {metric_key("delay", NEW["delay"].revision)}


def test_a_definition_that_comes_back_finds_its_open_panes(store: Store) -> None:
    counted(store, OLD)
    counted(store, NEW)
    state, _ = counted(store, OLD, 1)
    ((pane,),) = ([pane for pane in state.panes.values() if pane.seen],)
    assert len(pane.seen) == BATCHES + 1
    assert [*pane.used.values()] == [BATCHES + 1]
