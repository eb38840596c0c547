"""Kafka is killed while devices post: what was acknowledged is in the log, and counted once."""

import asyncio
import contextlib
import copy
import dataclasses
import functools
import os
import re
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from deploy.kafka.cluster import KafkaCluster, free_ports, reserve
from producers.gateway.bodies import PROTOBUF_TYPE
from producers.wire.batch import encode_batch, new_batch_id
from tests.support.running import http_client, servers
from tests.support.running.deployment import Deployment, wait_until

pytestmark = pytest.mark.more

DEVICES = 6
TIME_MS = 1_357_034_400_000
RETRY_SECONDS, PAUSE_SECONDS = 0.5, 0.05
UNLIMITED = "--set=gateway.rate_limit="


@pytest.fixture
def endangered(own_kafka: KafkaCluster, redis_url: str, metrics_file: Path) -> Iterator[Deployment]:
    kafka = servers.Kafka(own_kafka.bootstrap_servers, "apache", "a cluster of the test's own")
    deployment = Deployment(kafka, redis_url, metrics_file)
    with deployment.store:
        yield deployment


@pytest.fixture
def gateway(endangered: Deployment) -> Iterator[str]:
    """Where to post; posts are given up after a second."""
    with endangered.serving("--set=gateway.acknowledge_timeout=1s", UNLIMITED) as url:
        yield f"{url}/v1/reports"


@dataclasses.dataclass
class Crowd:
    """Devices that post batches until they are acknowledged, and some of them once more."""

    deployment: Deployment
    url: str
    acknowledged: dict[bytes, int] = dataclasses.field(default_factory=dict)
    statuses: Counter[int] = dataclasses.field(default_factory=Counter)
    stopping: bool = False

    async def run(self) -> None:
        limits = httpx.Limits(max_connections=DEVICES)
        async with httpx.AsyncClient(limits=limits, timeout=90) as client:
            await asyncio.gather(*(self._device(client, seed) for seed in range(DEVICES)))

    async def _device(self, client: httpx.AsyncClient, seed: int) -> None:
        metric = self.deployment.metrics["delay"]
        generator = np.random.default_rng(seed)
        while not self.stopping:
            key, size = new_batch_id(), int(generator.integers(1, 4))
            level = generator.integers(0, 3, size)
            body = encode_batch(metric, level, generator.integers(0, 2, size), TIME_MS, key)
            while await self._post(client, body) != 202:
                await asyncio.sleep(RETRY_SECONDS)
            self.acknowledged[key] = size
            if generator.random() < 0.1:
                await self._post(client, body)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _post(self, client: httpx.AsyncClient, body: bytes) -> int:
        answer = await client.post(self.url, content=body, headers={"Content-Type": PROTOBUF_TYPE})
        self.statuses[answer.status_code] += 1
        if answer.status_code != 202:
            assert answer.status_code in (503, 504), answer.text
            assert int(answer.headers["retry-after"]) >= 1
        return answer.status_code

    async def at_least(self, count: int) -> None:
        """Wait until so many more batches are acknowledged."""
        target = len(self.acknowledged) + count
        async with asyncio.timeout(90):
            while len(self.acknowledged) < target:
                await asyncio.sleep(0.02)


