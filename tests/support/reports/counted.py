"""A store with counted batches, and servers that answer from it."""

import contextlib
import dataclasses
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from aggregator.config.settings import Settings
from aggregator.features.reader import Reader
from aggregator.kafka.log_ends import LogEnds
from aggregator.local.embedded_servers import EmbeddedBroker
from aggregator.state.partition import Partition
from aggregator.state.watermark import CONFIRMING_BATCHES
from aggregator.storage.connection import connect
from aggregator.storage.store import Store
from aggregator.web.application import application
from deploy.kafka.cluster import free_ports
from estimators import Metric
from producers.wire.reports_pb2 import ReportBatch
from tests.support.clocks import wait_until
from tests.support.reports.messages import ARRIVAL, EPOCH, batch, log
from tests.support.running import http_client
from tests.support.running.processes import answering

MINUTE, HOUR = 60_000, 3_600_000
TOPIC = "dither.reports"
PATIENCE = 60.0
HERE = "http://localhost"

DEFINITIONS = """
[metrics]
delay = {kind = "mean", mechanism = "randomized_response", range = [0, 10], levels = [0.5, 1], \
minimum_reports = 10, lateness = "1m", unit = "minutes", description = "Departure delay"}
carrier = {kind = "frequency", mechanism = "rappor", categories = ["AA", "B6", "DL", "UA"], \
levels = [1, 8]}
place = {kind = "vector_mean", mechanism = "hemisphere", coordinates = ["x", "y", "z"], \
radius = 2, levels = [8], unit = "km"}
page = {kind = "frequency", mechanism = "count_sketch", categories = "open", watch = ["/", \
"/checkout"], levels = [8], options = {rows = 4, buckets = 64}, retention = "30d"}
silent = {kind = "mean", mechanism = "laplace", range = [0, 1], levels = [1]}
"""


class Counting:
    """Counts batches into the partitions of a store, as a worker does."""

    def __init__(self, store: Store, metrics: Mapping[str, Metric]) -> None:
        self.store, self.metrics = store, dict(metrics)
        self._seed = 0
        self._owned: dict[int, tuple[int, Partition]] = {}

    def count(self, partition: int, *contents: ReportBatch | bytes, **facts: str | int) -> None:
        """Take a partition over, count batches from its next offset on, and commit."""
        snapshot = self.store.partition.acquire(partition, "test")
        state = snapshot.partition(self.metrics, 10 * MINUTE)
        self._owned[partition] = int(snapshot.owner["epoch"]), state
        self._commit(partition, snapshot.next_offset, contents, facts)

    def count_on(self, partition: int, *contents: ReportBatch | bytes) -> None:
        """Count more batches as the present owner."""
        self._commit(partition, self._owned[partition][1].next_offset, contents, {})

    def _commit(
        self,
        partition: int,
        expected: int,
        contents: Sequence[ReportBatch | bytes],
        facts: Mapping[str, str | int],
    ) -> None:
        epoch, state = self._owned[partition]
        first = max(0, expected)
        state.count(log(*contents, first=first))
        known: dict[str, str | int] = {"high": first + len(contents), "updated": ARRIVAL}
        known |= {"partitions": partition + 1, **facts}
        self.store.partition.commit(partition, epoch, expected, state, known)

    def batch(
        self, name: str, answers: Sequence[Any], minute: float = 0, epsilon: float = 1.0
    ) -> ReportBatch:
        """Return a batch with a new id."""
        self._seed += 1
        return batch(self.metrics[name], answers, epsilon, int(EPOCH + minute * MINUTE), self._seed)

    def some(self, minutes: int = 90) -> None:
        """Count two partitions: eight batches of delays a minute, some carriers, places, pages."""
        for number in (0, 1):
            each = [minute for minute in range(minutes) for _ in range(CONFIRMING_BATCHES)]
            delays = [self.batch("delay", [minute % 10] * 5, minute) for minute in each]
            once = self.batch("delay", [1.0] * 3, minutes - 1)
            carriers = self.batch("carrier", [0] * 300 + [1] * 200 + [3] * 100, 1, 8)
            places = self.batch("place", [[0.1, -1.5, 0.5]] * 300, 1, 8)
            pages = self.batch("page", ["/"] * 300 + ["/a b&c"] * 200, 1, 8)
            late = self.batch("delay", [1.0] * 7, 0)
            self.count(number, *delays, once, once, carriers, places, pages, late, b"\xff bad")


class Client:
    """Sends requests to an application without a socket, so that it raises the server's errors."""

    def __init__(self, store: Store, metrics: Mapping[str, Metric], settings: Settings) -> None:
        self.store, self.settings = store, settings
        self.ends = LogEnds()
        reader = Reader(store, metrics)
        self.app = application(reader, settings, ends=lambda: self.ends)

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Return the answer to one request."""
        import asyncio

        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url=HERE) as client:
                return await client.request(method, path, **options)

        return asyncio.run(ask())

    def get(self, path: str, **options: Any) -> httpx.Response:
        """Return the answer to a GET."""
        return self.ask("GET", path, **options)

    def json(self, path: str, **params: Any) -> Any:
        """Return the JSON of a GET that succeeds."""
        answer = self.get(path, params=params)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/json"
        return answer.json()

    def problem(self, status: int, path: str, method: str = "GET", **options: Any) -> Any:
        """Return the problem with which a request is answered."""
        answer = self.ask(method, path, **options)
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert problem["status"] == status
        assert problem["instance"] == path.partition("?")[0]
        assert problem["type"] == "about:blank"
        assert problem["title"]
        assert problem["detail"]
        assert problem["remedy"]
        assert not any(word in problem["detail"] for word in ("regex", "enum", "$.", "`"))
        return problem


@dataclasses.dataclass
class Server:
    """A running `dither serve`, and the file with its output."""

    process: subprocess.Popen[bytes]
    url: str
    told: Path


@contextlib.contextmanager
def serving(metrics_file: Path, redis_url: str, *flags: str) -> Iterator[Server]:
    """Run `dither serve` as a process until the end of the context; yield it once it answers."""
    (port,) = free_ports(1)
    url, told = f"http://127.0.0.1:{port}", metrics_file.with_name("serve.log")
    command = [
        *(sys.executable, "-m", "aggregator", "serve", f"--port={port}"),
        *("--metrics", str(metrics_file), "--redis", redis_url),
        *("--set", "serve.gateway=false", "--set", "publish.enabled=false", *flags),
    ]
    with answering(command, told, lambda: http_client.status(f"{url}/healthz") == 200) as process:
        yield Server(process, url, told)


@contextlib.contextmanager
def serving_a_gateway(metrics_file: Path, redis_url: str, **sets: str) -> Iterator[Server]:
    """Run `dither serve` with a gateway and the in-process broker; settings have `_` for dots."""
    with EmbeddedBroker() as broker:
        broker.create_topic("dither.reports")
        servers = f"kafka.bootstrap.servers={broker.bootstrap_servers}"
        flags = [servers, "topics.managed=false", "serve.gateway=true"]
        flags += [f"{key.replace('_', '.', 1)}={value}" for key, value in sets.items()]
        words = [word for flag in flags for word in ("--set", flag)]
        with serving(metrics_file, redis_url, *words) as server:
            wait_until(lambda: http_client.status(f"{server.url}/readyz") == 200, "Kafka answers")
            yield server


def connected(url: str) -> Store:
    """Return the store at a URL."""
    return Store(connect(url), TOPIC)
