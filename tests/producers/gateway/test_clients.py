"""Each client has its own rate, and a crowd of them takes bounded memory."""

from __future__ import annotations

from typing import Any

import pytest

from aggregator.web.access import Caller
from producers.gateway.clients import CALLER, Clients
from producers.problems import Problem


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def from_address(address: str) -> dict[str, Any]:
    return {"client": (address, 4000)}


def with_token(name: str, address: str) -> dict[str, Any]:
    caller = Caller(name, frozenset({"report"}))
    return {"client": (address, 4000), CALLER: caller}


def admitted(clients: Clients, scope: dict[str, Any]) -> bool:
    try:
        clients.admit(scope)
    except Problem:
        return False
    return True


def test_clients_are_counted_apart_and_anew_in_each_window() -> None:
    clock = Clock()
    clients = Clients("2/second", clock=clock)
    one, two = from_address("192.0.2.1"), from_address("192.0.2.2")
    assert [admitted(clients, one) for _ in range(3)] == [True, True, False]
    assert admitted(clients, two)
    clock.now += 1
    assert admitted(clients, one)


def test_retry_after_is_the_rest_of_the_window() -> None:
    clock = Clock()
    clients = Clients("1/minute", clock=clock)
    clients.admit(from_address("192.0.2.1"))
    clock.now += 18
    with pytest.raises(Problem) as caught:
        clients.admit(from_address("192.0.2.1"))
    assert (caught.value.status, caught.value.headers["Retry-After"]) == (429, "42")


def test_a_token_is_counted_wherever_it_comes_from() -> None:
    clients = Clients("1/second", clock=Clock())
    assert admitted(clients, with_token("phones", "192.0.2.1"))
    assert not admitted(clients, with_token("phones", "192.0.2.2"))
    assert admitted(clients, from_address("192.0.2.2"))


def test_addresses_of_one_ipv6_network_are_one_client() -> None:
    clients = Clients("1/second", clock=Clock())
    assert admitted(clients, from_address("2001:db8:0:1::1"))
    assert not admitted(clients, from_address("2001:db8:0:1:ffff::2"))
    assert admitted(clients, from_address("2001:db8:0:2::1"))


def test_a_crowd_is_forgotten_oldest_first() -> None:
    clock = Clock()
    clients = Clients("1/hour", most=100, clock=clock)
    for number in range(1000):
        clock.now += 0.001
        assert admitted(clients, from_address(f"client {number}"))
    assert clients._counts.reset() == 100
    for number in (900, 999):
        assert admitted(clients, from_address(f"client {number}"))
    clock.now += 3601
    assert admitted(clients, from_address("another"))
    assert clients._counts.reset() == 1


def test_no_rate_is_no_limit() -> None:
    clients = Clients("", clock=Clock())
    assert all(admitted(clients, from_address("192.0.2.1")) for _ in range(1000))
