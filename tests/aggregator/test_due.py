"""Which events are due, whatever is counted while others are published."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from aggregator import due as due_module
from aggregator import unpublished
from aggregator.due import Due
from aggregator.events import Event
from aggregator.keys import publisher_key
from aggregator.lease import Lease
from aggregator.published import Published
from aggregator.reader import Reader
from aggregator.settings import Settings
from aggregator.store import Store
from estimators import Metric
from tests.aggregator.web.counted import IDLE_MS, Counting
from tests.messages import ARRIVAL

IDLE = ARRIVAL + 2 * IDLE_MS
"""When a partition was last committed that holds nothing back."""


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
    store: Store, metrics: dict[str, Metric], counting: Counting, published: Published
) -> None:
    due = Due(Reader(store, metrics, idle_ms=IDLE_MS), published, "dither", 0, 10)
    counting.count(0, *(counting.batch("delay", [1.0] * 20, at) for at in (0, 2)), updated=IDLE)
    under_way = due.finals()
    batch = next(under_way)
    assert minutes(batch) == ["00:00:00Z", "00:02:00Z"]
    counting.count(1, counting.batch("delay", [1.0] * 20, 1), updated=IDLE)
    published.note(batch, {})
    assert len(due.provisionals(store.overview())) == 1, "the change is seen now, and never again"
    assert list(under_way) == []

    (batch,) = due.finals()
    assert minutes(batch) == ["00:01:00Z"]
    published.note(batch, {})
    assert due.provisionals(store.overview()) == []
    assert list(due.finals()) == []


@pytest.mark.parametrize("seed", range(60))
def test_every_pane_has_one_final_event_however_counting_and_publishing_interleave(
    store: Store,
    metrics: dict[str, Metric],
    counting: Counting,
    published: Published,
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Partitions hold nothing back: each may still get a pane where all were final already."""
    monkeypatch.setattr(unpublished, "BATCH_EVENTS", 3)
    monkeypatch.setattr(due_module, "BATCH_SECONDS", -1)  # an event is a batch
    rng = random.Random(seed)
    reader = Reader(store, metrics, idle_ms=IDLE_MS)
    counted: set[int] = set()
    found: Counter[str] = Counter()
    minute = [0, 0, 0]
    due = Due(reader, published, "dither", 0, 10)
    under_way = due.finals()

    def count() -> None:
        partition = rng.randrange(3)
        minute[partition] += rng.randrange(4)
        counted.add(minute[partition])
        report = counting.batch("delay", [1.0] * 20, minute[partition])
        counting.count(partition, report, updated=IDLE)

    def publish() -> bool:
        nonlocal under_way
        batch: list[Event] = next(under_way, [])
        if not batch:
            under_way = due.finals()
            batch = next(under_way, [])
        published.note(batch, {})
        found.update(event.key for event in batch)
        return bool(batch)

    def total() -> bool:
        events = due.provisionals(store.overview())
        published.note(events, {})
        return bool(events)

    for _ in range(rng.randrange(4, 20)):
        rng.choices([count, publish, total], [2, 3, 1])[0]()
        if rng.random() < 0.05:  # another takes over
            due = Due(reader, published, "dither", 0, 10)
            under_way = due.finals()
    count()  # nothing comes after it that would have all looked through again
    while total() or publish():
        pass
    assert len(found) == len(counted)
    assert set(found.values()) == {1}
