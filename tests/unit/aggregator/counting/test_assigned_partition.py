"""Taking a partition over: where counting goes on, and when it must not."""

import copy
import dataclasses
import re
import shlex
from array import array
from collections.abc import Sequence
from typing import Any
from unittest.mock import MagicMock, Mock

import pytest
import redis

from aggregator.config.settings import Aggregate, Settings
from aggregator.counting import recount
from aggregator.counting.assigned_partition import AssignedPartition, WorkerContext
from aggregator.counting.assignment import Assignment
from aggregator.counting.continuity import KnownProgress, Log, Mark
from aggregator.counting.takeover import acquire_partition
from aggregator.counting.watchdog import Watchdog
from aggregator.storage.store import Store
from tests.support.reports.counted import TOPIC
from tests.support.reports.messages import LogMessage, batch, log
from tests.support.reports.partitions import DELAY, METRICS


def taken(
    store: Store,
    low: int,
    high: int,
    topic_id: str = "",
    on_gap: str = "stop",
    worker: str = "one",
    messages: Sequence[LogMessage] = (),
    remembered: tuple[KnownProgress, ...] = (),
    group: str = "dither",
) -> AssignedPartition:
    def mark(offset: int) -> Mark | None:
        return next((Mark.of(found) for found in messages if found.offset() >= offset), None)

    asked = Log(lambda: (low, high), mark, lambda: remembered, topic_id)
    return acquire_partition(
        store, 0, worker, asked, METRICS, Aggregate(on_gap=on_gap, group=group)
    )


def written(first: int, last: int, epoch: int = 0, seed: int = 0) -> list[LogMessage]:
    """Return the messages of a log in [first, last)."""
    payloads = (batch(DELAY, [1.0], seed=seed + at) for at in range(first, last))
    return [dataclasses.replace(found, epoch=epoch) for found in log(*payloads, first=first)]


def count(owned: AssignedPartition, first: int, batches: int = 1) -> None:
    seeds = range(first, first + batches)
    owned.state.count(log(*(batch(DELAY, [1.0], seed=i) for i in seeds), first=first))


def counted(
    store: Store, low: int, high: int, batches: int, topic_id: str = "", **more: Any
) -> AssignedPartition:
    """Take a partition over, count so many batches from the beginning of its log, and commit."""
    owned = taken(store, low, high, topic_id, **more)
    count(owned, low, batches)
    owned.commit(store, high)
    return owned


@pytest.mark.parametrize(
    ("low", "high", "topic_id", "reason"),
    [
        (7, 9, "A", "4 offsets are gone: counted up to 3, log begins at 7"),
        (0, 2, "A", "the log ends at 2, before the counted 3: it was truncated"),
        (0, 9, "B", r"deleted and created again \(id A, now B\)"),
    ],
)
def test_a_log_that_does_not_go_on_halts_the_partition_with_what_to_do(
    store: Store, low: int, high: int, topic_id: str, reason: str
) -> None:
    counted(store, 0, 3, 3, "A")
    halted = taken(store, low, high, topic_id, messages=written(0, 9))
    assert not halted.is_counting
    assert re.search(reason, halted.halted)
    assert "aggregate.on_gap=skip" in halted.halted
    halted.commit(store, high)
    assert store.owner(0)["halted"] == halted.halted
    assert store.partition.snapshot(0).next_offset == 3
    assert store.owner(0)["topic_id"] == "A"


def test_a_gap_that_is_accepted_is_recorded_and_adds_up(store: Store) -> None:
    counted(store, 0, 3, 3)
    second = taken(store, 10, 20, on_gap="skip")
    assert second.is_counting
    assert second.state.next_offset == 10
    count(second, 10)
    second.commit(store, high=20)
    taken(store, 16, 20, on_gap="skip").commit(store, high=20)
    assert store.owner(0)["gap"] == str(7 + 5)
    assert store.partition.snapshot(0).next_offset == 16


