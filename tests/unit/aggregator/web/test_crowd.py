"""Two hundred clients follow live events, and one of them never reads."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from estimators import load_metrics
from tests.support.reports.counted import Counting, Server, connected, serving
from tests.support.running import http_client

CLIENTS = 200
WIDE = 40
"""Metrics whose answers are long: what the idle client is sent soon fills its buffers."""
CATEGORIES = 400
SMALL = """
[metrics.small]
kind = "mean"
mechanism = "randomized_response"
range = [0, 1]
levels = [1]
"""
LONG = """
[metrics.wide{0}]
kind = "frequency"
mechanism = "grr"
categories = {1}
levels = [8]
"""
PATIENCE = 90.0
MOST_GROWTH = 100_000_000
"""Bytes of memory that the crowd may cost: 19 MB were measured."""
MOST_BUFFERED = 16_000_000
"""Bytes that the two ends of a connection may hold outside the process."""


@pytest.fixture
def wide_file(tmp_path: Path) -> Path:
    file = tmp_path / "metrics.toml"
    file.write_text(SMALL + "".join(LONG.format(number, CATEGORIES) for number in range(WIDE)))
    return file


@pytest.fixture
def crowded(wide_file: Path, redis_url: str) -> Iterator[tuple[Server, Counting]]:
    counting = Counting(connected(redis_url), load_metrics(wide_file))
    with serving(wide_file, redis_url, "--set", "serve.max_streams_per_client=1000") as server:
        yield server, counting


def memory(pid: int) -> int:
    """Return a process's resident memory in bytes."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        pytest.skip("needs /proc: memory is read there")
    (line,) = [one for one in status.read_text().splitlines() if one.startswith("VmRSS")]
    return int(line.split()[1]) * 1024


def idle_client(server: Server) -> socket.socket:
    """Ask for everything, and never read."""
    where = urlsplit(server.url)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect((where.hostname, where.port))
    client.sendall(f"GET /v1/events?top=1000 HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode())
    return client


def drained(client: socket.socket) -> int:
    """Read until the connection ends; return the bytes."""
    client.settimeout(PATIENCE)
    total = 0
    try:
        while data := client.recv(65536):
            total += len(data)
    except ConnectionResetError:
        pass
    return total


class Crowd:
    """Clients that read, in an event loop of their own: how many estimates each was sent."""

    def __init__(self, server: Server, size: int) -> None:
        self.where, self.seen = urlsplit(server.url), [0] * size
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._all(),))
        self._stop = asyncio.Event()

    def __enter__(self) -> Crowd:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE)
        self._loop.close()

    async def _all(self) -> None:
        tasks = [asyncio.create_task(self._follow(number)) for number in range(len(self.seen))]
        await self._stop.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _follow(self, number: int) -> None:
        reader, writer = await asyncio.open_connection(self.where.hostname, self.where.port)
        try:
            ask = f"GET /v1/events?metric=small HTTP/1.1\r\nHost: {self.where.netloc}\r\n\r\n"
            writer.write(ask.encode())
            while line := await reader.readline():
                self.seen[number] += line == b"event: estimate\n"
        finally:
            writer.close()


def test_one_of_200_clients_that_never_reads_costs_the_others_nothing(
    crowded: tuple[Server, Counting],
) -> None:
    server, counting = crowded
    names = list(counting.metrics)

    def count() -> None:
        answers = [counting.batch(name, [0, 1] * 10, 0, 8) for name in names]
        counting.count(0, *answers)

    count()
    http_client.get(f"{server.url}/metrics", timeout=PATIENCE)
    before, most = memory(server.process.pid), 0
    idle = idle_client(server)
    with idle, Crowd(server, CLIENTS - 1) as crowd:
        deadline = time.monotonic() + PATIENCE
        while "client cut off" not in server.told.read_text():
            assert time.monotonic() < deadline, "the client that never reads is still served"
            count()
            most = max(most, memory(server.process.pid))
            time.sleep(0.3)
        reached = min(crowd.seen)
        assert reached > 2, "all others are served"
        while min(crowd.seen) < reached + 2:
            assert time.monotonic() < deadline, "the others are served on"
            count()
            time.sleep(0.3)
        assert max(crowd.seen) - min(crowd.seen) <= 2
        scraped = http_client.get(f"{server.url}/metrics", timeout=PATIENCE)
        assert scraped.status_code == 200
        assert most - before < MOST_GROWTH
        assert server.told.read_text().count("client cut off") == 1
        assert drained(idle) < MOST_BUFFERED, "the connection has ended"
    assert "Traceback" not in server.told.read_text()
    assert "ERROR" not in server.told.read_text()
