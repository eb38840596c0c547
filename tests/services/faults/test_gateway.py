"""Kafka is killed while devices post: what was acknowledged is in the log, and counted once."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from aggregator.local.deployment import free_port
from deploy.kafka import launcher
from deploy.kafka.cluster import KafkaCluster
from producers.gateway.bodies import PROTOBUF
from producers.wire.batch import encode_batch, new_batch_id
from tests.services.faults.gateways import answers_at, keys_in, log_of, serving, worker_pids
from tests.support.running import http_client, servers
from tests.support.running.deployment import Deployment, wait_until

pytestmark = pytest.mark.more

DEVICES = 16
TIME_MS = 1_357_034_400_000
RETRY_SECONDS = 0.1


@pytest.fixture(scope="module")
def own_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[launcher.KafkaCluster]:
    """A cluster that nobody else misses; each test leaves it running."""
    if lacking := launcher.missing():
        servers.missing("Apache Kafka", lacking)
    with launcher.KafkaCluster(tmp_path_factory.mktemp("kafka")) as cluster:
        yield cluster


@pytest.fixture
def endangered(own_kafka: launcher.KafkaCluster, redis_url: str, metrics_file: Path) -> Deployment:
    kafka = servers.Kafka(own_kafka.bootstrap_servers, "apache", "a cluster of the test's own")
    return Deployment(kafka, redis_url, metrics_file)


@pytest.fixture
def gateway(endangered: Deployment) -> Iterator[str]:
    """Where to post; posts are given up after a second."""
    with serving(endangered, gateway__acknowledge_timeout="1s", gateway__rate_limit="") as url:
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
        async with httpx.AsyncClient(limits=limits, timeout=30) as client:
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

    async def _post(self, client: httpx.AsyncClient, body: bytes) -> int:
        answer = await client.post(self.url, content=body, headers={"Content-Type": PROTOBUF})
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


def test_no_acknowledged_batch_is_lost_when_the_broker_is_killed(
    own_kafka: launcher.KafkaCluster, endangered: Deployment, gateway: str
) -> None:
    crowd = Crowd(endangered, gateway)

    async def story() -> None:
        async with asyncio.TaskGroup() as posting:
            posting.create_task(crowd.run())
            await crowd.at_least(100)
            own_kafka.kill(1)
            async with asyncio.timeout(30):
                while not crowd.statuses[504]:
                    await asyncio.sleep(0.1)
            await asyncio.to_thread(own_kafka.restart, 1)
            await crowd.at_least(100)
            crowd.stopping = True

    asyncio.run(story())
    assert crowd.statuses[504] > 0, "some learned that the outcome is unknown"
    log = log_of(endangered).read_text()
    assert "brokers are down" in log
    assert "FAIL [" not in log, "librdkafka's own lines would fill it"
    logged = keys_in(endangered)
    assert crowd.acknowledged.keys() <= logged.keys()
    assert logged.keys() == crowd.acknowledged.keys(), "each was posted until it was acknowledged"
    assert logged.total() > len(logged), "some are there twice"
    with endangered.worker():
        endangered.wait_until_counted()
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


def test_no_acknowledged_batch_is_lost_when_processes_of_the_gateway_are_killed(
    endangered: Deployment,
) -> None:
    own_port = free_port()
    options = {"serve__workers": "2", "serve__worker_port": str(own_port)}
    with serving(endangered, gateway__rate_limit="", **options) as url:
        scraped = http_client.get(f"{url}/metrics")
        assert scraped.status_code == 421
        assert str(own_port) in scraped.json()["remedy"]
        for port in (own_port, own_port + 1):  # or all devices connect to the one that was first
            wait_until(functools.partial(answers_at, port), "each process has begun")
        crowd = Undaunted(endangered, f"{url}/v1/reports")

        async def story() -> None:
            async with asyncio.TaskGroup() as posting:
                posting.create_task(crowd.run())
                await crowd.at_least(100)
                for killed in range(2):
                    os.kill(worker_pids(endangered)[-2], signal.SIGKILL)  # the older of the two
                    await crowd.at_least(50)
                    async with asyncio.timeout(30):
                        while len(worker_pids(endangered)) < 3 + killed:
                            await asyncio.sleep(0.1)
                crowd.stopping = True

        asyncio.run(story())
        for port in (own_port, own_port + 1):
            wait_until(functools.partial(answers_at, port), "each process shows its metrics")
    assert crowd.broken > 0, "connections of the killed processes broke"
    logged = keys_in(endangered)
    assert crowd.acknowledged.keys() <= logged.keys()


def test_a_server_that_started_before_kafka_takes_reports_when_kafka_comes(
    own_kafka: launcher.KafkaCluster, endangered: Deployment
) -> None:
    metric = endangered.metrics["delay"]
    body = encode_batch(metric, [0], [1], TIME_MS)

    def post() -> httpx.Response:
        return http_client.post(
            f"{url}/v1/reports", content=body, headers={"Content-Type": PROTOBUF}
        )

    endangered.topic = f"{endangered.topic}-not-there-yet"
    own_kafka.kill(1)
    with serving(endangered) as url:
        assert http_client.get(f"{url}/v1/metrics/delay").json()["revision"] == metric.revision
        answer = post()
        assert answer.status_code == 503
        assert answer.headers["content-type"] == "application/problem+json"
        assert int(answer.headers["retry-after"]) >= 1
        own_kafka.restart(1)
        wait_until(lambda: post().status_code == 202, "the gateway has created the topic")
    assert keys_in(endangered).total() == 1


@pytest.mark.slow
def test_readiness_warns_while_too_few_replicas_are_in_sync(
    tmp_path: Path, redis_url: str, metrics_file: Path
) -> None:
    if lacking := launcher.missing():
        servers.missing("Apache Kafka", lacking)
    with KafkaCluster(tmp_path / "kafka", brokers=3) as cluster:
        kafka = servers.Kafka(cluster.bootstrap_servers, "apache", "a cluster of the test's own")
        deployment = Deployment(kafka, redis_url, metrics_file)
        deployment.topic = kafka.topic(1, min_insync_replicas=3)
        body = encode_batch(deployment.metrics["delay"], [0], [1], TIME_MS, new_batch_id())
        with (
            deployment.store,
            serving(deployment, gateway__acknowledge_timeout="1s", publish__enabled="false") as url,
        ):

            def post() -> int:
                told = {"Content-Type": PROTOBUF}
                return http_client.post(f"{url}/v1/reports", content=body, headers=told).status_code

            def warnings() -> list[str]:
                answer = http_client.get(f"{url}/readyz")
                return answer.json().get("warnings", []) if answer.status_code == 200 else ["away"]

            wait_until(lambda: post() == 202, "it takes posts")
            assert warnings() == []
            cluster.kill(3)
            wait_until(
                lambda: post() == 504 and "than min.insync.replicas" in warnings()[0],
                "the topic takes no writes, and readiness warns",
            )
            cluster.restart(3)
            wait_until(lambda: post() == 202, "it takes writes again")
            assert warnings() == []
