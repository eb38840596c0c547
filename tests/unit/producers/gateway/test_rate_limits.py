"""Each client has its own rate, and a crowd of them takes bounded memory."""

import pytest

from aggregator.web.http.access import Caller
from producers.gateway.problems import Problem
from producers.gateway.rate_limits import CALLER_KEY, Client, Clients, client_of
from tests.support.clocks import Clock
from tests.support.rows import row


def from_address(address: str) -> Client:
    return client_of({"client": (address, 4000)})


def with_token(name: str, address: str) -> Client:
    return client_of({"client": (address, 4000), CALLER_KEY: Caller(name, frozenset({"report"}))})


def admitted(clients: Clients, client: Client) -> bool:
    try:
        clients.admit(client)
    except Problem:
        return False
    return True


def test_clients_are_counted_apart_and_anew_in_each_window(clock: Clock) -> None:
    clients = Clients("2/minute", clock=clock)
    one, two = from_address("192.0.2.1"), from_address("192.0.2.2")
    assert [admitted(clients, one) for _ in range(3)] == [True, True, False]
    assert admitted(clients, two)
    clock.now += 18
    with pytest.raises(Problem) as caught:
        clients.admit(one)
    assert (caught.value.status, caught.value.headers["Retry-After"]) == (429, "42")
    clock.now += 42
    assert admitted(clients, one)


def test_who_is_one_client_and_who_is_another() -> None:
    phones = with_token("phones", "192.0.2.1")
    for what, first, second, are_one in (
        ("a token", phones, with_token("phones", "192.0.2.2"), True),
        ("two tokens", phones, with_token("watches", "192.0.2.1"), False),
        ("its address", phones, from_address("192.0.2.1"), False),
        ("an address that is called as it", phones, from_address("phones"), False),
        ("or as its key", phones, from_address("token phones"), False),
        ("no addresses", from_address("anything"), from_address("_hidden"), True),
        ("none at all", from_address("anything"), client_of({"client": None}), True),
        ("IPv4 in IPv6", from_address("::ffff:192.0.2.1"), from_address("192.0.2.1"), True),
        ("in hexadecimal", from_address("::ffff:c000:202"), from_address("192.0.2.2"), True),
        ("others", from_address("::ffff:192.0.2.1"), from_address("::ffff:192.0.2.2"), False),
        ("a network", from_address("2001:db8:0:1::1"), from_address("2001:db8:0:1:ffff::2"), True),
        ("its neighbour", from_address("2001:db8:0:1::1"), from_address("2001:db8:0:2::1"), False),
    ):
        with row(what):
            clients = Clients("1/second", clock=Clock())
            assert admitted(clients, first)
            assert admitted(clients, second) is not are_one
            assert not admitted(clients, first)


def test_bytes_that_are_announced_are_counted_before_they_come(clock: Clock) -> None:
    clients = Clients("", "1000/second", clock=clock)
    one = from_address("192.0.2.1")
    clients.admit(one, 600)
    clients.admit(one, 600)
    with pytest.raises(Problem, match="more than 1000 bytes per 1 second from 192"):
        clients.admit(one, 1)
    assert admitted(clients, from_address("192.0.2.2"))
    clock.now += 1
    with pytest.raises(Problem):
        clients.admit(one, 1)
    clock.now += 0.2
    assert admitted(clients, one), "1,200 bytes are paid for after 1.2 seconds"


def test_bytes_of_unknown_number_and_reports_are_counted_as_they_come(clock: Clock) -> None:
    clients = Clients("", "1000/second", "10/second", clock=clock)
    client = from_address("192.0.2.1")
    clients.admit(client)
    clients.count("bytes", client, 1000)
    with pytest.raises(Problem, match="bytes"):
        clients.count("bytes", client, 1)
    clock.now += 1
    clients.count("reports", client, 25)
    with pytest.raises(Problem, match="more than 10 reports per 1 second") as caught:
        clients.count("reports", client, 1)
    assert caught.value.headers["Retry-After"] == "2", "25 reports are those of 2.5 seconds"
    assert not admitted(clients, from_address("192.0.2.1")), "nothing more is read meanwhile"
    clock.now += 2.5
    assert admitted(clients, from_address("192.0.2.1"))


def test_of_several_posts_at_once_one_alone_may_overdraw_the_rate(clock: Clock) -> None:
    clients = Clients("10/second", clock=clock)
    one = from_address("192.0.2.1")
    for _ in range(10):  # all of them before the first body is there
        clients.admit(one)
    clients.count("posts", one, 999, charged=1)
    for _ in range(9):
        with pytest.raises(Problem, match="more than 10 posts"):
            clients.count("posts", one, 999, charged=1)
    clock.now += 100  # what the first one took, and the others' own
    assert not admitted(clients, one)
    clock.now += 1
    assert admitted(clients, one)
    single = Clients("1/second", clock=clock)
    single.admit(one)
    single.count("posts", one, 4, charged=1)
    assert not admitted(single, one)


def test_a_large_body_that_is_refused_is_not_received() -> None:
    clients = Clients("1/second", clock=Clock())
    one = from_address("192.0.2.1")
    clients.admit(one, 900_000)
    for length, closes in ((900_000, True), (100, False)):
        with pytest.raises(Problem) as caught:
            clients.admit(one, length)
        assert ("Connection" in caught.value.headers) is closes


def test_a_crowd_is_forgotten_oldest_first(clock: Clock) -> None:
    clients = Clients("1/hour", max_clients=100, clock=clock)
    for number in range(1000):
        clock.now += 0.001
        assert admitted(clients, from_address(f"10.0.{number // 100}.{number % 100}"))
    assert len(clients._limits["posts"]._used) == 100
    for number in (900, 999):
        assert not admitted(clients, from_address(f"10.0.{number // 100}.{number % 100}"))
    assert admitted(clients, from_address("10.0.8.99")), "it was forgotten"
    clock.now += 3601
    assert admitted(clients, from_address("192.0.2.1"))
    assert len(clients._limits["posts"]._used) == 1