def test_nothing_acknowledged_is_lost_when_kafka_is_killed_and_a_server_may_start_before_it(
    own_kafka: KafkaCluster, endangered: Deployment, gateway: str
) -> None:
    crowd, early = Crowd(endangered, gateway), copy.copy(endangered)
    early.topic = f"{endangered.topic}-not-there-yet"
    early.metrics_file = endangered.metrics_file.parent / "early" / "metrics.toml"
    early.metrics_file.parent.mkdir()
    early.metrics_file.write_text(endangered.metrics_file.read_text())
    log = endangered.log("serve")

    def start_before_kafka() -> None:
        """Start a server while Kafka is away, and post to it once Kafka is there."""
        metric = early.metrics["delay"]
        told, body = {"Content-Type": PROTOBUF_TYPE}, encode_batch(metric, [0], [1], TIME_MS)
        with early.serving() as url:

            def post() -> httpx.Response:
                return http_client.post(f"{url}/v1/reports", content=body, headers=told)

            found = http_client.get(f"{url}/v1/metrics/delay").json()
            assert found["revision"] == metric.revision
            answer = post()
            assert answer.status_code == 503
            assert answer.headers["content-type"] == "application/problem+json"
            assert int(answer.headers["retry-after"]) >= 1
            own_kafka.restart(1)
            wait_until(lambda: post().status_code == 202, "the gateway has created the topic")

    async def story() -> None:
        async with asyncio.TaskGroup() as posting:
            posting.create_task(crowd.run())
            await crowd.at_least(100)
            own_kafka.kill(1)
            async with asyncio.timeout(90):
                while not (crowd.statuses[504] and "brokers are down" in log.read_text()):
                    await asyncio.sleep(0.1)
            await asyncio.to_thread(start_before_kafka)
            await crowd.at_least(100)
            crowd.stopping = True

    asyncio.run(story())
    assert early.keys().total() == 1
    assert "FAIL [" not in log.read_text(), "librdkafka's own lines would fill it"
    logged = endangered.keys()
    assert logged.keys() == crowd.acknowledged.keys(), "each was posted until it was acknowledged"
    assert logged.total() > len(logged), "some are there twice"
    endangered.count()
    counts = endangered.counts()
    assert counts["accepted:delay"] == sum(crowd.acknowledged.values())
    assert counts["duplicate:delay"] > 0
    assert counts.keys() == {"accepted:delay", "duplicate:delay"}


class Undaunted(Crowd):
    """Devices that post again when their connection breaks."""

    broken: int = 0

    async def _post(self, client: httpx.AsyncClient, body: bytes) -> int:
        try:
            return await super()._post(client, body)
        except httpx.TransportError:
            self.broken += 1
            return 0


def adjacent_ports() -> int:
    """Return the first of two ports, one after the other, that nobody listens on."""
    while True:
        first = free_ports(1)[0]
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", first + 1)):
            if reserve(first + 1):
                return first


def worker_pids(deployment: Deployment) -> list[int]:
    """Return the processes that the supervisor has started, in their order."""
    told = deployment.log("serve").read_text()
    return [int(pid) for pid in re.findall(r"worker started\W.*pid\W+(\d+)", told)]


def answers_at(port: int) -> bool:
    """Return whether a process shows its own metrics at this port."""
    with contextlib.suppress(httpx.TransportError):
        answer = http_client.get(f"http://127.0.0.1:{port}/metrics")
        return answer.status_code == 200 and "dither_http_requests" in answer.text
    return False


def test_a_killed_gateway_loses_none(apache_kafka: servers.Kafka, deployment: Deployment) -> None:
    own_port = adjacent_ports()
    options = ("--set=serve.workers=2", f"--set=serve.worker_port={own_port}")
    with deployment.serving(UNLIMITED, *options) as url:
        scraped = http_client.get(f"{url}/metrics")
        assert scraped.status_code == 421
        assert str(own_port) in scraped.json()["remedy"]
        for port in (own_port, own_port + 1):  # or all devices connect to the one that was first
            wait_until(functools.partial(answers_at, port), "each process has begun")
        crowd = Undaunted(deployment, f"{url}/v1/reports")

        async def story() -> None:
            async with asyncio.TaskGroup() as posting:
                posting.create_task(crowd.run())
                await crowd.at_least(100)
                for killed in range(2):
                    os.kill(worker_pids(deployment)[-2], signal.SIGKILL)  # the older of the two
                    await crowd.at_least(50)
                    async with asyncio.timeout(90):
                        while len(worker_pids(deployment)) < 3 + killed:
                            await asyncio.sleep(0.1)
                crowd.stopping = True

        asyncio.run(story())
        for port in (own_port, own_port + 1):
            wait_until(functools.partial(answers_at, port), "each process shows its metrics")
    assert crowd.broken > 0, "connections of the killed processes broke"
    logged = deployment.keys()
    assert crowd.acknowledged.keys() <= logged.keys()
