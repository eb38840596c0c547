"""Gateways in processes of their own, and the batches that reached Kafka through them."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import Consumer, TopicPartition

from aggregator.local.deployment import free_port
from tests.support.running import http_client
from tests.support.running.deployment import Deployment, wait_until


def log_of(deployment: Deployment) -> Path:
    return deployment.metrics_file.with_name("serve.log")


@contextlib.contextmanager
def serving(deployment: Deployment, **settings: str) -> Iterator[str]:
    """Run `dither serve`; return its address."""
    port = free_port()
    sets = [word for k, v in settings.items() for word in ("--set", f"{k.replace('__', '.')}={v}")]
    command = [sys.executable, "-m", "aggregator", "serve", "--port", str(port)]
    with log_of(deployment).open("wb") as log:
        process = subprocess.Popen(
            [*command, *deployment.flags, *sets], env=dict(os.environ), stdout=log, stderr=log
        )
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, log_of(deployment).read_text()
        try:
            return http_client.get(f"{url}/healthz").status_code == 200
        except httpx.TransportError:
            return False

    try:
        wait_until(answers, "the gateway listens")
        yield url
    finally:
        process.terminate()
        assert process.wait(60) in (0, -15)


def keys_in(deployment: Deployment) -> Counter[bytes]:
    """Return how often each batch id is in the log."""
    config: Any = {"bootstrap.servers": deployment.kafka.bootstrap_servers, "group.id": "look"}
    consumer = Consumer(config)
    ends = deployment.log_ends()
    consumer.assign([TopicPartition(deployment.topic, number, 0) for number in ends])
    found: Counter[bytes] = Counter()

    def everything() -> bool:
        found.update(bytes(message.key() or b"") for message in consumer.consume(1000, timeout=0.2))
        return found.total() >= sum(ends.values())

    try:
        wait_until(everything, "the whole log was read")
    finally:
        consumer.close()
    return found


def worker_pids(deployment: Deployment) -> list[int]:
    """Return the processes that the supervisor has started, in their order."""
    return [
        int(p) for p in re.findall(r"worker started\W.*pid\W+(\d+)", log_of(deployment).read_text())
    ]


def answers_at(port: int) -> bool:
    """Return whether a process shows its own metrics at this port."""
    try:
        answer = http_client.get(f"http://127.0.0.1:{port}/metrics")
    except httpx.TransportError:
        return False
    return answer.status_code == 200 and "dither_http_requests" in answer.text
