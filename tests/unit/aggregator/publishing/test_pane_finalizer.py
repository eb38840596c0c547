"""Which events are due, whatever is counted while others are published."""

import dataclasses
import json
import random
import re
from collections import Counter
from typing import Any

import pytest

from aggregator.errors import StateUnreadable
from aggregator.features.reader import Reader
from aggregator.publishing import due_events
from aggregator.publishing.due_events import Publication, batch_events
from aggregator.publishing.events import Event
from aggregator.publishing.leader import EventCacheLost
from aggregator.publishing.pane_finalizer import PaneFinalizer
from aggregator.publishing.published_log import PublishedLog
from aggregator.state.pane_keys import metric_key
from aggregator.state.watermark import CONFIRMING_BATCHES
from aggregator.storage.pane_index import PaneIndex
from aggregator.storage.store import Store
from estimators import Metric
from producers.wire.batch import heartbeat
from producers.wire.reports_pb2 import ReportBatch
from tests.support.reports.counted import MINUTE, Counting
from tests.support.reports.messages import EPOCH
from tests.support.rows import row
from tests.support.running.servers import Redis


@pytest.fixture
def finalizer(store: Store, metrics: dict[str, Metric], published: PublishedLog) -> PaneFinalizer:
    return finalizer_of(store, metrics, published)


def finalizer_of(
    store: Store, metrics: dict[str, Metric], published: PublishedLog
) -> PaneFinalizer:
    return PaneFinalizer(Publication(Reader(store, metrics), published, "dither", 0), 10)


def due(finalizer: PaneFinalizer, partitions: int = 1) -> list[Event]:
    return [*finalizer.final_events(finalizer.reader.store.overview(), partitions)]


def minutes(events: list[Event]) -> list[str]:
    return [event.key.partition("T")[2] for event in events]


def beats(metric: Metric, minute: int) -> list[ReportBatch | bytes]:
    """Return heartbeats that close what ends by a minute."""
    time_ms = EPOCH + minute * MINUTE + metric.lateness_ms
    return [heartbeat(metric, time_ms) for _ in range(CONFIRMING_BATCHES)]


def test_panes_are_due_that_all_partitions_have_closed_and_no_others(
    counting: Counting, published: PublishedLog, finalizer: PaneFinalizer
) -> None:
    delay = counting.metrics["delay"]
    counting.count(0, *(counting.batch("delay", [1.0] * 20, at) for at in (0, 2, 3)))
    counting.count(0, *beats(delay, 9))
    counting.count(1, counting.batch("delay", [1.0] * 20, 1))
    assert due(finalizer, 2) == []
    counting.count(1, *beats(delay, 3))
    assert due(finalizer, 3) == [], "the third one is not there"
    found = due(finalizer, 2)
    assert minutes(found) == ["00:00:00Z", "00:01:00Z", "00:02:00Z"]
    published.note_committed(found, {})
    assert due(finalizer, 2) == []
    counting.count(2, counting.batch("delay", [1.0] * 20, -1), *beats(delay, 3))
    assert minutes(due(finalizer, 3)) == ["23:59:00Z"], "in a new partition"


def test_nothing_is_made_from_a_copy_of_the_topic_that_redis_has_lost(
    counting: Counting, published: PublishedLog, finalizer: PaneFinalizer
) -> None:
    delay, client = counting.metrics["delay"], counting.store.client
    counting.count(0, counting.batch("delay", [1.0] * 20, 0), *beats(delay, 1))
    published.note_committed(due(finalizer), {0: 1})
    counting.count(0, counting.batch("delay", [1.0] * 20, 1), *beats(delay, 2))
    client.hset(f"{published._key}:position", "0", 0)
    for step in (lambda: due(finalizer), lambda: published.note_committed([], {0: 2})):
        with pytest.raises(EventCacheLost):
            step()
    client.hset(f"{published._key}:position", "0", 1)
    client.delete(f"{published._key}:final:{metric_key('delay', delay.revision)}")
    with pytest.raises(EventCacheLost):
        due(finalizer)


def test_a_running_total_is_told_when_it_has_changed_whoever_tells_it(
    counting: Counting, published: PublishedLog, finalizer: PaneFinalizer
) -> None:
    store = counting.store
    counting.count(0, counting.batch("delay", [1.0] * 20, 0))
    found = finalizer.provisional_events(store.overview())
    assert [event.subject for event in found] == ["delay"]
    assert finalizer.provisional_events(store.overview()) == []
    published.note_committed(found, {})
    other = finalizer_of(store, counting.metrics, published)
    assert other.provisional_events(store.overview()) == []
    counting.count(0, counting.batch("delay", [1.0] * 20, 0))
    key = f"{published._key}:provisional"
    store.client.hset(key, "delay", b"\xff")  # spoilt
    assert len(other.provisional_events(store.overview())) == 1
    store.client.set(key, b"spoilt")
    finalizer = finalizer_of(store, counting.metrics, published)
    assert finalizer.provisional_events(store.overview()) == []
    assert key in str(finalizer.unreadable_total)


