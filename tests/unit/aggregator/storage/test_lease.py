"""A lease has one holder at a time, who knows when its time is over."""

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from aggregator.errors import StateUnreadable
from aggregator.storage.lease import Lease, LeaseLost
from tests.support.clocks import Clock
from tests.support.rows import row
from tests.support.running.deployment import wait_until

KEY = "test:{lease}"


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


def test_a_holder_gives_up_by_its_own_clock_before_redis_does(client: redis.Redis) -> None:
    clock = Clock()
    lease = Lease(client, KEY, "holder", 10, clock)
    assert lease.acquire()
    clock.now += 8.9
    assert lease.held
    clock.now += 0.2
    assert not lease.held
    assert client.exists(f"{KEY}:lease"), "for Redis a tenth is left"
    assert lease.renew()
    assert lease.held
    client.flushdb()
    with pytest.raises(LeaseLost):
        lease.write([["SET", "test:{lease}:x", "1"]])
    assert not lease.held
    assert not lease.renew()
    assert not lease.held, "the store forgot it"


def test_a_key_that_cannot_be_used_is_named(client: Any) -> None:
    lease = Lease(client, KEY, "holder", 60)
    for name, expected in (("epoch", "a whole number"), ("lease", "a lease, which expires")):
        client.set(f"{KEY}:{name}", "x")
        with row(name), pytest.raises(StateUnreadable, match=f"{KEY}:{name}: expected {expected}"):
            lease.acquire()
    client.flushdb()
    assert lease.acquire()
    client.hset(key := f"{KEY}:hash", "a", "x")
    for command, expected in (
        (("SADD", key, "x"), "a type that SADD accepts"),
        (("HINCRBY", key, "a", 1), "a whole number"),
    ):
        with row(expected), pytest.raises(StateUnreadable, match=f"{key}: expected {expected}"):
            lease.write([command])
    client.copy(key, f"{KEY}:lease", replace=True)
    for change in (lease.renew, lambda: lease.write([["SET", key, "x"]])):
        with pytest.raises(StateUnreadable, match=f"{KEY}:lease"):
            change()


def test_an_expired_lease_is_anothers_and_its_old_holder_is_fenced(client: redis.Redis) -> None:
    first, second = Lease(client, KEY, "first", 0.05), Lease(client, KEY, "second", 60)
    assert first.acquire()
    wait_until(second.acquire, "the lease expires")
    assert not first.renew()
    with pytest.raises(LeaseLost):
        first.write([["SET", "test:{lease}:x", "1"]])
    first.release()
    assert second.renew(), "the release of the first was not this one's"
    changes = [["SET", "test:{lease}:x", "2"], ["HSET", y := "test:{lease}:y", "a", "1"]]
    assert [second.write(changes, y, {"a": "", "b": ""}) for _ in range(2)] == [True, False]
    assert client.get("test:{lease}:x") == b"2"
    assert not first.held


def test_a_second_holder_waits_until_one_that_renews_lets_go(client: redis.Redis) -> None:
    lease, other = Lease(client, KEY, "holder", 3), Lease(client, KEY, "other", 60)
    assert lease.acquire()
    until = lease._held_until
    with lease.renewals():
        wait_until(lambda: lease._held_until > until + 0.5, "renewed past its first end")
        assert lease.held
        assert not other.acquire()
        assert not other.held
    assert not lease.held
    assert other.acquire()
    assert (lease.epoch, other.epoch) == (1, 2)
