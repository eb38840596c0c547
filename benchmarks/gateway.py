"""Small posts to `dither serve` and into Kafka, against a bare route that answers 202.

The bare route reads the body and forgets it. Both run under the same server, in turns, with the
same load. Seconds are those of the server's processor time, because the client, wrk, and Kafka run
on the same cores.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator.config.settings import Settings, Topics
from aggregator.features.reader import Reader
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from aggregator.web import reports
from aggregator.web.application import application
from aggregator.web.http.small_posts import PostProtocol
from aggregator.web.http.traffic import Traffic
from aggregator.web.relay_application import relay_application
from benchmarks.batches import METRIC, METRICS, TIME_MS
from benchmarks.measure import Benchmark, Figure, NotRun, Outcome, Side, stage
from benchmarks.metrics import reports_of
from benchmarks.places import PARTITIONS, Places
from benchmarks.steady import processor_seconds
from estimators import define
from producers.relay.crowd_folder import CrowdFolder
from producers.relay.forwarding import SEALED_TYPE, Forwarder, ServiceClient
from producers.relay.intake import SEALED_PATH, CrowdRelay
from producers.sealing import CrowdLabel, encode_post, key_hash, sealed_size
from producers.wire.batch import encode_batch

SCRIPT = Path(__file__).with_name("posting.lua")
DEVICES = 200
"""The number of connections; each posts again when its last post was answered."""
REPORTS = 1
SECONDS = 2.0
LATENCY, LATENCY_SECONDS = "gateway/latency at half load", 10.0
RATE_LIMIT = "1000000000/second"
"""A limit that is checked for each post, and never reached."""
KEY = bytes(32)
CROWD_METRIC = define(
    name="late", kind="mean", mechanism="randomized_response", range=(0, 1), levels=[3],
    pane="1d", lateness="1d", crowd={"minimum": 100, "wait": "12h"},
)  # fmt: skip
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
        sides = _side(ours, seconds, rates.append), _side(bare, seconds)
        yield Benchmark("gateway/small posts/bare route", "posts/s", *sides)
        seconds = places.sized(round(LATENCY_SECONDS * 1000)) / 1000
        for name, (_, port) in (("ours", ours), ("bare route", bare)) if rates else ():
            pause_ms = round(2000 * DEVICES / (max(rates) / 2))  # after an answer, at most
            load = post(port, seconds, pause_ms)
            yield Figure(f"{LATENCY}/{name}, median", load["median"] / 1e3, "ms")
            yield Figure(f"{LATENCY}/{name}, p99", load["p99"] / 1e3, "ms")


def relay_posts(places: Places) -> Iterator[Outcome]:
    """Yield a relay's rate of posts, each durable when it is answered, against the gateway's."""
    if shutil.which("wrk") is None:
        yield NotRun("crowds/posts to a relay", "needs wrk (Debian: wrk)")
        return
    topic, _ = places.log([b""] * PARTITIONS)
    with (
        tempfile.TemporaryDirectory() as folder,
        served("relay", folder, posts=sealed_reports()) as relay,
        served("ours", places.kafka, topic, places.redis) as ours,
    ):
        seconds = places.sized(round(SECONDS * 1000)) / 1000
        sides = _side(relay, seconds, posts=sealed_reports()), _side(ours, seconds)
        yield Benchmark("crowds/posts to a relay/small posts", "posts/s", *sides)


@contextlib.contextmanager
def served(*arguments: str, posts: Posts | None = None) -> Iterator[tuple[int, int]]:
    """Run this file as a process that serves an application; yield its pid and port."""
    command = [sys.executable, "-m", "benchmarks.gateway", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None  # noqa: S101
        try:
            port = int(process.stdout.readline())
            _wait_until_accepted(port, posts or batches())
            yield process.pid, port
        finally:
            process.terminate()


def _wait_until_accepted(port: int, posts: Posts) -> None:
    """Post until an answer is 202: a gateway connects to Kafka first."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            data = os.urandom(16).join((posts.head, posts.tail))
            connection.request("POST", posts.path, data, {"Content-Type": posts.media_type})
            answer = connection.getresponse()
            text = answer.read().decode()
        if answer.status == HTTPStatus.ACCEPTED:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"not ready after {READY_SECONDS:g} s: {answer.status} {text}")
        time.sleep(0.05)


