"""Servers that are killed and frozen while they publish: each final event is there once."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from aggregator.storage.redis_keys import publisher_key
from deploy.kafka.cluster import free_ports
from tests.support.events import ages, final_ids
from tests.support.reports.metrics import METRICS
from tests.support.running import http_client
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.servers import Kafka

pytestmark = pytest.mark.more

LEASE_SECONDS = 2.0
SEED = 20130102
ARGUMENTS = [
    "--log-json",
    "--log-level=debug",
    "--set=publish.lease=2s",
    "--set=publish.interval=300ms",
    "--set=aggregate.idle=300ms",
]


@pytest.fixture
def events_deployment(apache_kafka: Kafka, redis_url: str, tmp_path: Path) -> Deployment:
    file = tmp_path / "metrics.toml"
    file.write_text(METRICS)
    return Deployment(apache_kafka, redis_url, file)


class Servers:
    """Two `dither serve`: one publishes, the other waits for its turn."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.logs: dict[int, Path] = {}
        self.processes = [self._start(), self._start()]

    def _start(self) -> subprocess.Popen[bytes]:
        name = f"server-{len(self.logs)}.log"
        process = self.deployment.start_server(name, *ARGUMENTS)
        self.logs[process.pid] = self.deployment.metrics_file.with_name(name)
        return process

    def log(self, process: subprocess.Popen[bytes]) -> str:
        """Return what a server has logged so far."""
        return self.logs[process.pid].read_text()

    def leader(self) -> subprocess.Popen[bytes] | None:
        """Return who has the lease, if it is one of these and alive."""
        key = publisher_key(self.deployment.topic) + ":lease"
        found = self.deployment.store.client.get(key)
        pid = int(found.split(b":")[2]) if isinstance(found, bytes) else 0
        return next((p for p in self.processes if p.pid == pid), None)

    def wait_for_leader(self, other_than: int = 0) -> subprocess.Popen[bytes]:
        def there() -> bool:
            leader = self.leader()
            return leader is not None and leader.pid != other_than

        wait_until(there, "a server has the lease")
        leader = self.leader()
        assert leader is not None
        return leader

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a server, and start another in its place."""
        process.kill()
        process.wait()
        self.processes[self.processes.index(process)] = self._start()

    def stop(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            process.terminate()
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def servers(deployment: Deployment) -> Iterator[Servers]:
    found = Servers(deployment)
    try:
        yield found
    finally:
        found.stop()


@dataclasses.dataclass
class Panes:
    """Panes of which one after the other ends, until somebody says that there are enough."""

    closed: int = 0
    enough: threading.Event = dataclasses.field(default_factory=threading.Event)


@contextlib.contextmanager
def panes_closing(deployment: Deployment, seconds: float) -> Iterator[Panes]:
    """Have reports of another pane counted after so many seconds each; at the end all are final."""
    panes = Panes()

    def devices() -> None:
        while not panes.enough.wait(seconds):
            deployment.produce(ages(deployment, range(panes.closed, panes.closed + 1)))
            panes.closed += 1

    thread = threading.Thread(target=devices)
    with deployment.worker():
        thread.start()
        try:
            yield panes
        finally:
            panes.enough.set()
            thread.join()
        deployment.wait_until_counted()
        events = f"{panes.closed} final events"
        wait_until(lambda: len(final_ids(deployment)) >= panes.closed, events, 120)


def test_another_server_takes_over_from_one_that_was_killed_and_from_one_that_was_frozen(
    events_deployment: Deployment,
) -> None:
    deployment = events_deployment
    with servers(deployment) as both, panes_closing(deployment, 0.5) as panes:
        wait_until(lambda: bool(final_ids(deployment)), "the first final events")
        first = both.wait_for_leader()
        both.kill(first)
        killed = time.monotonic()
        second = both.wait_for_leader(other_than=first.pid)
        assert time.monotonic() - killed < LEASE_SECONDS + 3

        second.send_signal(signal.SIGSTOP)
        before = len(both.log(second))
        both.wait_for_leader(other_than=second.pid)
        published = len(final_ids(deployment))
        wait_until(lambda: len(final_ids(deployment)) > published, "the other publishes")
        second.send_signal(signal.SIGCONT)
        noticed = re.compile("lease lost|cannot publish")  # frozen while it asked Kafka, the latter
        wait_until(lambda: bool(noticed.search(both.log(second)[before:])), "it has noticed")
        assert '"event": "published"' not in noticed.split(both.log(second)[before:])[0]
    found = final_ids(deployment)
    assert len(found) == panes.closed > 10
    assert set(found.values()) == {1}


@pytest.mark.slow
def test_a_server_answers_while_kafka_is_away_and_says_why_it_does_not_publish(
    redis_url: str, metrics_file: Path
) -> None:
    port, nobody = free_ports(2)
    command = [sys.executable, "-m", "aggregator", "serve", "--redis", redis_url]
    command += ["--metrics", str(metrics_file), "--port", str(port), "--log-json"]
    command += ["--kafka", f"127.0.0.1:{nobody}"]
    log = metrics_file.with_name("server.log")

    def answers(path: str) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return http_client.get(f"http://127.0.0.1:{port}{path}").status_code == 200
        return False

    with log.open("wb") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output)
    try:
        wait_until(lambda: answers("/healthz"), "it answers")
        wait_until(lambda: "cannot publish" in log.read_text(), "it says why")
        assert f"no Kafka broker answers at 127.0.0.1:{nobody}" in log.read_text()
        assert answers("/v1/metrics")
        assert "Traceback" not in log.read_text()
        server.terminate()
        assert server.wait(30) in (0, -signal.SIGTERM)
    finally:
        server.kill()
        server.wait()


@pytest.mark.slow
def test_each_final_event_is_there_once_after_many_kills(events_deployment: Deployment) -> None:
    deployment = events_deployment
    rng = random.Random(SEED)
    kills = 0
    with servers(deployment) as both, panes_closing(deployment, 0.3) as panes:
        while panes.closed < 300:
            leader = both.wait_for_leader()
            threading.Event().wait(rng.uniform(0.0, 1.5))
            if rng.random() < 0.25:
                leader.send_signal(signal.SIGSTOP)
                both.wait_for_leader(other_than=leader.pid)
                leader.send_signal(signal.SIGCONT)
            else:
                both.kill(leader)
                kills += 1
    assert kills > 10
    found = final_ids(deployment)
    assert len(found) == panes.closed
    assert set(found.values()) == {1}