@pytest.mark.parametrize(
    ("low", "high", "since", "epoch", "fork", "missing"),
    [
        (0, 6, 6, 0, 6, 4),  # cut off
        (0, 8, 6, 1, 6, 4),  # and grown, less far than it was
        (0, 30, 6, 1, 6, 4),  # and further
        (2, 10, 4, 3, 4, 6),  # just as far
        (9, 30, 9, 3, 9, 1),  # where the last message was the first that is left
        (0, 30, 6, 0, 10, 10),  # as an older copy, whose epochs come again: 10 at most
    ],
)
def test_a_log_that_was_truncated_halts_however_far_it_grew_and_skipping_goes_on_where_it_forks(
    store: Store, low: int, high: int, since: int, epoch: int, fork: int, missing: int
) -> None:
    old = written(0, 10)
    first = taken(store, 0, 10, messages=old)
    first.take(old[:4], Watchdog(0, 0))
    first.take(old[4:], Watchdog(0, 0))
    first.commit(store, high=10)
    assert not taken(store, 0, 10, messages=old).halted
    assert not taken(store, 0, 12, messages=old + written(10, 12, epoch=7)).halted
    now = old[low:since] + written(since, high, epoch=epoch, seed=100)
    halted = taken(store, low, high, messages=now)
    assert "truncated" in halted.halted
    assert "aggregate.on_gap=skip" in halted.halted
    halted.commit(store, high)
    assert store.partition.snapshot(0).next_offset == 10
    before = sum(store.counts(0).values())
    skipping = taken(store, low, high, on_gap="skip", messages=now)
    assert skipping.is_counting
    assert skipping.position == fork
    if rest := [message for message in now if message.offset() >= fork]:
        assert skipping.take(rest, Watchdog(0, 0))
        assert not skipping.rejections, "none is late, or a duplicate"
    skipping.commit(store, high)
    assert store.owner(0)["gap"] == str(missing)
    assert sum(store.counts(0).values()) == before + high - fork
    assert recount.describe_loss(store.owner(0), 0, high, "").startswith(f"{missing} offsets")
    assert not taken(store, low, high, messages=now).halted


def test_the_last_message_may_have_left_the_log_by_retention(store: Store) -> None:
    old = written(0, 10)
    first = taken(store, 0, 10, messages=old)
    first.take(old, Watchdog(0, 0))
    first.commit(store, high=10)
    assert not taken(store, 10, 15, messages=written(10, 15, seed=50)).halted


def test_what_was_counted_of_a_topic_that_is_gone_is_never_lost_silently(store: Store) -> None:
    counted(store, 40, 50, 10, "A")
    counted(store, 0, 5, 5, "B", on_gap="skip")
    owner = store.owner(0)
    assert (owner["begin"], owner["next"], owner["gap"]) == ("0", "5", "0")
    for told in ("B", ""):  # a cluster that names no topic says nothing of another one
        assert recount.describe_loss(owner, 0, 5, told).startswith("10 offsets that were counted")
    third = taken(store, 0, 3, "C", on_gap="skip")
    third.commit(store, high=3)
    assert store.owner(0)["vanished"] == "15"
    third = taken(store, 0, 3, "C")
    (known,) = third.progress
    assert KnownProgress.of_group(known.next, known.metadata) == known
    store.client.flushdb()
    assert "15 of its offsets are gone" in taken(store, 0, 3, "C", remembered=(known,)).halted
    skipping = taken(store, 0, 3, "C", on_gap="skip", remembered=(known,))
    skipping.commit(store, high=3)
    assert (store.owner(0)["gap"], skipping.progress) == ("15", (KnownProgress(0, 0, "C"),))


@pytest.mark.parametrize(
    ("low", "remembered", "lost"),
    [
        (0, KnownProgress(0, 10, "A"), 0),
        (5, KnownProgress(5, 10, "A"), 0),
        (5, KnownProgress(0, 0, "A"), 0),
        (5, KnownProgress(0, 10, "A"), 5),
        (20, KnownProgress(0, 10, "A"), 20),
        (0, KnownProgress(3, 10, "B"), 7),
        (6, KnownProgress(2, 10), 4),
    ],
)
def test_a_partition_that_redis_forgot_halts_if_the_log_has_not_all_that_was_counted(
    store: Store, low: int, remembered: KnownProgress, lost: int
) -> None:
    known = (remembered, KnownProgress(low, low, "A"))
    again = taken(store, low, 30, "A", remembered=known)
    if not lost:
        assert again.position == low
        assert not again.halted
        return
    assert f"{lost} of its offsets are gone" in again.halted
    assert "Restore Redis" in again.halted
    assert "aggregate.on_gap=skip" in again.halted
    again.commit(store, 30)
    assert store.owner(0)["halted"] == again.halted
    assert taken(store, low, 30, "A", remembered=known).halted, "nothing was decided"
    skipping = counted(store, low, 30, 1, "A", on_gap="skip", remembered=known)
    owner = store.owner(0)
    assert (owner["gap"], owner["begin"], owner["halted"]) == (str(lost), str(low), "")
    assert skipping.progress == (KnownProgress(low, low + 1, "A"),)