def test_panes_of_several_metrics_are_one_batch_up_to_one_that_cannot_be_read(
    counting: Counting, published: PublishedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = counting.store
    finalizer = finalizer_of(store, counting.metrics, published)
    for name, value in (("delay", 1.0), ("carrier", 0)):
        counting.count(0, counting.batch(name, [value] * 20, 0), *beats(counting.metrics[name], 1))
    overview = store.overview()
    with monkeypatch.context() as patched:
        patched.setattr(Store, "overview", None)  # it grows with the number of metrics
        (batch,) = batch_events(finalizer.final_events(overview, 1))
        assert sorted(event.subject for event in batch) == ["carrier", "delay"]
    spoilt = f"{published._key}:final:{metric_key('delay', counting.metrics['delay'].revision)}"
    store.client.set(spoilt, b"spoilt")
    events = finalizer_of(store, counting.metrics, published).final_events(overview, 1)
    (event,) = next(batch_events(events))
    assert (event.subject, store.client.delete(spoilt)) == ("carrier", 1)
    for key in store.client.keys(f"{{dither:{store.topic}:0}}:[pt]*:carrier@*"):
        store.client.set(key, b"spoilt")
    finalizer = finalizer_of(store, counting.metrics, published)
    assert [one.subject for one in finalizer.provisional_events(store.overview())] == ["delay"]
    assert "total:carrier@" in str(finalizer.unreadable_total)
    found = batch_events(finalizer.final_events(store.overview(), 1))
    assert [event.subject for event in next(found)] == ["delay"]
    with pytest.raises(StateUnreadable):
        next(found)


@pytest.mark.parametrize("seconds", [60.0, -1.0])
def test_no_metric_waits_until_all_panes_of_another_one_are_published(
    counting: Counting,
    published: PublishedLog,
    finalizer: PaneFinalizer,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
) -> None:
    """A turn that is over in time has two panes of each metric; else the next metric is next."""
    monkeypatch.setattr(due_events, "BATCH_EVENTS", 2)
    monkeypatch.setattr(due_events, "TURN_SECONDS", seconds)
    for name, value, last in (("delay", 1.0, 4), ("carrier", 0, 0)):
        batches = [counting.batch(name, [value] * 20, minute) for minute in range(last + 1)]
        counting.count(0, *batches, *beats(counting.metrics[name], last + 1))
    turns: list[list[str]] = []
    while events := due(finalizer):
        turns.append([event.subject for event in events])
        published.note_committed(events, {})
    first = [["delay", "delay", "carrier"]] if seconds > 0 else [["delay", "delay"], ["carrier"]]
    assert turns == [*first, ["delay", "delay"], ["delay"]]
    assert not finalizer.is_behind


def emptied(store: Store) -> None:
    """Lose every partition, and nothing else."""
    store.client.delete(*store.client.keys(f"{{dither:{store.topic}:*"))


def test_what_redis_lost_while_it_was_looked_through_is_due_when_it_is_counted_again(
    counting: Counting, finalizer: PaneFinalizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [counting.batch("delay", [1.0] * 20, at) for at in (0, 1)]
    everything: list[ReportBatch | bytes] = [*batches, *beats(counting.metrics["delay"], 2)]
    counting.count(0, *everything)
    first = PaneIndex.first_starts

    def lost(self: PaneIndex, *arguments: Any) -> Any:
        emptied(counting.store)
        return first(self, *arguments)

    with monkeypatch.context() as torn:
        torn.setattr(PaneIndex, "first_starts", lost)
        assert due(finalizer) == []
    counting.count(0, *everything)
    assert minutes(due(finalizer)) == ["00:00:00Z", "00:01:00Z"]


def test_sums_that_were_read_while_they_were_counted_anew_are_not_published(
    counting: Counting, finalizer: PaneFinalizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = [counting.batch("delay", [1.0] * 20, at) for at in (0, 1, 1)]
    closing = beats(counting.metrics["delay"], 2)
    counting.count(0, *batches, *closing)
    statistics = PaneIndex.read_statistics

    def counted_by_half(self: PaneIndex, *arguments: Any) -> Any:
        emptied(counting.store)
        counting.count(0, *batches[:2])
        found = statistics(self, *arguments)
        counting.count(0, *batches[2:], *closing)
        return found

    with monkeypatch.context() as torn:
        torn.setattr(PaneIndex, "read_statistics", counted_by_half)
        assert due(finalizer) == []
    assert [json.loads(event.data)["reports"] for event in due(finalizer)] == [20, 40]


def kept(metrics: dict[str, Metric]) -> dict[str, Metric]:
    """Return the metrics, the panes of delays to expire in a hundred years."""
    return {**metrics, "delay": dataclasses.replace(metrics["delay"], retention="36500d")}


def lose(store: Store, partition: int, minute: int) -> str:
    """Delete a partition's pane of delays, as its expiry does."""
    (key,) = store.client.keys(
        f"{{dither:{store.topic}:{partition}}}:pane:delay@*:{EPOCH + minute * MINUTE}"
    )
    store.client.delete(key)
    return str(key, "utf-8") if isinstance(key, bytes) else key


def test_a_pane_that_has_expired_in_one_partition_is_passed_by(
    store: Store, metrics: dict[str, Metric], published: PublishedLog
) -> None:
    metrics = kept(metrics)
    counting = Counting(store, metrics)
    for number in (0, 1):
        delays = (counting.batch("delay", [1.0] * 20, at) for at in (0, 1))
        counting.count(number, *delays, *beats(metrics["delay"], 3))
    lose(store, 1, 0)
    batch = due(finalizer_of(store, metrics, published), 2)
    assert minutes(batch) == ["00:01:00Z"]
    assert json.loads(batch[0].data)["reports"] == 40
    key = metric_key("delay", metrics["delay"].revision)
    assert store.registry.expired_panes([key]) == [1]
    published.note_committed(batch, {})
    assert due(finalizer_of(store, metrics, published), 2) == []
    assert store.registry.expired_panes([key]) == [1], "counted once, whoever publishes"


def test_a_pane_that_was_deleted_is_no_part_of_a_final_event(
    store: Store, counting: Counting, finalizer: PaneFinalizer
) -> None:
    delay, carrier = (counting.metrics[name] for name in ("delay", "carrier"))
    for number in (0, 1):
        delays = (counting.batch("delay", [1.0] * 20, at) for at in (0, 1))
        counting.count(number, *delays, *beats(delay, 3))
        counting.count(number, counting.batch("carrier", [0] * 100, 0, 8), *beats(carrier, 3))
    key, found = lose(store, 1, 0), list[Event]()
    with pytest.raises(StateUnreadable, match=re.escape(f"nothing at {key}: expected a pane")):
        found.extend(finalizer.final_events(store.overview(), 2))
    assert [event.key.partition("@")[0] for event in found] == ["carrier"], "others go on"


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 40), marks=pytest.mark.more)])
def test_every_pane_has_one_final_event_with_all_its_reports_however_it_comes_about(
    redis_server: Redis,
    metrics: dict[str, Metric],
    store: Store,
    published: PublishedLog,
    seeds: range,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counting, closing and publishing interleave, and others take over to publish."""
    monkeypatch.setattr(due_events, "BATCH_EVENTS", 3)
    monkeypatch.setattr(due_events, "BATCH_SECONDS", -1)  # an event is a batch
    for seed in seeds:
        with row("seed", seed):
            redis_server.clear()
            assert published.lease.acquire()
            interleave(store, metrics, published, random.Random(seed))


def interleave(
    store: Store, metrics: dict[str, Metric], published: PublishedLog, rng: random.Random
) -> None:
    counting, delay = Counting(store, metrics), metrics["delay"]
    counted: Counter[str] = Counter()
    found: dict[str, int] = {}
    minute, closed = [0, 0, 0], [0, 0, 0]
    for number in range(3):
        counting.count(number)
    finalizer = finalizer_of(store, metrics, published)
    under_way = batch_events(finalizer.final_events(store.overview(), 3))

    def count() -> None:
        number = rng.randrange(3)
        minute[number] = max(minute[number], closed[number]) + rng.randrange(4)
        counting.count(number, counting.batch("delay", [1.0] * 20, minute[number]))
        counted[f"{minute[number] // 60:02}:{minute[number] % 60:02}:00Z"] += 20

    def close() -> None:
        number = rng.randrange(3)
        closed[number] = max(closed[number], max(minute) + 1)
        counting.count(number, *beats(delay, closed[number]))

    def publish() -> bool:
        nonlocal under_way
        batch: list[Event] = next(under_way, [])
        if not batch:
            under_way = batch_events(finalizer.final_events(store.overview(), 3))
            batch = next(under_way, [])
        published.note_committed(batch, {})
        for event, at in zip(batch, minutes(batch), strict=True):
            assert at not in found, "published twice"
            found[at] = json.loads(event.data)["reports"]
        return bool(batch)

    for _ in range(rng.randrange(10, 40)):
        rng.choices([count, close, publish], [3, 1, 2])[0]()
        if rng.random() < 0.05:  # another takes over
            finalizer = finalizer_of(store, metrics, published)
            under_way = batch_events(finalizer.final_events(store.overview(), 3))
    for number in range(3):
        counting.count(number, *beats(delay, max(minute) + 1))
    while publish():
        pass
    assert found == counted
