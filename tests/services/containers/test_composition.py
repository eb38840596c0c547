"""The composition's services, of the real image: killed and frozen, they lose no report."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from aggregator.clock import SYSTEM
from estimators import load_metrics
from tests.support.paths import ROOT
from tests.support.reports.messages import batch
from tests.support.running import http_client
from tests.support.running.composition import Composition
from tests.support.running.deployment import wait_until
from tests.support.running.pods import podman

pytestmark = pytest.mark.slow

REPORTS = 50
START_SECONDS = 180.0
OURS = ("aggregate", "coordinate", "serve")


class Client:
    """A device and a reader, over HTTP."""

    def __init__(self, composition: Composition) -> None:
        self._url = f"http://127.0.0.1:{composition.ports['serve']}"
        self._metric = load_metrics(ROOT / "deploy" / "metrics.toml")["crashed"]
        self.sent = 0

    def report(self, batches: int) -> None:
        for _ in range(batches):
            self.sent += 1
            answers = [float(self.sent % 2)] * REPORTS
            payload = batch(self._metric, answers, time_ms=SYSTEM.now_ms(), seed=self.sent)
            body = payload.SerializeToString()
            wait_until(lambda body=body: self._post(body), "it is taken", START_SECONDS)  # type: ignore[misc]

    def _post(self, body: bytes) -> bool:
        headers = {"Content-Type": "application/x-protobuf"}
        answer = http_client.post(
            f"{self._url}/v1/reports", content=body, headers=headers, timeout=30
        )
        assert answer.status_code in (202, 503, 504), answer.text
        return answer.status_code == 202

    def counted(self) -> int:
        """Return of how many reports the server estimates; -1 if it cannot say."""
        answer = http_client.get(f"{self._url}/v1/metrics/crashed/estimate", timeout=30)
        return int(answer.json()["reports"]) if answer.status_code == 200 else -1


def test_services_that_are_killed_and_frozen_lose_no_report(image: str, tmp_path: Path) -> None:
    with Composition(tmp_path) as composition:
        for service in composition.services:
            try:
                wait_until(
                    lambda service=service: composition.is_healthy(service),  # type: ignore[misc]
                    f"{service} is healthy",
                    START_SECONDS,
                )
            except AssertionError as error:
                pytest.fail(f"{error}:\n{composition.logs(service)}")
        client = Client(composition)
        client.report(5)
        wait_until(lambda: client.counted() == 5 * REPORTS, "all is counted")

        for service in ("aggregate", "redis", "kafka"):
            composition.signal(service, signal.SIGKILL)
            client.report(5)
            wait_until(
                lambda service=service: composition.is_healthy(service),  # type: ignore[misc]
                f"{service} runs again",
                START_SECONDS,
            )
        composition.signal("aggregate", signal.SIGSTOP)
        client.report(5)
        assert not composition.is_healthy("aggregate")
        composition.restart("aggregate")

        wait_until(lambda: client.counted() == client.sent * REPORTS, "all is counted")
        for service in composition.services:
            assert composition.is_healthy(service), composition.logs(service)
        command = ("dither", "verify", "--json")
        outcome = json.loads(podman("exec", composition.container("serve"), *command))
        assert (outcome["verified"], outcome["differences"], outcome["unverifiable"]) == (
            True,
            [],
            [],
        )
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
