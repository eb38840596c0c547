"""A commit is whole or not at all, and only the latest owner's counts."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from aggregator.errors import Fenced, PartialCommit, StateUnreadable
from aggregator.state.pane_keys import metric_key
from aggregator.state.partition import Partition
from aggregator.storage import snapshot
from aggregator.storage.progress import TORN, UNSET
from aggregator.storage.redis_keys import partitions_key
from aggregator.storage.store import Store
from aggregator.timestamps import LAST_MS
from estimators import Metric
from tests.support.redis_contents import dumped
from tests.support.reports.counted import TOPIC
from tests.support.reports.messages import ARRIVAL, DAY, EPOCH, agreeing, batch, log
from tests.support.reports.partitions import DELAY, FUTURE_MS, HOUR, METRICS, MINUTE


def acquired(store: Store, worker: str = "one") -> tuple[int, int, Partition]:
    taken = store.partition.acquire(0, worker)
    return int(taken.owner["epoch"]), taken.next_offset, taken.partition(METRICS, FUTURE_MS)


def contents(store: Store) -> dict[bytes, Any]:
    own = (b":owner", b":committed")  # epochs, names and times
    return {key: x for key, x in dumped(store.client).items() if not key.endswith(own)}


def test_a_partition_comes_back_as_it_was_committed(store: Store) -> None:
    epoch, expected, partition = acquired(store)
    assert expected == UNSET
    messages = [batch(DELAY, [1.0, 2.0], 1, EPOCH + i * 7 * MINUTE, i) for i in range(20)]
    partition.count(log(*messages, b"bad"))
    store.partition.commit(0, epoch, expected, partition, {"high": 21})
    later, next_offset, restored = acquired(store, "two")
    assert later == epoch + 1
    assert next_offset == restored.next_offset == 21
    assert restored.counts == partition.counts
    assert restored.watermarks == partition.watermarks
    assert restored.panes.keys() == partition.panes.keys()
    for key, pane in partition.panes.items():
        assert (restored.panes[key].statistic == pane.statistic).all()
        assert restored.panes[key].batch_ids == pane.batch_ids
        assert restored.panes[key].first_offset == pane.first_offset


def test_an_owner_of_an_older_epoch_is_fenced_and_changes_nothing(store: Store) -> None:
    epoch, expected, old = acquired(store, "old")
    old.count(log(batch(DELAY, [1.0], seed=1)))
    acquired(store, "new")
    before = contents(store)
    for _ in range(2):
        with pytest.raises(Fenced) as fence:
            store.partition.commit(0, epoch, expected, old, {})
        assert fence.value.has_other_owner
        assert contents(store) == before
        store.client.hdel(f"{{dither:{TOPIC}:0}}:owner", "token")  # an earlier version sets none


def test_a_store_that_went_back_in_time_fences_its_own_worker(store: Store) -> None:
    epoch, expected, partition = acquired(store)
    partition.count(log(batch(DELAY, [1.0], seed=1)))
    store.partition.commit(0, epoch, expected, partition, {})
    store.client.hset(f"{{dither:{TOPIC}:0}}:owner", "next", 0)
    partition.count(log(batch(DELAY, [1.0], seed=2), first=1))
    with pytest.raises(Fenced) as fence:
        store.partition.commit(0, epoch, 1, partition, {})
    assert not fence.value.has_other_owner


def test_a_commit_of_its_offset_may_repeat(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the topic was made anew, the new one's next offset may be that of the old one."""
    epoch, expected, partition = acquired(store)
    partition.count(log(batch(DELAY, [1.0], seed=1)))
    store.partition.commit(0, epoch, expected, partition, {})
    run: Any = store.partition._commit

    def twice(*arguments: Any) -> Any:
        run(*arguments)
        return run(*arguments)

    monkeypatch.setattr(store.partition, "_commit", twice)
    partition.next_offset = 0
    partition.count(log(batch(DELAY, [1.0], seed=2)))
    store.partition.commit(0, epoch, 1, partition, {})
    (seen,) = (pane.ids for pane in store.partition.snapshot(0).open.values())
    (pane,) = partition.panes.values()
    assert len(seen) == 2
    assert seen == pane.batch_ids


def test_a_flushed_store_fences_until_the_partition_is_taken_again(store: Store) -> None:
    epoch, expected, partition = acquired(store)
    store.client.flushdb()
    partition.count(log(batch(DELAY, [1.0], seed=1)))
    with pytest.raises(Fenced):
        store.partition.commit(0, epoch, expected, partition, {})
    another = Store(store.client, TOPIC)
    assert acquired(another, "two")[:2] == (epoch, expected), "its token alone is another"
    with pytest.raises(Fenced):
        store.partition.commit(0, epoch, expected, partition, {})


