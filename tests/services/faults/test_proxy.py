"""The tests' own network does to connections what its names say."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from deploy.kafka.cluster import free_ports
from tests.support.running.proxy import Network, Proxy

PATIENCE_SECONDS = 30.0
SILENCE_SECONDS = 0.3


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A proxy before a server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def echo(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(1000):
                    connection.sendall(data)
            except OSError:
                pass

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=echo, args=[connection], daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    target = listener.getsockname()[1]
    with Network() as network:
        yield network.proxy(free_ports(1)[0], lambda: target)
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(5)


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_SECONDS)


def exchange(client: socket.socket, word: bytes) -> bytes:
    client.sendall(word)
    return client.recv(1000)


def test_a_healthy_proxy_passes_on_what_is_said(proxy: Proxy) -> None:
    with connect(proxy) as client:
        assert exchange(client, b"one") == b"one"


def test_a_cut_connection_is_reset_and_a_new_one_is_welcome(proxy: Proxy) -> None:
    with connect(proxy) as client:
        exchange(client, b"one")
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(1000)
    with connect(proxy) as client:
        assert exchange(client, b"two") == b"two"


def test_a_refusing_proxy_takes_nobody_until_it_heals(proxy: Proxy) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.heal()
    with connect(proxy) as client:
        assert exchange(client, b"one") == b"one"


@pytest.mark.parametrize("directions", [[], ["requests"], ["replies"]])
def test_a_silent_proxy_says_nothing_and_gives_all_when_it_heals(
    proxy: Proxy, directions: list[str]
) -> None:
    with connect(proxy) as client:
        exchange(client, b"one")
        proxy.silence(*directions)
        client.settimeout(SILENCE_SECONDS)
        with pytest.raises(TimeoutError):
            exchange(client, b"two")
        client.settimeout(PATIENCE_SECONDS)
        proxy.heal()
        assert client.recv(1000) == b"two"


def test_a_slow_proxy_takes_its_time(proxy: Proxy) -> None:
    with connect(proxy) as client:
        proxy.delay = 0.1
        before = time.monotonic()
        assert exchange(client, b"one") == b"one"
        assert time.monotonic() - before >= 0.2
        proxy.heal()
        proxy.bytes_per_second = 10_000
        before = time.monotonic()
        assert exchange(client, b"x" * 1000) == b"x" * 1000
        assert time.monotonic() - before >= 0.1