def test_another_group_on_the_same_redis_is_refused_and_fences_nobody(store: Store) -> None:
    client: Any = store.client
    first = counted(store, 0, 9, 1, group="one")
    before = store.owner(0)
    other = taken(store, 0, 9, worker="two", group="another")
    assert not other.is_counting
    assert other.is_unreadable, "it looks again now and then"
    assert "the consumer group 'one' counts this partition" in other.halted
    assert store.owner(0) == before
    count(first, 1)
    first.commit(store, 9)
    assert taken(store, 0, 9, worker="three", group="one").is_counting

    (command,) = re.findall(r"`redis-cli (hdel \S+ group)`", other.halted)
    client.execute_command(*shlex.split(command))
    second = taken(store, 0, 9, worker="two", group="another")
    assert (second.position, second.halted) == (2, "")
    assert "another" in taken(store, 0, 9, group="one").halted


def test_a_torn_partition_stays_as_it_is_and_says_how_to_count_it_again(store: Store) -> None:
    client: Any = store.client
    first = taken(store, 0, 3)
    count(first, 0)
    client.set(f"{{dither:{TOPIC}:0}}:open", "not a set")
    with pytest.raises(Exception, match="WRONGTYPE"):
        first.commit(store, high=3)
    client.delete(f"{{dither:{TOPIC}:0}}:open")
    torn = taken(store, 0, 3)
    assert "Run `dither recount 0`" in torn.halted
    assert taken(store, 0, 3).halted == torn.halted


def test_the_first_messages_are_asked_for_again_when_they_are_too_far_on(store: Store) -> None:
    owned = taken(store, 0, 50)
    assert owned.follows(0, 9), "just what comes next"
    owned = taken(store, 0, 50)
    assert not owned.follows(5, 9), "perhaps queued for an earlier assignment"
    assert owned.must_seek
    assert owned.follows(5, 9), "asked again, it is a gap of the log"
    owned = taken(store, 20, 50)
    assert owned.follows(3, 7), "all counted before"
    assert not owned.follows(30, 40)


def test_a_refused_message_takes_the_memory_of_its_key_and_headers_too(store: Store) -> None:
    owned = taken(store, 0, 5)
    more = [("trace", bytes(500))]
    assert owned.take([LogMessage(0, b"junk", about=bytes(1_000), more=more)], Watchdog(0, 0))
    assert len(owned.rejections) == 1
    assert owned.refused_bytes == 4 + 1_000 + 5 + 500
    assert owned.open_bytes == owned.refused_bytes


def test_where_redis_is_away_when_the_group_assigns_the_worker_backs_off() -> None:
    clock = Mock(monotonic=lambda: 0.0)
    assignment: Any = Assignment(
        WorkerContext(Settings(), Mock(), "one", MagicMock(), Mock(), clock), {}
    )
    assignment._acquire = Mock(side_effect=redis.ConnectionError)
    assignment._assigned(Mock(), [Mock(partition=0)])
    assert assignment.backoff.is_waiting


def test_a_commit_whose_reply_was_lost_is_measured_once(store: Store) -> None:
    owned = taken(store, 0, 5)
    count(owned, 0, 3)
    before = copy.deepcopy(owned)
    owned.commit(store, high=5)
    stored = store.owner(0)
    before.state.arrivals = array("q", [0] * 3)
    before.commit(store, high=5)
    assert store.owner(0) == stored
    assert before.measured == owned.measured, "a later attempt would have seen longer latencies"