def test_a_pane_is_kept_from_its_last_reports_arrival_by_redis_time(store: Store) -> None:
    kept = dataclasses.replace(DELAY, retention="36500d")
    name = metric_key("delay", kept.revision)
    for number, arrived in enumerate((ARRIVAL + DAY, 2**63 - 600_001)):
        taken = store.partition.acquire(number, "one")
        partition = taken.partition({"delay": kept}, FUTURE_MS)
        partition.watermarks[name].arrived = arrived
        partition.count(log(*agreeing(kept, EPOCH, 1), *agreeing(kept, EPOCH + HOUR, 20)))
        store.partition.commit(number, int(taken.owner["epoch"]), UNSET, partition, {})
        key = f"{{dither:{TOPIC}:{number}}}:pane:{name}:{EPOCH}"
        until = min(arrived + 36_500 * DAY, LAST_MS)
        is_open = ("PEXPIRETIME", key.replace(str(EPOCH), str(EPOCH + HOUR)))
        assert store.ask([("PEXPIRETIME", key), is_open]) == [until, -1]


def test_a_commit_that_fails_half_way_is_marked_as_torn(store: Store) -> None:
    epoch, expected, partition = acquired(store)
    partition.count(log(batch(DELAY, [1.0], seed=1)))
    store.client.set(f"{{dither:{TOPIC}:0}}:open", "not a set")
    with pytest.raises(PartialCommit, match=rf"SADD {{dither:{TOPIC}:0}}:open: WRONGTYPE"):
        store.partition.commit(0, epoch, expected, partition, {})
    assert store.owner(0)["next"] == str(TORN)
    assert "WRONGTYPE" in store.owner(0)["halted"]
    with pytest.raises(Fenced):
        store.partition.commit(0, epoch, expected, partition, {})


def test_a_commit_that_redis_ran_by_half_when_it_started_fences_the_next_one(store: Store) -> None:
    epoch, expected, partition = acquired(store)
    partition.count(log(batch(DELAY, [1.0], seed=1)))
    store.client.srem(partitions_key(TOPIC), 0)
    store.partition.commit(0, epoch, expected, partition, {})
    assert list(store.partitions()) == [0], "a Redis Cluster may have lost that it is there"
    store.client.hincrby(f"{{dither:{TOPIC}:0}}:owner", "begun", 1)
    before = contents(store)
    partition.count(log(batch(DELAY, [1.0], seed=2), first=1))
    with pytest.raises(Fenced):
        store.partition.commit(0, epoch, 1, partition, {})
    assert contents(store) == before
    assert store.owner(0)["next"] == str(TORN)


def calls(store: Store, *commands: str) -> list[int]:
    """Return how often Redis has run commands."""
    found: Any = store.client.info("commandstats")
    return [found.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in commands]


def test_what_keys_used_goes_with_the_pane(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "USES_PER_SCAN", 500)
    limited = {"delay": dataclasses.replace(DELAY, max_key_reports=10_000)}

    def owner() -> tuple[int, int, Partition]:
        taken = store.partition.acquire(0, "one")
        return int(taken.owner["epoch"]), taken.next_offset, taken.partition(limited, FUTURE_MS)

    epoch, expected, partition = owner()
    messages = log(*(batch(DELAY, [1.0, 2.0], seed=seed) for seed in range(2_600)))
    for message in messages:
        message.about = b"%d" % (message.at % 2_300)
    partition.count(messages[:2_500])
    store.partition.commit(0, epoch, expected, partition, {})
    ((key, pane),) = partition.panes.items()
    assert sorted(pane.used.values()) == [2] * 2_100 + [4] * 200
    (before,) = calls(store, "hscan")
    epoch, expected, restored = owner()
    assert restored.panes[key].used == pane.used
    assert calls(store, "hscan")[0] >= before + 4, "in pieces, so that Redis answers others"
    restored.count(messages[2_500:])
    store.partition.commit(0, epoch, expected, restored, {})
    assert store.partition.snapshot(0).open[key].used == restored.panes[key].used
    assert sum(restored.panes[key].used.values()) == 5_200
    restored.count(log(*agreeing(DELAY, EPOCH + HOUR, 9_000), first=2_600))
    (deleted,) = calls(store, "del")
    store.partition.commit(0, epoch, 2_600, restored, {})
    assert calls(store, "del") == [deleted], "it frees what it deletes afterwards"
    client: Any = store.client
    assert len(list(client.scan_iter(match="*:keys:*"))) == 1, "that of the open pane"


