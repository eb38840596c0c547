"""Whatever is done to what Redis has: it is read, or refused naming a key; nothing else happens."""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from aggregator.config.settings import Aggregate
from aggregator.counting.continuity import Log
from aggregator.counting.takeover import acquire_partition
from aggregator.errors import DitherError, Fenced, StateUnreadable
from aggregator.features.reader import Reader
from aggregator.monitoring.collector import Exporter
from aggregator.reading import status
from aggregator.state.partition import Partition
from aggregator.storage.connection import connect
from aggregator.storage.progress import TORN, UNSET
from aggregator.storage.redis_keys import tag
from aggregator.storage.store import Store
from estimators import Metric, TrustedMetric
from tests.support.redis_contents import dumped, restore
from tests.support.reports.messages import EPOCH, batch, log
from tests.support.reports.partitions import AGE, CARRIER, DELAY, FUTURE_MS, METRICS

TOPIC = "reports"
ANSWERS: dict[str, tuple[Metric, Any]] = {
    "delay": (DELAY, 3.0),
    "carrier": (CARRIER, 4),
    "age": (AGE, 40.0),
}
GARBAGE = (
    *(b"", b"x", b" 1", b"1.5", b"-1", b"-7", b"nan", b"1e9", b"0x10", b"1:2:3", b":", b"5:x"),
    *(b"\xff\xfe", "\u0663".encode(), b"9" * 19, b"9" * 30, b"-" + b"9" * 25, b"pane:a:1:2"),
    *(b"pane:delay@00000000:x:1", b"total::0:0", b"{}", b"[1]", b'{"counts":[1]}', b"\x00" * 16),
    *(b"[" * 5_000, b"\x91" * 5_000),
)
MESSAGES = [
    batch(*ANSWERS[name][:1], [ANSWERS[name][1]] * 3, 1, EPOCH + i * 37_000, 3 * i + j)
    for i in range(12)
    for j, name in enumerate(ANSWERS)
]
HALF = len(MESSAGES) // 2
CORE = ("owner", "watermarks", "counts", "open", "pane", "seen", "total")


class Spoilt:
    """A store with two partitions, put back before each example and then damaged."""

    def __init__(self, store: Store) -> None:
        self.store = store
        client: Any = store.client
        self.client = client
        for number in (0, 1):
            epoch = int(store.partition.acquire(number, "one").owner["epoch"])
            state = Partition(METRICS, FUTURE_MS)
            state.count(log(*MESSAGES[:HALF]))
            store.partition.commit(
                number, epoch, UNSET, state, {"high": HALF, "begin": 0, "updated": 1}
            )
        store.registry.set_policy("delay", "uniform")
        self.whole = dict(sorted(dumped(client).items()))
        state.count(log(*MESSAGES[HALF:], first=HALF))
        self.counts, self.watermarks = dict(state.counts), dict(state.watermarks)
        self.open = {
            str(key): pane.statistic.tobytes()
            for key, pane in state.panes.items()
            if not pane.closed
        }

    def damage(self, rng: random.Random) -> tuple[bytes, str]:
        """Do something to a key; return the key and what was done."""
        key = rng.choice([*self.whole])
        kind = self.client.type(key).decode()
        how = rng.choice(["gone", "another type", "garbled", "garbled", "garbled"])
        garbage = rng.choice(GARBAGE)
        if how == "gone":
            self.client.delete(key)
        elif how == "another type":
            self.client.delete(key)
            other = rng.choice([one for one in ("string", "hash", "set", "list") if one != kind])
            if other == "string":
                self.client.set(key, garbage)
            elif other == "hash":
                self.client.hset(key, garbage, garbage)
            elif other == "set":
                self.client.sadd(key, garbage)
            else:
                self.client.rpush(key, garbage)
        elif kind == "string":
            value = self.client.get(key)
            at = rng.randrange(len(value) + 1)
            spoilt = [value[:at], value + garbage, garbage, value[:at] + garbage + value[at + 1 :]]
            self.client.set(key, rng.choice(spoilt))
        elif kind == "hash":
            field = rng.choice(sorted(self.client.hkeys(key)))
            if rng.random() < 0.2:
                self.client.hdel(key, field)
                how = f"{field.decode()} gone"
            else:
                self.client.hset(key, rng.choice([field, field, garbage]), garbage)
        elif kind == "set":
            some = rng.choice(sorted(self.client.smembers(key)))
            self.client.srem(key, some)
            if rng.random() < 0.7:
                at = rng.randrange(len(some))
                self.client.sadd(key, rng.choice([garbage, some[:at], some + garbage]))
        elif kind == "zset":
            self.client.zadd(key, {garbage: rng.choice([0, EPOCH, -5])})
        return key, how


