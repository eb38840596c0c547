"""Small posts to `dither serve` and into Kafka, against a bare route that answers 202.

The bare route reads the body and forgets it. Both run under the same server, in turns, with the
same load. A second is one of the server's processor time: the client, wrk, and Kafka run on the
same cores, so the clock's would be about them.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator.config.settings import Settings, Topics
from aggregator.features.reader import Reader
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from aggregator.web import application, reports
from aggregator.web.http.small_posts import PostProtocol
from benchmarks.batches import METRIC, METRICS, TIME_MS
from benchmarks.measure import Benchmark, Figure, NotRun, Outcome, Side, stage
from benchmarks.metrics import reports_of
from benchmarks.places import PARTITIONS, Places
from benchmarks.steady import processor_seconds
from producers.wire.batch import encode_batch

SCRIPT = Path(__file__).with_name("posting.lua")
DEVICES = 200
"""Connections, each of which posts when its last post was answered."""
REPORTS = 1
SECONDS = 2.0
LATENCY, LATENCY_SECONDS = "gateway/latency at half load", 10.0
RATE_LIMIT = "1000000000/second"
"""Counted for every post, reached by none."""
PATH, MEDIA_TYPE = "/v1/reports", "application/x-protobuf"
READY_SECONDS = 20.0


@stage("gateway")
def gateway_posts(places: Places) -> Iterator[Outcome]:
    """Small posts to `dither serve` and into Kafka, against a bare route that answers 202."""
    if shutil.which("wrk") is None:
        yield NotRun("gateway", "needs wrk (Debian: wrk)")
        return
    topic, _ = places.log([b""] * PARTITIONS)
    with served("ours", places.kafka, topic, places.redis) as ours, served("bare") as bare:
        seconds = places.sized(round(SECONDS * 1000)) / 1000
        rates: list[float] = []
        sides = _side(ours, seconds, rates.append), _side(bare, seconds, lambda _: None)
        yield Benchmark("gateway/small posts/bare route", "posts/s", *sides)
        seconds = places.sized(round(LATENCY_SECONDS * 1000)) / 1000
        for name, (_, port) in (("ours", ours), ("bare route", bare)) if rates else ():
            pause_ms = round(2000 * DEVICES / (max(rates) / 2))  # after an answer, at most
            load = post(port, seconds, pause_ms)
            yield Figure(f"{LATENCY}/{name}, median", load["median"] / 1e3, "ms")
            yield Figure(f"{LATENCY}/{name}, p99", load["p99"] / 1e3, "ms")


@contextlib.contextmanager
def served(*arguments: str) -> Iterator[tuple[int, int]]:
    """Run this file as a process that serves one of the two; yield its pid and port."""
    command = [sys.executable, "-m", "benchmarks.gateway", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None  # noqa: S101
        try:
            port = int(process.stdout.readline())
            _wait_until_accepted(port)
            yield process.pid, port
        finally:
            process.terminate()


def _wait_until_accepted(port: int) -> None:
    """Post until an answer is 202: a gateway connects to Kafka first."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            data = os.urandom(16).join(body())
            connection.request("POST", PATH, data, {"Content-Type": MEDIA_TYPE})
            answer = connection.getresponse()
            text = answer.read().decode()
        if answer.status == HTTPStatus.ACCEPTED:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"not ready after {READY_SECONDS:g} s: {answer.status} {text}")
        time.sleep(0.05)


def _side(server: tuple[int, int], seconds: float, note: Callable[[float], object]) -> Side:
    """Return a side that posts from all devices at once; `note` gets the rate by the clock."""
    pid, port = server

    def rate(_: float) -> float:
        began = processor_seconds([pid])
        load = post(port, seconds)
        note(load["posts"] / load["microseconds"] * 1e6)
        return float(load["posts"] / (processor_seconds([pid]) - began))

    return rate


def post(port: int, seconds: float, pause_ms: int = 0) -> dict[str, Any]:
    """Have wrk post batches; return what `posting.lua` writes, times in microseconds."""
    head, tail = (part.hex() for part in body())
    seed = int.from_bytes(os.urandom(4), "big")
    line = ["wrk", "-t1", f"-c{DEVICES}", f"-d{max(1, round(seconds))}s", "--timeout", "30s"]
    line += ["--latency", "-s", str(SCRIPT), f"http://127.0.0.1:{port}{PATH}"]
    line += ["--", head, tail, str(seed), str(pause_ms)]
    ran = subprocess.run(line, capture_output=True, text=True, check=False)
    if ran.returncode or not ran.stderr.startswith('{"posts"'):
        raise RuntimeError(f"wrk has failed: {ran.stderr[:500]}{ran.stdout[:500]}")
    load: dict[str, Any] = json.loads(ran.stderr)
    if load["failed"]:
        raise RuntimeError(f"{load['failed']} posts have failed: {ran.stdout[:500]}")
    return load


def body() -> tuple[bytes, bytes]:
    """Return what is before and after the id in a batch."""
    level, answers = reports_of(METRIC, REPORTS)
    marker = uuid.uuid4().bytes
    head, tail = encode_batch(METRIC, level, answers, TIME_MS, marker).split(marker)
    return head, tail


async def forget(request: Request) -> Response:
    """Read a post, and answer as the gateway does."""
    await request.body()
    answer = b'{"batch_id":"%b","reports":1}' % (b"0" * 32)
    return Response(answer, 202, media_type="application/json")


def application_of(name: str, servers: str = "", topic: str = "", redis: str = "") -> Starlette:
    """Return the bare route, or `dither serve` with all that a request passes through."""
    if name == "bare":
        return Starlette(routes=[Route(PATH, forget, methods=["POST"])])
    settings = Settings(
        kafka={"bootstrap.servers": servers}, topics=Topics(reports=topic, managed=False)
    )
    settings.aggregate.past = "36500d"  # the batches are of 2013
    limits = settings.gateway
    limits.rate_limit = limits.rate_limit_bytes = limits.rate_limit_reports = RATE_LIMIT
    reader = Reader(Store(connect(redis), topic), METRICS)
    return application(reader, settings, gateway=reports.gateway(settings, METRICS))


class Announced(uvicorn.Server):
    """A server that prints its port when it listens."""

    async def startup(self, sockets: object = None) -> None:
        await super().startup()
        print(self.servers[0].sockets[0].getsockname()[1], flush=True)


def main() -> None:
    config = uvicorn.Config(
        application_of(*sys.argv[1:]),
        port=0,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        http=PostProtocol,
        loop="uvloop",
        ws="none",
    )
    Announced(config).run()


if __name__ == "__main__":
    main()
