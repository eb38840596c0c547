"""What is read of a partition is of one state, whatever is committed while it is read."""

import contextlib
import dataclasses
import functools
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest
import redis

from aggregator.errors import StateUnreadable
from aggregator.reading.pane_sums import PaneSums, total_request
from aggregator.state.pane_keys import metric_key
from aggregator.storage import consistent_read
from aggregator.storage.redis_keys import tag
from aggregator.storage.store import Store
from estimators import Metric
from tests.support.metrics import frequency_metric
from tests.support.reports.counted import Counting

HOUR = 60


class Interleaved:
    """A store to which something happens before one of the commands that read it, or before all."""

    def __init__(self, store: Store, at: int | None, happens: Callable[[], None]) -> None:
        self.store = Store(store.client, store.topic)
        self.asked, self._at, self._happens, self._ask = 0, at, happens, store.ask
        self.store.ask = self.ask  # type: ignore[method-assign]
        self.store.stream = self.stream  # type: ignore[method-assign]

    def ask(self, commands: Sequence[Any]) -> list[Any]:
        replies: list[Any] = []
        for command in commands:
            if self._at in (None, self.asked):
                self._happens()
            self.asked += 1
            replies += self._ask([command])
        return replies

    @contextlib.contextmanager
    def stream(self, groups: Sequence[Sequence[Any]]) -> Iterator[Iterator[Any]]:
        yield (reply for group in groups for reply in self.ask(group))


def close_and_open(counting: Counting) -> None:
    """Count batches by which a pane is closed and another one opened."""
    first = counting.store.partition.snapshot(0).next_offset * HOUR
    counting.count(0, *(counting.batch("delay", [9.0] * 7, first + at) for at in (1, 5 * HOUR)))


def total(store: Store, metric: Metric) -> Any:
    key = metric_key(metric.name, metric.revision)
    wanted: Any = dataclasses.replace(total_request(metric, key, [0, 1]), fold=cast(Any, list))
    return sorted(pair for pairs in store.panes.totals([wanted])[0] for pair in pairs)


def streamed(store: Store, metric: Metric) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consistent_read, "LARGE_BYTES", 0)
        patch.setattr(consistent_read, "GROUP_BYTES", 1)
        key = metric_key(metric.name, metric.revision)
        return [*map(bytes, store.panes.totals([total_request(metric, key, [0, 1])])[0])]


def state(store: Store, _: Metric) -> Any:
    found = store.partition.snapshot(0)
    return found.next_offset, found.counts, found.watermarks, found.open


@pytest.mark.parametrize("read", [total, streamed, state])
def test_a_commit_between_any_two_commands_is_seen_whole_or_not_at_all(
    read: Callable[[Store, Metric], Any],
    store: Store,
    metrics: dict[str, Metric],
    redis_server: Any,
) -> None:
    delay, seen, at = metrics["delay"], set[str](), 0
    while True:
        redis_server.clear()
        counting = Counting(store, metrics)
        for number in (0, 1):
            counting.count(number, counting.batch("delay", [1.0] * 5, 0))
        before = read(store, delay)
        reading = Interleaved(store, at, functools.partial(close_and_open, counting))
        found = read(reading.store, delay)
        after = read(store, delay)
        if reading.asked <= at:
            break
        assert before != after
        assert found in (before, after), f"a commit before command {at}"
        seen.add("before" if found == before else "after")
        at += 1
    assert at > 5
    assert "after" in seen


def count_more(counting: Counting) -> None:
    """Count a batch of a pane that is open, so that the same panes are."""
    counting.count(0, counting.batch("delay", [9.0], 0))


@pytest.mark.parametrize("happens", [close_and_open, count_more])
def test_a_partition_that_never_stands_still_is_refused_after_a_while(
    happens: Callable[[Counting], None],
    store: Store,
    metrics: dict[str, Metric],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consistent_read, "MAX_READ_ATTEMPTS", 4)
    counting = Counting(store, metrics)
    counting.count(0, counting.batch("delay", [1.0], 0))
    reading = Interleaved(store, None, functools.partial(happens, counting))
    with pytest.raises(redis.exceptions.TryAgainError, match="changes while it is read"):
        total(reading.store, metrics["delay"])


def test_what_is_no_pane_and_no_total_is_refused(store: Store, metrics: dict[str, Metric]) -> None:
    key, place = metric_key("delay", metrics["delay"].revision), tag(store.topic, 0)
    counting = Counting(store, metrics)
    counting.count(0, counting.batch("delay", [1.0], 0))
    store.client.sadd(f"{place}:open", f"pane:{key}:now")
    with pytest.raises(StateUnreadable, match="expected all committed entries"):
        total(store, metrics["delay"])
    store.client.srem(f"{place}:open", f"pane:{key}:now")
    store.client.hincrby(f"{place}:owner", "begun", 1)
    store.client.delete(f"{place}:open")
    assert total(store, metrics["delay"]) == [], "after half a commit no size is believed"
    store.client.rpush(f"{place}:total:{key}:0", "a list")
    with pytest.raises(StateUnreadable, match="another type"):
        total(store, metrics["delay"])


def test_large_sums_are_not_all_in_memory(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of 15 MB take 30 times as long."""
    big = frequency_metric(
        "big", "count_sketch", "open", [8], options={"rows": 8, "buckets": 4096}, lateness="40h"
    )
    counting, size = Counting(store, {"big": big}), big.zero().nbytes
    counting.count(0, *(counting.batch("big", ["/"] * 3, hour * HOUR, 8) for hour in range(20)))
    assert store.client.scard(f"{tag(store.topic, 0)}:open") == 20
    monkeypatch.setattr(consistent_read, "LARGE_BYTES", size)
    monkeypatch.setattr(consistent_read, "GROUP_BYTES", size)
    tracemalloc.start()
    assert PaneSums(store).count_reports(big, metric_key("big", big.revision), [0]) == 60
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * size