def test_a_worker_is_stuck_until_it_gets_on_or_is_silent(store: Store) -> None:
    store.registry.note_stuck("host:7", "committing", 61.4, now_ms=1_000_000)
    store.registry.note_stuck("host:8", "taking over", 70.0, now_ms=1_000_000)
    assert store.registry.stuck_workers(1_010_000) == {
        "host:7": ("committing", 61),
        "host:8": ("taking over", 70),
    }
    store.registry.note_stuck("host:8", "consuming", 0.0, now_ms=1_010_000)
    assert store.registry.stuck_workers(1_010_000) == {"host:7": ("committing", 61)}
    assert store.registry.stuck_workers(1_070_000) == {}, "it has ended"


@pytest.mark.parametrize("most", [None, 100])
def test_a_closed_pane_stays_closed_with_more_lateness(store: Store, most: int | None) -> None:
    """Its batch ids are gone, and its sums would begin anew."""
    punctual = dataclasses.replace(DELAY, lateness="0s", max_key_reports=most)
    patient = dataclasses.replace(punctual, lateness="1d")
    key = metric_key("delay", punctual.revision)
    assert key == metric_key("delay", patient.revision)
    hour_later = agreeing(punctual, EPOCH + HOUR, 100)
    stragglers = [batch(punctual, [1.0], 1, EPOCH + at, at) for at in (1, HOUR + 1)]
    messages = log(batch(punctual, [1.0]), *hour_later, *stragglers)
    taken = store.partition.acquire(0, "one")
    partition = taken.partition({"delay": punctual}, FUTURE_MS)
    assert partition.count(messages[:9]) == []
    store.partition.commit(0, int(taken.owner["epoch"]), UNSET, partition, {})
    before = store.client.get(f"{{dither:{TOPIC}:0}}:pane:{key}:{EPOCH}")
    taken = store.partition.acquire(0, "two")
    partition = taken.partition({"delay": patient}, FUTURE_MS)
    assert [refusal.reason for refusal in partition.count(messages[9:])] == ["late"]
    store.partition.commit(0, int(taken.owner["epoch"]), 9, partition, {})
    after = store.client.get(f"{{dither:{TOPIC}:0}}:pane:{key}:{EPOCH}")
    assert before == after is not None


# -- Open panes of definitions that are no longer in force: what a takeover does with them ---------

OLD = {"delay": dataclasses.replace(DELAY, lateness="1d", retention="1d", max_key_reports=99)}
NEW = {"delay": dataclasses.replace(OLD["delay"], pane="5m")}
BATCHES = 20


def counted_by(
    store: Store, metrics: Mapping[str, Metric], batches: int = BATCHES
) -> tuple[Partition, int]:
    """Take the partition over, count batches of its open pane, and commit."""
    taken = store.partition.acquire(0, "one", metrics=metrics)
    state, first = taken.partition(metrics, FUTURE_MS), max(0, taken.next_offset)
    found = (batch(metrics["delay"], [1.0], 1, EPOCH, first + i) for i in range(batches))
    state.count(log(*found, first=first))
    store.partition.commit(0, int(taken.owner["epoch"]), taken.next_offset, state, {})
    return state, first


def test_a_takeover_reads_nothing_of_panes_that_no_definition_counts(store: Store) -> None:
    counted_by(store, OLD)
    read = calls(store, "getrange", "hscan")
    taken = store.partition.acquire(0, "two", metrics=NEW)
    assert (calls(store, "getrange", "hscan"), taken.open) == (read, {})
    assert taken.uncounted == store.members(f"{{dither:{TOPIC}:0}}:open")
    counted_by(store, NEW)
    revisions = {key.metric for key in store.partition.acquire(0, "two", metrics=NEW).open}
    assert revisions == {metric_key("delay", NEW["delay"].revision)}


def test_a_definition_that_comes_back_finds_its_open_panes(store: Store) -> None:
    counted_by(store, OLD)
    counted_by(store, NEW)
    state, _ = counted_by(store, OLD, 1)
    ((pane,),) = ([pane for pane in state.panes.values() if pane.batch_ids],)
    assert len(pane.batch_ids) == BATCHES + 1
    assert [*pane.used.values()] == [BATCHES + 1]


def test_reads_share_round_trips_and_one_that_fails_stops_no_other(store: Store) -> None:
    def add_twice() -> list[int]:
        return [store.ask([("INCR", "sum")])[0] for _ in range(2)]

    assert store.together(add_twice, add_twice) == [[1, 3], [2, 4]]
    with pytest.raises(StateUnreadable):
        store.together(lambda: store.ask([("HGET", "sum", "field")]), add_twice)
    assert add_twice() == [7, 8]
