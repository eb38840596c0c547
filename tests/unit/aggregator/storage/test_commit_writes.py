"""No command that a script runs is longer than Lua takes, whatever was counted."""

import time
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregator.config.settings import Aggregate
from aggregator.counting.continuity import Log
from aggregator.counting.takeover import acquire_partition
from aggregator.errors import CommitTooLarge
from aggregator.state.batch_ids import BatchIds
from aggregator.state.pane import Pane
from aggregator.state.pane_keys import PaneKey
from aggregator.state.partition import Partition
from aggregator.storage import commit, partition_store
from aggregator.storage.commit import MAX_COMMAND_WORDS, commit_commands
from aggregator.storage.lease import Lease
from aggregator.storage.store import Store
from tests.support.reports.counted import TOPIC
from tests.support.reports.messages import EPOCH, batch, log
from tests.support.reports.partitions import DELAY, FUTURE_MS, METRICS

FEW = 40
"""A bound as small as that is reached by small partitions, too."""
SIZES = st.integers(0, 3 * FEW)


def pane(at: int, ids: int, keys: int, *, closed: bool) -> Pane:
    made = Pane(DELAY, at, DELAY.zero(), closed=closed)
    made.unsaved = [number.to_bytes(16, "big") for number in range(ids)]
    made.batch_ids = BatchIds(made.unsaved)
    made.used = {number.to_bytes(16, "big"): 1 for number in range(keys)}
    made.unsaved_keys = set(made.used)
    return made


@settings(max_examples=25)
@given(opened=SIZES, closed=SIZES, ids=SIZES, keys=SIZES, names=SIZES, facts=SIZES)
def test_no_write_is_longer_than_lua_takes(
    opened: int, closed: int, ids: int, keys: int, names: int, facts: int
) -> None:
    partition = Partition(METRICS, FUTURE_MS)
    for number in range(opened + closed):
        made = pane(number, ids and 1, keys and 1, closed=number < closed)
        partition.changed[PaneKey("pane", f"m{number % (names + 1)}", number)] = made
    partition.changed[PaneKey("pane", "last", 0)] = pane(0, ids, keys, closed=False)
    for number in range(names):
        partition.watermarks[f"m{number}"].advance(number)
        partition.counts[f"accepted:m{number}"] = number
    with patch.object(commit, "MAX_COMMAND_WORDS", FEW):
        found = list(
            commit_commands("{p}", partition, {f"f{number}": number for number in range(facts)})
        )
    assert max(map(len, found)) <= FEW
    assert sum(len(words) - 2 for words in found if words[:2] == ["SADD", "{p}:open"]) == opened + 1
    for name, size in (("counts", names), ("watermarks", names), ("owner", facts)):
        written = [words[2:] for words in found if words[:2] == ["HSET", f"{{p}}:{name}"]]
        assert all(len(words) % 2 == 0 for words in written), "a field stays with its value"
        assert len({name for words in written for name in words[::2]}) == size


def test_too_large_a_commit_writes_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_store, "MAX_SCRIPT_ARGUMENTS", 100)
    owned = acquire_partition(store, 0, "one", Log(lambda: (0, 20)), METRICS, Aggregate())
    messages = (batch(DELAY, [1.0], seed=at, time_ms=EPOCH + at * 3_600_000) for at in range(20))
    owned.state.count(log(*messages))
    with pytest.raises(CommitTooLarge, match="wider panes") as refused:
        owned.commit(store, 20)
    assert refused.value.panes >= 20
    assert store.owner(0).get("next") is None


def test_a_write_that_is_too_long_all_the_same_marks_and_writes_nothing(store: Store) -> None:
    client: Any = store.client
    snapshot = store.partition.acquire(0, "one")
    owner = f"{{dither:{TOPIC}:0}}:owner"
    before = client.hgetall(owner)
    words: list[str | int] = ["SADD", f"{{dither:{TOPIC}:0}}:open", *range(MAX_COMMAND_WORDS)]
    token = store.partition._tokens[0][1]
    head: list[str | int] = [snapshot.owner["epoch"], -1, 5, token]
    head += [3, "SET", f"{owner}x", 1]
    with pytest.raises(Exception, match="at most 4000"):
        store.partition._commit([owner, str(words[1])], [*head, len(words), *words])
    assert client.hgetall(owner) == before
    assert not client.exists(str(words[1]), f"{owner}x")
    lease = Lease(client, "{test}", "me", 10.0, time.monotonic)
    assert lease.acquire()
    many: list[str | int] = ["SADD", "{test}:many", *range(MAX_COMMAND_WORDS)]
    with pytest.raises(Exception, match="at most 4000"):
        lease.write([["SET", "{test}:one", "x"], many])
    assert not client.exists("{test}:one", "{test}:many")
