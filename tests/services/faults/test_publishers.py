"""Servers that are killed and frozen while they publish: each final event is there once."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from aggregator.storage.redis_keys import publisher_key
from tests.support.events import ages, final_ids
from tests.support.running import fleet
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.servers import Kafka

pytestmark = pytest.mark.more

LEASE_SECONDS = 2.0
ARGUMENTS = [
    *("--port=0", "--log-json", "--log-level=debug", "--set=publish.lease=2s"),
    *("--set=publish.interval=300ms", "--set=aggregate.idle=300ms"),
]


class Servers:
    """Processes of `dither serve`: one publishes, the other waits for its turn."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.processes = [self.start(), self.start()]

    def start(self) -> BaseProcess:
        arguments = [*self.deployment.flags, *ARGUMENTS]
        log = self.deployment.metrics_file.with_name(f"{time.monotonic_ns()}.log")
        process = fleet.start("serve", arguments, log)
        process.name = str(log)
        return process

    def leader(self, other_than: BaseProcess | None = None) -> BaseProcess:
        """Return who has the lease, once it is another one."""
        found: list[BaseProcess] = []

        def is_there() -> bool:
            key = publisher_key(self.deployment.topic) + ":lease"
            lease = self.deployment.store.client.get(key)
            pid = int(lease.split(b":")[2]) if isinstance(lease, bytes) else 0
            found[:] = [one for one in self.processes if one.pid == pid and one is not other_than]
            return bool(found)

        wait_until(is_there, "a server has the lease")
        return found[0]


@contextmanager
def servers(deployment: Deployment) -> Iterator[Servers]:
    found = Servers(deployment)
    try:
        yield found
    finally:
        for process in found.processes:
            process.kill()
            process.join()


@contextmanager
def panes_closing(deployment: Deployment, seconds: float) -> Iterator[list[int]]:
    """Have reports of another pane counted after so many seconds each; at the end all are final."""
    closed, enough = list[int](), threading.Event()

    def devices() -> None:
        while not enough.wait(seconds):
            deployment.produce(ages(deployment, range(len(closed), len(closed) + 1)))
            closed.append(len(closed))

    thread = threading.Thread(target=devices)
    with deployment.worker():
        thread.start()
        try:
            yield closed
            wait_until(lambda: len(closed) > 10, "more than ten panes")
        finally:
            enough.set()
            thread.join()
        deployment.wait_until_counted()
        wait_until(lambda: len(final_ids(deployment)) >= len(closed), "all are final", 120)


def test_another_server_takes_over_from_one_that_was_killed_and_from_one_that_was_frozen(
    apache_kafka: Kafka, deployment: Deployment
) -> None:
    with servers(deployment) as both, panes_closing(deployment, 0.5) as panes:
        wait_until(lambda: bool(final_ids(deployment)), "the first final events")
        first = both.leader()
        first.kill()
        both.processes.append(both.start())
        killed = time.monotonic()
        second = both.leader(other_than=first)
        assert time.monotonic() - killed < LEASE_SECONDS + 3

        assert second.pid is not None
        os.kill(second.pid, signal.SIGSTOP)
        log = Path(second.name)
        before = len(log.read_text())
        both.leader(other_than=second)
        published = len(final_ids(deployment))
        wait_until(lambda: len(final_ids(deployment)) > published, "the other publishes")
        os.kill(second.pid, signal.SIGCONT)
        noticed = re.compile("lease lost|cannot publish")  # frozen while it asked Kafka, the latter
        wait_until(lambda: bool(noticed.search(log.read_text()[before:])), "it has noticed")
        assert '"event": "published"' not in noticed.split(log.read_text()[before:])[0]
    found = final_ids(deployment)
    assert len(found) == len(panes)
    assert set(found.values()) == {1}
