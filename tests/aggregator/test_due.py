"""Which events are due, whatever is counted while others are published."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aggregator.due import Due
from aggregator.events import Event
from aggregator.keys import publisher_key
from aggregator.lease import Lease
from aggregator.published import Published
from aggregator.reader import Reader
from aggregator.settings import Settings
from aggregator.store import Store
from estimators import Metric, load_metrics
from tests.aggregator.web.counted import DEFINITIONS, IDLE_MS, Counting, connected
from tests.messages import ARRIVAL

IDLE = ARRIVAL + 2 * IDLE_MS
"""When a partition was last committed that holds nothing back."""


@pytest.fixture
def metrics(tmp_path: Path) -> dict[str, Metric]:
    file = tmp_path / "metrics.toml"
    file.write_text(DEFINITIONS)
    return load_metrics(file)


@pytest.fixture
def store(redis_url: str) -> Store:
    return connected(redis_url)


@pytest.fixture
def published(store: Store) -> Iterator[Published]:
    key = publisher_key(store.topic)
    lease = Lease(store.client, key, "publisher", 60)
    assert lease.acquire()
    yield Published(store.client, lease, key, Settings())
    lease.release()


def minutes(events: list[Event]) -> list[str]:
    return [event.key.partition("T")[2] for event in events]


def test_a_pane_that_turns_up_while_others_are_published_is_due_next(
    store: Store, metrics: dict[str, Metric], published: Published
) -> None:
    counting = Counting(store, metrics)
    due = Due(Reader(store, metrics, idle_ms=IDLE_MS), published, "dither", 0, 10)
    counting.count(0, *(counting.batch("delay", [1.0] * 20, at) for at in (0, 2)), updated=IDLE)
    under_way = due.finals(store.overview())
    batch = next(under_way)
    assert minutes(batch) == ["00:00:00Z", "00:02:00Z"]
    counting.count(1, counting.batch("delay", [1.0] * 20, 1), updated=IDLE)
    published.note(batch, {})
    assert len(due.provisionals(store.overview())) == 1, "the change is seen now, and never again"
    assert list(under_way) == []

    (batch,) = due.finals(store.overview())
    assert minutes(batch) == ["00:01:00Z"]
    published.note(batch, {})
    assert due.provisionals(store.overview()) == []
    assert list(due.finals(store.overview())) == []
