"""Small posts to `dither serve` and into Kafka, against a bare route that answers 202.

The bare route reads the body and forgets it. Same client, same server settings, in turns.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator.config.settings import Settings, Topics
from aggregator.reading.reader import Reader
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from aggregator.web import application, reports
from benchmarks.batches import METRIC, METRICS, TIME_MS
from benchmarks.measure import Benchmark, Side
from benchmarks.metrics import reports_of
from benchmarks.places import PARTITIONS, Places
from producers.wire.batch import encode_batch

DEVICES = 200
"""Connections, each of which posts when its last post was answered."""

REPORTS = 1
SECONDS = 1.0
RATE_LIMIT = "1000000/second"
"""Counted for every post, reached by none."""


def benchmarks(places: Places) -> Iterator[Benchmark]:
    topic, _ = places.log([b""] * PARTITIONS)
    with served("ours", places.kafka, topic, places.redis) as ours, served("bare") as bare:
        yield Benchmark("gateway/small posts/bare route", "posts/s", posting(ours), posting(bare))


@contextlib.contextmanager
def served(*arguments: str) -> Iterator[int]:
    """Run this file as a process that serves one of the two; return its port."""
    command = [sys.executable, "-m", "benchmarks.gateway", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None  # noqa: S101
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def posting(port: int) -> Side:
    """Return a side that posts from all devices at once for some seconds."""
    level, answers = reports_of(METRIC, REPORTS)
    marker = uuid.uuid4().bytes
    body = encode_batch(METRIC, level, answers, TIME_MS, marker)
    head = (
        f"POST /v1/reports HTTP/1.1\r\nHost: localhost:{port}\r\n"
        f"Content-Type: application/x-protobuf\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    before, after = (head.encode() + body).split(marker)

    async def devices() -> float:
        loop = asyncio.get_running_loop()
        began = time.perf_counter()
        made = [Device(before, after, began + SECONDS) for _ in range(DEVICES)]
        for device in made:
            await loop.create_connection(functools.partial(_same, device), "127.0.0.1", port)
        answered = [await device.done for device in made]
        return sum(answered) / (time.perf_counter() - began)

    return lambda _: asyncio.run(devices())


def _same(device: Device) -> Device:
    return device


class Device(asyncio.Protocol):
    """Posts a batch with an id of its own whenever the last one was answered.

    A protocol rather than a client library: it takes a quarter of a bare server's time.
    """

    def __init__(self, before: bytes, after: bytes, until: float) -> None:
        self.before, self.after, self.until = before, after, until
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.answered = 0

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
            self.answered += 1
            self._post()

    def _post(self) -> None:
        if time.perf_counter() < self.until:
            self.transport.write(self.before + os.urandom(16) + self.after)
        else:
            self.done.set_result(self.answered)
            self.transport.close()


async def forget(request: Request) -> Response:
    """Read a post, and answer as the gateway does."""
    await request.body()
    answer = b'{"batch_id":"%b","reports":1}' % (b"0" * 32)
    return Response(answer, 202, media_type="application/json")


def bare() -> Starlette:
    return Starlette(routes=[Route("/v1/reports", forget, methods=["POST"])])


def ours(servers: str, topic: str, redis: str) -> Starlette:
    """Return the application of `dither serve`, with all that a request passes through."""
    settings = Settings(
        kafka={"bootstrap.servers": servers}, topics=Topics(reports=topic, managed=False)
    )
    settings.gateway.rate_limit = RATE_LIMIT
    reader = Reader(Store(connect(redis), topic), METRICS)
    return application(reader, settings, gateway=reports.gateway(settings, METRICS))


class Announced(uvicorn.Server):
    """A server that prints its port when it listens."""

    async def startup(self, sockets: object = None) -> None:
        await super().startup()
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)


def main() -> None:
    which, *arguments = sys.argv[1:]
    app = bare() if which == "bare" else ours(*arguments)
    config = uvicorn.Config(app, port=0, log_level="warning", access_log=False, server_header=False)
    Announced(config).run()


if __name__ == "__main__":
    main()
