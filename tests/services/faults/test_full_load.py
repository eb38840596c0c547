"""Gateways, brokers and workers are killed in turn at full load: each batch is counted once."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import signal
import time
from http import HTTPStatus
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from deploy.kafka import launcher
from deploy.kafka.cluster import KafkaCluster
from producers.gateway.bodies import PROTOBUF
from producers.wire.batch import encode_batch
from tests.services.faults.arena import wait_for_replicas
from tests.services.faults.gateways import keys_in, serving, worker_pids
from tests.support.running import servers
from tests.support.running.deployment import Deployment
from tests.support.running.fleet import Fleet

logger = logging.getLogger(__name__)

DEVICES = 48
ROUNDS = 8
PAUSE_SECONDS = 2.0
RETRY_SECONDS = 0.05
TIME_MS = 1_357_034_400_000


@dataclasses.dataclass
class Crowd:
    """Devices that post batches of one report, each until it is acknowledged, as fast as they can.

    They speak HTTP over sockets: a client library would take more time than the gateway.
    """

    port: int
    before: bytes
    after: bytes
    acknowledged: set[bytes] = dataclasses.field(default_factory=set)
    refused: int = 0
    broken: int = 0
    stopping: bool = False

    async def device(self) -> None:
        key = os.urandom(16)
        while key:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                with contextlib.closing(writer):
                    while key:
                        writer.write(self.before + key + self.after)
                        if await answered(reader) != HTTPStatus.ACCEPTED:
                            self.refused += 1
                            break
                        self.acknowledged.add(key)
                        key = b"" if self.stopping else os.urandom(16)
            except (OSError, asyncio.IncompleteReadError):
                self.broken += 1
            if key:
                await asyncio.sleep(RETRY_SECONDS)


async def answered(reader: asyncio.StreamReader) -> int:
    """Read an answer; return its status."""
    head = await reader.readuntil(b"\r\n\r\n")
    size = head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]
    await reader.readexactly(int(size))
    return int(head.split(None, 2)[1])


def crowd_of(deployment: Deployment, url: str) -> Crowd:
    """Return devices that answer one question at one level."""
    marker = bytes(range(16))
    body = encode_batch(deployment.metrics["delay"], [0], [1], TIME_MS, marker)
    before, after = body.split(marker)
    place = urlsplit(url)
    head = (
        f"POST /v1/reports HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: {PROTOBUF}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    assert place.port
    return Crowd(place.port, head.encode() + before, after)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_each_acknowledged_batch_is_counted_once_whoever_is_killed(
    tmp_path: Path, redis_url: str, metrics_file: Path
) -> None:
    if lacking := launcher.missing():
        servers.missing("Apache Kafka", lacking)
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(KafkaCluster(tmp_path / "kafka", brokers=3))
        kafka = servers.Kafka(cluster.bootstrap_servers, "apache", "a cluster of the test's own")
        deployment = Deployment(kafka, redis_url, metrics_file)
        stack.enter_context(deployment.store)
        workers = Fleet(deployment.flags, metrics_file.with_name("workers.log"))
        stack.callback(workers.stop)
        workers.keep(2)
        options = {"serve__workers": "2", "gateway__rate_limit": "", "publish__enabled": "false"}
        url = stack.enter_context(serving(deployment, **options))
        crowd = crowd_of(deployment, url)

        def kill_a_gateway(_: int) -> None:
            os.kill(worker_pids(deployment)[-2], signal.SIGKILL)  # the older of the two

        def kill_a_broker(turn: int) -> None:
            cluster.kill(turn % 3 + 1)

        def kill_a_worker(turn: int) -> None:
            workers.kill(turn % 2 / 2)

        def repair(turn: int) -> None:
            workers.keep(2)
            if not cluster.nodes[turn % 3].running:
                cluster.restart(turn % 3 + 1)
                wait_for_replicas(cluster)

        async def story() -> None:
            async with asyncio.TaskGroup() as posting:
                for _ in range(DEVICES):
                    posting.create_task(crowd.device())
                for turn in range(ROUNDS):
                    for kill in (kill_a_gateway, kill_a_broker, kill_a_worker):
                        kill(turn)
                        await asyncio.sleep(PAUSE_SECONDS)
                        await asyncio.to_thread(repair, turn)
                        before = len(crowd.acknowledged)
                        async with asyncio.timeout(120):
                            while len(crowd.acknowledged) <= before:
                                await asyncio.sleep(PAUSE_SECONDS)
                crowd.stopping = True

        began = time.monotonic()
        asyncio.run(story())
        lasted = time.monotonic() - began
        done = len(crowd.acknowledged), lasted, crowd.refused, crowd.broken
        logger.info("%d batches in %.0f s; %d refused, %d connections broken", *done)
        logged = keys_in(deployment)
        workers.keep(2)
        deployment.wait_until_counted(300)
        counts = deployment.counts()
        outcome = deployment.verify()
    assert logged.keys() == crowd.acknowledged
    assert counts["accepted:delay"] == len(logged)
    assert counts["duplicate:delay"] == logged.total() - len(logged)
    assert counts.keys() <= {"accepted:delay", "duplicate:delay"}
    assert crowd.broken > 0, "connections of killed gateways broke"
    assert outcome.verified, outcome.differences
