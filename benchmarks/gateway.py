"""Small posts to `dither serve` and into Kafka, against a bare route that answers 202.

The bare route reads the body and forgets it. Both run under the same server, in turns, with the
same load. A second is one of the server's processor time: the client and Kafka run on the same
cores, so the clock's would be about them.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

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
from benchmarks import posting
from benchmarks.batches import METRIC, METRICS, TIME_MS
from benchmarks.measure import Benchmark, Figure, NotRun, Outcome, Side
from benchmarks.metrics import reports_of
from benchmarks.places import PARTITIONS, Places
from benchmarks.steady import processor_seconds
from producers.wire.batch import encode_batch

DEVICES = 200
"""Connections, each of which posts when its last post was answered."""
REPORTS = 1
SECONDS = 2.0
LATENCY, LATENCY_SECONDS = "gateway/latency at half load", 10.0
RATE_LIMIT = "1000000000/second"
"""Counted for every post, reached by none."""


@dataclass(frozen=True)
class Served:
    """A server process."""

    pid: int
    port: int


def benchmarks(places: Places) -> Iterator[Outcome]:
    topic, _ = places.log([b""] * PARTITIONS)
    with served("ours", places.kafka, topic, places.redis) as ours, served("bare") as bare:
        seconds = places.sized(round(SECONDS * 1000)) / 1000
        rates: list[float] = []
        yield Benchmark(
            "gateway/small posts/bare route",
            "posts/s",
            posts_of(ours, seconds, rates.append),
            posts_of(bare, seconds),
        )
        if not posting.WRK:
            yield NotRun(LATENCY, "wrk is not installed: nothing else here posts at a given rate")
        elif rates:
            seconds = places.sized(round(LATENCY_SECONDS * 1000)) / 1000
            for which, server in (("ours", ours), ("bare route", bare)):
                found = posting.post(server.port, *body(), DEVICES, seconds, max(rates) / 2)
                yield Figure(f"{LATENCY}/{which}, median", found.median, "ms")
                yield Figure(f"{LATENCY}/{which}, p99", found.p99, "ms")


@contextlib.contextmanager
def served(*arguments: str) -> Iterator[Served]:
    """Run this file as a process that serves one of the two."""
    command = [sys.executable, "-m", "benchmarks.gateway", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None  # noqa: S101
        try:
            port = int(process.stdout.readline())
            posting.wait_until_accepted(port, *body())
            yield Served(process.pid, port)
        finally:
            process.terminate()


def posts_of(
    server: Served, seconds: float, note: Callable[[float], object] = lambda _: None
) -> Side:
    """Return a side that posts from all devices at once; `note` gets the rate by the clock."""

    def post(_: float) -> float:
        began = processor_seconds([server.pid])
        found = posting.post(server.port, *body(), DEVICES, seconds)
        note(found.rate)
        return found.posts / (processor_seconds([server.pid]) - began)

    return post


def body() -> tuple[bytes, bytes]:
    """Return what is before and after the id in a batch."""
    level, answers = reports_of(METRIC, REPORTS)
    marker = uuid.uuid4().bytes
    before, after = encode_batch(METRIC, level, answers, TIME_MS, marker).split(marker)
    return before, after


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
    which, *arguments = sys.argv[1:]
    config = uvicorn.Config(
        bare() if which == "bare" else ours(*arguments),
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
