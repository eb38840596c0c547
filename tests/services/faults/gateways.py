"""Gateways in processes of their own, and the batches that reached Kafka through them."""

from __future__ import annotations

import contextlib
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx

from aggregator.local.deployment import free_port
from tests.support.running import http_client
from tests.support.running.deployment import Deployment
from tests.support.running.processes import answering


def log_of(deployment: Deployment) -> Path:
    return deployment.metrics_file.with_name("serve.log")


@contextlib.contextmanager
def serving(deployment: Deployment, **settings: str) -> Iterator[str]:
    """Run `dither serve`; return its address."""
    port = free_port()
    sets = [word for k, v in settings.items() for word in ("--set", f"{k.replace('__', '.')}={v}")]
    command = [sys.executable, "-m", "aggregator", "serve", "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    with answering(
        [*command, *deployment.flags, *sets],
        log_of(deployment),
        lambda: http_client.status(f"{url}/healthz") == 200,
    ) as process:
        yield url
    assert process.returncode in (0, -15)


def keys_in(deployment: Deployment) -> Counter[bytes]:
    """Return how often each batch id is in the log."""
    return Counter(bytes(message.key() or b"") for message in deployment.messages())


def worker_pids(deployment: Deployment) -> list[int]:
    """Return the processes that the supervisor has started, in their order."""
    return [
        int(p) for p in re.findall(r"worker started\W.*pid\W+(\d+)", log_of(deployment).read_text())
    ]


def answers_at(port: int) -> bool:
    """Return whether a process shows its own metrics at this port."""
    with contextlib.suppress(httpx.TransportError):
        answer = http_client.get(f"http://127.0.0.1:{port}/metrics")
        return answer.status_code == 200 and "dither_http_requests" in answer.text
    return False