def _side(
    server: tuple[int, int],
    seconds: float,
    note: Callable[[float], object] = lambda _: None,
    posts: Posts | None = None,
) -> Side:
    """Return a side that posts from all devices at once; `note` gets the rate by the clock."""
    pid, port = server

    def rate(_: float) -> float:
        began = processor_seconds([pid])
        load = post(port, seconds, posts=posts)
        note(load["posts"] / load["microseconds"] * 1e6)
        return float(load["posts"] / (processor_seconds([pid]) - began))

    return rate


def post(
    port: int, seconds: float, pause_ms: int = 0, posts: Posts | None = None
) -> dict[str, Any]:
    """Have wrk post batches; return what `posting.lua` writes, with times in microseconds."""
    posts = posts or batches()
    seed = int.from_bytes(os.urandom(4), "big")
    line = ["wrk", "-t1", f"-c{DEVICES}", f"-d{max(1, round(seconds))}s", "--timeout", "30s"]
    line += ["--latency", "-s", str(SCRIPT), f"http://127.0.0.1:{port}{posts.path}"]
    line += ["--", posts.head.hex(), posts.tail.hex(), str(seed), str(pause_ms), posts.media_type]
    ran = subprocess.run(line, capture_output=True, text=True, check=False)
    if ran.returncode or not ran.stderr.startswith('{"posts"'):
        raise RuntimeError(f"wrk has failed: {ran.stderr[:500]}{ran.stdout[:500]}")
    load: dict[str, Any] = json.loads(ran.stderr)
    if load["failed"]:
        raise RuntimeError(f"{load['failed']} posts have failed: {ran.stdout[:500]}")
    return load


class Posts(NamedTuple):
    """The path and the media type of posts, and their bytes before and after 16 random bytes."""

    path: str
    media_type: str
    head: bytes
    tail: bytes


def batches() -> Posts:
    """Return posts of batches, whose ids are random."""
    level, answers = reports_of(METRIC, REPORTS)
    marker = uuid.uuid4().bytes
    head, tail = encode_batch(METRIC, level, answers, TIME_MS, marker).split(marker)
    return Posts(PATH, MEDIA_TYPE, head, tail)


def sealed_reports() -> Posts:
    """Return posts that a relay takes for sealed reports, because it cannot open them."""
    pane_start_ms, marker = CROWD_METRIC.pane_start(int(time.time() * 1000)), uuid.uuid4().bytes
    label = CrowdLabel(key_hash(KEY), CROWD_METRIC.fingerprint, pane_start_ms, CROWD_METRIC.name)
    sealed = marker + bytes(sealed_size(CROWD_METRIC.randomizer.width) - len(marker))
    head, tail = encode_post(label, sealed).split(marker)
    return Posts(SEALED_PATH, SEALED_TYPE, head, tail)


async def forget(request: Request) -> Response:
    """Read a post, and answer as the gateway does."""
    await request.body()
    answer = b'{"batch_id":"%b","reports":1}' % (b"0" * 32)
    return Response(answer, 202, media_type="application/json")


def application_of(name: str, servers: str = "", topic: str = "", redis: str = "") -> Starlette:
    """Return the application of the bare route, of `dither relay` or of `dither serve`."""
    if name == "bare":
        return Starlette(routes=[Route(PATH, forget, methods=["POST"])])
    if name == "relay":
        folder, token = CrowdFolder(Path(servers, "crowds")), Path(servers, "token")
        token.write_text("dither_relay")
        forwarder = Forwarder(ServiceClient("http://[::1]:1", token), folder)
        metrics = {CROWD_METRIC.name: CROWD_METRIC}
        relay = CrowdRelay(
            metrics, KEY, forwarder, rate_limit=RATE_LIMIT, rate_limit_bytes=RATE_LIMIT
        )
        return relay_application(relay, Settings(), Traffic())
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
