"""`dither recount` deletes all of a partition, and nothing that was counted again."""

import functools
from typing import Any

import pytest

from aggregator.config.settings import Aggregate
from aggregator.counting import recount
from aggregator.counting.continuity import Log
from aggregator.counting.recount import UNDER_WAY, delete_counts
from aggregator.counting.takeover import acquire_partition
from aggregator.errors import DitherError, Fenced
from aggregator.state.partition import Partition
from aggregator.storage.progress import TORN, UNSET
from aggregator.storage.store import Store
from tests.support.redis_contents import dumped
from tests.support.reports.counted import TOPIC
from tests.support.reports.messages import EPOCH, LogMessage, batch, log
from tests.support.reports.partitions import DELAY, FUTURE_MS, METRICS, MINUTE

PANES = 700
FACTS = {"begin": 0}


@functools.cache
def messages(panes: int) -> list[LogMessage]:
    """Return a log with a report in each of so many panes."""
    return log(*(batch(DELAY, [1.0], 1, EPOCH + i * MINUTE, i) for i in range(panes)))


def counted(store: Store, number: int, panes: int = PANES) -> tuple[int, Partition]:
    """Count a partition from the beginning of its log; return the epoch and its state."""
    snapshot = store.partition.acquire(number, "one")
    assert snapshot.next_offset == UNSET
    partition = snapshot.partition(METRICS, FUTURE_MS)
    partition.count(messages(panes))
    store.partition.commit(number, int(snapshot.owner["epoch"]), UNSET, partition, FACTS)
    return int(snapshot.owner["epoch"]), partition


def contents(store: Store, number: int) -> dict[bytes, Any]:
    own = (b":owner", b":committed")  # epochs, names and times
    found = dumped(store.client, f"{{dither:{TOPIC}:{number}}}:*")
    return {key: value for key, value in found.items() if not key.endswith(own)}


def test_everything_of_a_partition_goes_and_it_is_counted_again_alike(store: Store) -> None:
    counted(store, 0)
    counted(store, 1, 10)
    before, other = contents(store, 0), contents(store, 1)
    assert (
        delete_counts(store, 0) == len(before) + 2
    )  # and the owner, and the mark of its last commit
    assert contents(store, 0) == {}
    assert store.owner(0) == {}
    assert contents(store, 1) == other
    counted(store, 0)
    assert contents(store, 0) == before


def test_nothing_is_counted_while_deleted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    epoch, partition = counted(store, 0)
    unlink, tried = recount._unlink, []

    def meanwhile(script: Any, number: int, keys: Any, token: str) -> int:
        assert store.owner(0)["next"] == str(TORN)
        partition.count(log(batch(DELAY, [1.0], 1, EPOCH, 10**6), first=PANES))
        with pytest.raises(Fenced):
            store.partition.commit(0, epoch, PANES, partition, FACTS)
        owned = acquire_partition(store, 0, "two", Log(lambda: (0, PANES)), METRICS, Aggregate())
        assert owned.halted == UNDER_WAY
        owned.commit(store, PANES)  # of what is halted: nothing
        tried.append(len(keys))
        return unlink(script, number, keys, token)

    monkeypatch.setattr(recount, "_unlink", meanwhile)
    delete_counts(store, 0)
    assert len(tried) > 2
    assert contents(store, 0) == {}


def deleted_under(store: Store, monkeypatch: pytest.MonkeyPatch, chunk: int, what: Any) -> None:
    """Do something before one of the chunks of a deletion, which must then stop."""
    unlink, left = recount._unlink, [chunk]

    def overtaken(*arguments: Any) -> int:
        left[0] -= 1
        if left[0] < 0:
            monkeypatch.setattr(recount, "_unlink", unlink)
            what()
        return unlink(*arguments)

    monkeypatch.setattr(recount, "_unlink", overtaken)
    with pytest.raises(DitherError, match=r"another `dither recount` has marked it"):
        delete_counts(store, 0)


@pytest.mark.parametrize("chunk", [0, 2])
def test_one_that_was_overtaken_deletes_nothing_that_was_counted_since(
    store: Store, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    counted(store, 0)
    before = contents(store, 0)

    def another() -> None:
        delete_counts(store, 0)
        counted(store, 0)

    deleted_under(store, monkeypatch, chunk, another)
    assert contents(store, 0) == before
    assert store.overview().partitions[0].is_intact


def test_who_was_overtaken_leaves_the_mark(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    counted(store, 0)
    mark = functools.partial(recount._mark, store, f"{{dither:{TOPIC}:0}}:owner", "other")
    deleted_under(store, monkeypatch, 2, mark)
    assert store.overview().partitions[0].is_halted
    delete_counts(store, 0)


@pytest.mark.parametrize("name", ["owner", "open"])
def test_keys_of_another_type_go_too(store: Store, name: str) -> None:
    counted(store, 0, 10)
    store.client.delete(f"{{dither:{TOPIC}:0}}:{name}")
    store.client.set(f"{{dither:{TOPIC}:0}}:{name}", "something")
    delete_counts(store, 0)
    assert contents(store, 0) == {}
    counted(store, 0, 10)
