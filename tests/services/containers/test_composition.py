"""The composition's services, of the real image: killed and frozen, they lose no report."""

from __future__ import annotations

import functools
import json
import signal
from pathlib import Path

import pytest

from aggregator.clock import SYSTEM_CLOCK
from estimators import load_metrics
from tests.support.paths import ROOT
from tests.support.reports.messages import batch
from tests.support.running import http_client
from tests.support.running.composition import Composition
from tests.support.running.deployment import wait_until
from tests.support.running.pods import podman

pytestmark = pytest.mark.slow

START_SECONDS = 180.0
OURS = ("aggregate", "coordinate", "serve")


def test_services_count_reports_and_run_again_after_a_kill(image: str, tmp_path: Path) -> None:
    """What hangs, and what is lost while devices report, is tested with pods of the same image."""
    metric = load_metrics(ROOT / "deploy" / "metrics.toml")["crashed"]
    with Composition(tmp_path) as composition:
        url = f"http://127.0.0.1:{composition.ports['serve']}/v1"
        sent = 0

        def report() -> None:
            nonlocal sent
            sent += 1
            payload = batch(metric, [1.0, 0.0] * 25, time_ms=SYSTEM_CLOCK.now_ms(), seed=sent)
            headers = {"Content-Type": "application/x-protobuf"}
            body = payload.SerializeToString()

            def posted() -> bool:
                answer = http_client.post(
                    f"{url}/reports", content=body, headers=headers, timeout=30
                )
                assert answer.status_code in (202, 503, 504), answer.text
                return answer.status_code == 202

            wait_until(posted, "it is taken", START_SECONDS)

        def is_counted() -> bool:
            answer = http_client.get(f"{url}/metrics/crashed/estimate", timeout=30)
            return answer.status_code == 200 and answer.json()["reports"] == 50 * sent

        def is_healthy(service: str) -> None:
            healthy = functools.partial(composition.is_healthy, service)
            wait_until(healthy, f"{service} is healthy", START_SECONDS)

        for service in composition.services:
            is_healthy(service)
        report()
        for service in ("aggregate", "redis", "kafka"):
            composition.signal(service, signal.SIGKILL)
            report()
            is_healthy(service)
        wait_until(is_counted, "all is counted")
        command = ("dither", "verify", "--json")
        outcome = json.loads(podman("exec", composition.container("serve"), *command))
        assert outcome["verified"], outcome
        for service in OURS:
            described = composition.state(service)
            assert described["HostConfig"]["ReadonlyRootfs"]
            assert described["HostConfig"]["Memory"] > 0
            assert not described["State"]["OOMKilled"]
        prometheus = f"http://127.0.0.1:{composition.ports['prometheus']}/api/v1/query"

        def is_scraped() -> bool:
            found = http_client.get(prometheus, params={"query": "dither_workers"}).json()
            return [each["value"][1] for each in found["data"]["result"]] == ["1"]

        wait_until(is_scraped, "Prometheus knows of the worker")