@pytest.fixture
def spoilt(redis_url: str) -> Iterator[Spoilt]:
    with Store(connect(redis_url), TOPIC) as store:
        yield Spoilt(store)


def count_on(spoilt: Spoilt) -> str:
    """Take the partition over and count the rest of its log; return what became of it."""
    store = spoilt.store
    end = len(MESSAGES)
    owned = acquire_partition(store, 0, "two", Log(lambda: (0, end)), METRICS, Aggregate())
    if owned.halted:
        return "halted"
    at = owned.state.next_offset
    owned.state.count(log(*MESSAGES[at:], first=at))
    try:
        owned.commit(store, end)
    except Fenced:
        return "torn" if store.owner(0)["next"] == str(TORN) else "fenced"
    except StateUnreadable:
        return "halted"
    return "counted"


def read(spoilt: Spoilt) -> str:
    """Ask for everything that readers ask for; return whether something was refused."""
    store = spoilt.store
    outcome = "read"
    with_everything = Reader(store, METRICS)
    for name, metric in METRICS.items():
        for question in ({}, {"start": 0}, {"window": "5m"}):
            try:
                with_everything.estimate(name, **question)
            except DitherError as error:
                outcome = refused(error)
        step = metric.pane if isinstance(metric, TrustedMetric) else "1h"
        try:
            with_everything.series(name, step=step)
        except DitherError as error:
            outcome = refused(error)
        except ValueError as error:  # a damaged event time makes a range too long to be shown
            if "at most" not in str(error):
                raise
    exporter = Exporter(with_everything, 5)
    try:
        status.status(store.overview(), METRICS, status.Rates())
        assert list(exporter.collect())
        store.partition.snapshot(0)
        store.registry.policies()
    except DitherError as error:
        outcome = refused(error)
    return outcome


def refused(error: DitherError) -> str:
    """A refusal names the key."""
    assert "dither:" in str(error)
    return "refused"


def fuzz(spoilt: Spoilt, examples: range, seed: int) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    for example in examples:
        rng = random.Random(f"{seed}:{example}")
        restore(spoilt.client, spoilt.whole)
        key, how = spoilt.damage(rng)
        place = f"seed {seed}, example {example}: {key!r} {how}"
        try:
            reading, counting = read(spoilt), count_on(spoilt)
        except Exception as error:
            raise AssertionError(place) from error
        outcomes[reading] += 1
        outcomes[counting] += 1
        what = key.decode().removeprefix(f"{tag(TOPIC, 0)}:").split(":")[0]
        if counting == "counted" and how in ("gone", "another type") and what in CORE:
            found = spoilt.store.partition.snapshot(0)
            assert found.counts == spoilt.counts, place
            assert found.watermarks == spoilt.watermarks, place
            assert {str(k): pane.statistic for k, pane in found.open.items()} == spoilt.open, place
    return outcomes


@pytest.mark.more
def test_a_spoilt_store_is_read_or_refused_and_never_counted_on_wrongly(spoilt: Spoilt) -> None:
    assert {"read", "refused", "halted", "counted"} <= fuzz(spoilt, range(40), seed=1).keys()


@pytest.mark.slow
def test_ten_thousand_spoilt_stores(spoilt: Spoilt) -> None:
    assert fuzz(spoilt, range(10_000), seed=2).total() == 20_000


def test_an_undamaged_store_is_read_and_counted_on(spoilt: Spoilt) -> None:
    restore(spoilt.client, spoilt.whole)
    assert (read(spoilt), count_on(spoilt)) == ("read", "counted")
    assert spoilt.store.counts(0) == spoilt.counts
