"""Small posts to `dither serve` and into Kafka, against a bare route that answers 202.

The bare route reads the body and forgets it. Both run under the same server, in turns, with the
same load. Seconds are those of the server's processor time, because the client, wrk, and Kafka run
on the same cores.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator.config.settings import Settings
from aggregator.web.http.listening import run_server
from benchmarks.batches import METRIC, TIME_MS
from benchmarks.measure import Benchmark, CannotRunError, stage
from benchmarks.metrics import reports_of
from benchmarks.places import Places
from benchmarks.steady import processor_seconds
from benchmarks.workers import running, served, wait, wait_for_port
from deploy.kafka.cluster import free_ports
from producers.wire.batch import encode_batch

SCRIPT = Path(__file__).with_name("posting.lua")
DEVICES = 200
"""The number of connections; each posts again when its last post was answered."""
REPORTS = 1
SECONDS = 2.0
RATES = ("gateway.rate_limit", "gateway.rate_limit_bytes", "gateway.rate_limit_reports")
RATE_LIMIT = "1000000000/second"
"""A limit that is checked for each post, and never reached."""
PATH, MEDIA_TYPE = "/v1/reports", "application/x-protobuf"


@stage("gateway")
def gateway_posts(places: Places) -> Iterator[Benchmark]:
    """Small posts to `dither serve` and into Kafka, against a bare route that answers 202."""
    if shutil.which("wrk") is None:
        raise CannotRunError("needs wrk (Debian: wrk)")
    limits, (bare_port,) = dict.fromkeys(RATES, RATE_LIMIT), free_ports(1)
    with (
        served(places, places.topic(), [METRIC], **limits) as (pid, port),
        running(["benchmarks.gateway", str(bare_port)]) as bare_pid,
    ):
        wait_for_port(bare_port)
        wait(lambda: _is_accepted(port), "a gateway's connection to Kafka", 0.05)
        seconds = places.sized(round(SECONDS * 1000)) / 1000
        yield Benchmark(
            *("gateway/small posts/bare route", "posts/s"),
            functools.partial(_post, pid, port, seconds),
            functools.partial(_post, bare_pid, bare_port, seconds),
        )


def _is_accepted(port: int) -> bool:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        connection.request(
            "POST", PATH, os.urandom(16).join(post_parts()), {"Content-Type": MEDIA_TYPE}
        )
        return connection.getresponse().status == HTTPStatus.ACCEPTED


def _post(pid: int, port: int, seconds: float, _: float) -> float:
    """Have wrk post from all devices at once; return the posts for each second of the server's."""
    began = processor_seconds([pid])
    line = ["wrk", "-t1", f"-c{DEVICES}", f"-d{max(1, round(seconds))}s", "--timeout", "30s"]
    line += ["-s", str(SCRIPT), f"http://127.0.0.1:{port}{PATH}"]
    line += ["--", *(part.hex() for part in post_parts()), os.urandom(3).hex(), MEDIA_TYPE]
    ran = subprocess.run(line, capture_output=True, text=True, check=False)
    if ran.returncode or not ran.stderr.startswith('{"posts"'):
        raise RuntimeError(f"wrk has failed: {ran.stderr[:500]}{ran.stdout[:500]}")
    load = json.loads(ran.stderr)
    if load["failed"]:
        raise RuntimeError(f"{load['failed']} posts have failed: {ran.stdout[:500]}")
    return float(load["posts"] / (processor_seconds([pid]) - began))


@functools.cache
def post_parts() -> tuple[bytes, bytes]:
    """Return a batch as bytes before and after its id."""
    level, answers = reports_of(METRIC, REPORTS)
    marker = uuid.uuid4().bytes
    head, tail = encode_batch(METRIC, level, answers, TIME_MS, marker).split(marker)
    return head, tail


async def forget(request: Request) -> Response:
    """Read a post, and answer as the gateway does."""
    await request.body()
    answer = b'{"batch_id":"%b","reports":1}' % (b"0" * 32)
    return Response(answer, 202, media_type="application/json")


if __name__ == "__main__":
    bare_settings = Settings()
    bare_settings.serve.port = int(sys.argv[1])
    bare = Starlette(routes=[Route(PATH, forget, methods=["POST"])])
    run_server(bare, bare_settings, None, "error")
