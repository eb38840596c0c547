"""A key that was deleted under a worker is missed, and never made anew with a part of it."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from aggregator.errors import StateUnreadable
from aggregator.features.reader import Reader
from aggregator.state.pane_keys import metric_key
from aggregator.storage import parsing
from aggregator.storage.store import Store
from estimators import define
from producers.wire.reports_pb2 import ReportBatch
from tests.support.redis_contents import dumped
from tests.support.reports.counted import TOPIC, Counting
from tests.support.reports.messages import EPOCH
from tests.support.reports.partitions import MINUTE
from tests.support.rows import row

PREFIX = f"{{dither:{TOPIC}:0}}"
QUESTION: dict[str, Any] = {
    "kind": "mean",
    "mechanism": "randomized_response",
    "range": (0, 10),
    "levels": [1],
}
TIMES: dict[str, Any] = {"pane": "1m", "lateness": "1m", "minimum_reports": 1}
DELAY = define(name="delay", retention="40000d", **QUESTION, **TIMES)
AGE = define(name="age", max_key_reports=5, **QUESTION, **TIMES)
METRICS = {"delay": DELAY, "age": AGE}
KEY = metric_key("delay", DELAY.revision)
OPEN = EPOCH + 9 * MINUTE


def more(counting: Counting, minutes: range) -> list[ReportBatch]:
    """Return a batch of each metric in some minutes."""
    return [counting.batch(name, [1.0], minute) for minute in minutes for name in METRICS]


def counted(store: Store) -> Counting:
    counting = Counting(store, METRICS)
    counting.count(0, *more(counting, range(20)), begin=0)
    return counting


def contents(store: Store) -> dict[bytes, Any]:
    return {key: x for key, x in dumped(store.client).items() if not key.endswith(b":committed")}


def keys_of(store: Store, kind: str) -> list[str]:
    """Return the keys of a kind that the next commit adds to."""
    client: Any = store.client
    return sorted(key.decode() for key in client.scan_iter(f"{PREFIX}:{kind}*"))


def test_a_commit_adds_to_no_key_that_is_gone_and_nobody_takes_it_over(store: Store) -> None:
    kinds = ["open", "indexed", "expiring", "sizes", "index:pane:", "index:total:", "seen:"]
    for kind in [*kinds, "keys:"]:
        store.client.flushdb()
        counting = counted(store)
        key = keys_of(store, kind)[-1]
        store.client.delete(key)
        before = contents(store)
        with row(kind), pytest.raises(StateUnreadable, match=r"dither recount 0") as error:
            counting.count_on(0, *more(counting, range(15, 22)))
        assert error.value.key == key
        assert contents(store) == before
        if kind != "seen:":
            with row(kind), pytest.raises(StateUnreadable) as error:
                store.partition.acquire(0, "two")
            assert error.value.key == key


def test_nor_to_one_of_which_a_part_is_gone(store: Store) -> None:
    client: Any = store.client
    spoils: dict[str, Callable[[str], object]] = {
        "open": lambda key: client.srem(key, next(iter(client.smembers(key)))),
        "index:pane:": lambda key: client.zremrangebyrank(key, 0, 0),
        "keys:": lambda key: client.hset(key, b"another", 1),
    }
    for kind, spoil in spoils.items():
        client.flushdb()
        counting = counted(store)
        key = keys_of(store, kind)[-1]
        spoil(key)
        with row(kind), pytest.raises(StateUnreadable) as error:
            counting.count_on(0, *more(counting, range(15, 22)))
        assert error.value.key == key
        with row(kind), pytest.raises(StateUnreadable, match=r"all committed entries"):
            store.partition.acquire(0, "two")


def test_where_nothing_is_gone_commits_and_take_overs_go_on(store: Store) -> None:
    counting = counted(store)
    for first in range(20, 60, 5):
        counting.count_on(0, *more(counting, range(first, first + 5)))
    sizes = store.hash(f"{PREFIX}:sizes", parsing.counts)
    opened = {name for name in sizes if name.startswith("keys:")}
    assert opened == {key.removeprefix(f"{PREFIX}:") for key in keys_of(store, "keys:")}
    for name, size in sizes.items():
        key = f"{PREFIX}:{name}"
        is_hash = name == "ids" or "keys:" in name
        ask = "ZCARD" if "index:" in name else "HLEN" if is_hash else "SCARD"
        assert store.ask([(ask, key)]) == [size]
    counting.count(0, *more(counting, range(60, 70)), begin=0)
    assert Reader(store, METRICS).estimate("delay").reports == 70


def test_sizes_that_an_earlier_version_has_left_behind_are_not_believed(store: Store) -> None:
    counting = counted(store)
    client = store.client
    for field in ("begun", "done"):  # it made a commit
        client.hincrby(f"{PREFIX}:owner", field, 1)
    client.sadd(f"{PREFIX}:indexed", f"pane:{KEY}x")
    client.zadd(f"{PREFIX}:index:pane:{KEY}", {f"{OPEN + MINUTE * 100}:7": OPEN + MINUTE * 100})
    counting.count_on(0, *more(counting, range(15, 30)))
    sizes = store.hash(f"{PREFIX}:sizes", parsing.counts)
    assert sizes["indexed"] == len(store.members(f"{PREFIX}:indexed"))


def test_nothing_is_answered_of_what_is_gone_or_wrong(store: Store) -> None:
    client: Any = store.client
    index, second = f"{PREFIX}:index:pane:{KEY}", EPOCH + MINUTE
    total = f"{PREFIX}:total:{KEY}:0"
    window: tuple[Any, ...] = ("delay", EPOCH / 1000, (EPOCH + 5 * MINUTE) / 1000)

    def moved() -> None:
        (last,) = client.zrange(index, -1, -1)
        client.zadd(index, {last: second})

    spoils: list[tuple[str, Callable[[], object], tuple[Any, ...], str]] = [
        ("sizes", lambda: client.delete(f"{PREFIX}:sizes"), window, ":sizes"),
        ("index", lambda: client.delete(index), window, "expected an index of panes"),
        ("indexes", lambda: client.delete(index, f"{PREFIX}:indexed"), window, "index"),
        ("a part", lambda: client.zremrangebyrank(index, 1, 1), window, "index:pane"),
        ("twice", lambda: client.zadd(index, {f"{second}:999": second}), window, "a pane twice"),
        ("moved", moved, window, "with another score"),
        ("all sizes", lambda: client.delete(f"{PREFIX}:sizes"), window[:1], ":sizes"),
        ("open", lambda: client.delete(f"{PREFIX}:open"), window[:1], ":open"),
        ("one open", lambda: client.spop(f"{PREFIX}:open"), window[:1], ":open"),
        ("marks", lambda: client.delete(f"{PREFIX}:watermarks"), window[:1], ":watermarks"),
        ("total", lambda: client.delete(total), window[:1], f"0 bytes at {total}"),
    ]
    reader = Reader(store, METRICS)
    for name, spoil, question, told in spoils:
        client.flushdb()
        counted(store)
        assert reader.estimate(*window).reports == 5
        assert reader.estimate("delay").reports == 20
        spoil()
        with row(name), pytest.raises(StateUnreadable, match=re.escape(told)):
            reader.estimate(*question)
