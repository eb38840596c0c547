"""Posts batches with ids of their own to a gateway: by wrk, or by a client in Python without it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.client
import json
import os
import shutil
import statistics
import subprocess
import time
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

WRK = shutil.which("wrk")
SCRIPT = Path(__file__).with_name("posting.lua")
PATH = "/v1/reports"
MEDIA_TYPE = "application/x-protobuf"
READY_SECONDS = 20.0


@dataclass(frozen=True)
class Load:
    """What came of the posts.

    Attributes
    ----------
    posts : int
        Answered 202.
    rate : float
        Posts a second of the clock.
    median, p99 : float
        Milliseconds from a post to its answer.
    """

    posts: int
    rate: float
    median: float
    p99: float


def post(
    port: int,
    before: bytes,
    after: bytes,
    connections: int,
    seconds: float,
    rate: float | None = None,
) -> Load:
    """Post batches from several connections.

    Parameters
    ----------
    port : int
        Of this machine.
    before, after : bytes
        What surrounds the 16 bytes of a batch's id.
    connections : int
        Each posts when its last post was answered.
    seconds : float
    rate : float, optional
        Posts a second of all connections: each pauses after an answer for a random time. With wrk
        alone.

    Raises
    ------
    RuntimeError
        If a post is not answered 202.
    """
    if WRK:
        return _by_wrk(port, before, after, connections, seconds, rate)
    return asyncio.run(_by_python(port, before, after, connections, seconds))


def wait_until_accepted(port: int, before: bytes, after: bytes) -> None:
    """Post until an answer is 202: a gateway connects to Kafka first.

    Raises
    ------
    RuntimeError
        With the last answer, if that takes too long.
    """
    until = time.monotonic() + READY_SECONDS
    while True:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            data = before + os.urandom(16) + after
            connection.request("POST", PATH, data, {"Content-Type": MEDIA_TYPE})
            answer = connection.getresponse()
            told = answer.read().decode()
        if answer.status == HTTPStatus.ACCEPTED:
            return
        if time.monotonic() > until:
            raise RuntimeError(f"not ready after {READY_SECONDS:g} s: {answer.status} {told}")
        time.sleep(0.05)


def _by_wrk(
    port: int, before: bytes, after: bytes, connections: int, seconds: float, rate: float | None
) -> Load:
    pause = 0 if rate is None else round(2000 * connections / rate)  # a uniform one, in ms
    seed = int.from_bytes(os.urandom(4), "big")
    ran = subprocess.run(
        [
            *(str(WRK), "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s"),
            *("--timeout", "30s", "--latency", "-s", str(SCRIPT)),
            *(f"http://127.0.0.1:{port}{PATH}", "--"),
            *(before.hex(), after.hex(), str(seed), str(pause)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode or not ran.stderr.startswith('{"posts"'):
        raise RuntimeError(f"wrk has failed: {ran.stderr[:500]}{ran.stdout[:500]}")
    found = json.loads(ran.stderr)
    if found["failed"]:
        raise RuntimeError(f"{found['failed']} posts have failed: {ran.stdout[:500]}")
    reached = found["posts"] / found["microseconds"] * 1e6
    return Load(found["posts"], reached, found["median"] / 1e3, found["p99"] / 1e3)


async def _by_python(
    port: int, before: bytes, after: bytes, connections: int, seconds: float
) -> Load:
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Type: {MEDIA_TYPE}\r\n"
        f"Content-Length: {len(before) + 16 + len(after)}\r\n\r\n"
    )
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    made = [_Device(head.encode() + before, after, began + seconds) for _ in range(connections)]
    for device in made:
        await loop.create_connection(functools.partial(_same, device), "127.0.0.1", port)
    times = [each for device in made for each in await device.done]
    lasted = time.perf_counter() - began
    cuts = statistics.quantiles(times, n=100) if len(times) > 1 else times * 99
    return Load(len(times), len(times) / lasted, cuts[49] * 1e3, cuts[98] * 1e3)


def _same(device: _Device) -> _Device:
    return device


class _Device(asyncio.Protocol):
    """Posts a batch with an id of its own whenever the last one was answered.

    A protocol rather than a client library: it takes a quarter of a bare server's time.
    """

    def __init__(self, before: bytes, after: bytes, until: float) -> None:
        self.before, self.after, self.until = before, after, until
        self.done: asyncio.Future[list[float]] = asyncio.get_running_loop().create_future()
        self.times: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101
        self.transport = transport
        self._post()

    def data_received(self, data: bytes) -> None:
        """Take in an answer, which comes in one or two pieces: its body ends with a brace."""
        if data.startswith(b"HTTP") and not data.startswith(b"HTTP/1.1 202"):
            self.done.set_exception(RuntimeError(data.decode()))
            self.transport.close()
        elif data.endswith(b"}"):
            self.times.append(time.perf_counter() - self.began)
            self._post()

    def _post(self) -> None:
        self.began = time.perf_counter()
        if self.began < self.until:
            self.transport.write(self.before + os.urandom(16) + self.after)
        else:
            self.done.set_result(self.times)
            self.transport.close()
