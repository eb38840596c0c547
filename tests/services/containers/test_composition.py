"""The composition's services, of the real image: killed and frozen, they lose no report."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped, unused-ignore]

from aggregator.clock import SYSTEM_CLOCK
from deploy.images import DEBIAN_IMAGE
from deploy.kafka.cluster import free_ports
from deploy.kafka.distribution import JARS
from estimators import load_metrics
from tests.support.paths import ROOT
from tests.support.reports.messages import batch
from tests.support.running import http_client
from tests.support.running.deployment import wait_until
from tests.support.running.pods import IMAGE, podman, reaches_registry
from tests.support.running.servers import program

DEPLOY = ROOT / "deploy"
PROGRAMS = ["/usr:/usr:ro", "/etc/alternatives:/etc/alternatives:ro"]
KAFKA = """
mkdir -p /tmp/default /tmp/mounted /tmp/final
touch /tmp/default/server.properties /tmp/default/log4j2.yaml /tmp/default/tools-log4j2.yaml
said=$$(java -cp '/opt/kafka/libs/*' kafka.docker.KafkaDockerWrapper setup \
  --default-configs-dir /tmp/default --mounted-configs-dir /tmp/mounted \
  --final-configs-dir /tmp/final 2>&1) \
  || echo "$$said" | grep -i 'already formatted' || { echo "$$said"; exit 1; }
exec java $$KAFKA_HEAP_OPTS -cp '/opt/kafka/libs/*' kafka.Kafka /tmp/final/server.properties
"""
KAFKA_ANSWERS = "import socket; socket.create_connection(('kafka', 19092), 5)"


class Composition:
    """The services of the composition, on ports of their own.

    Parameters
    ----------
    folder : Path
        For the changed file.

    Attributes
    ----------
    services : dict
        As the composition has them, but for images and ports.
    ports : dict
        This machine's port of each service that has one.
    """

    def __init__(self, folder: Path) -> None:
        self._compose = str(program("podman-compose", "apt install podman-compose"))
        self._project = f"dither-{uuid.uuid4().hex[:8]}"
        self._file = folder / "compose.yaml"
        whole = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
        self.services: dict[str, Any] = whole["services"]
        self.ports: dict[str, int] = {}
        if not reaches_registry():
            self._replace_servers()
        for name, service in self.services.items():
            if service.pop("build", None) is not None:
                service["image"] = IMAGE
            if "ports" in service:
                (self.ports[name],) = free_ports(1)
                inside = service["ports"][0].rpartition(":")[2]
                service["ports"] = [f"127.0.0.1:{self.ports[name]}:{inside}"]
            service["volumes"] = [_absolute(mount) for mount in service["volumes"]]
        whole.pop("name")
        self._file.write_text(yaml.safe_dump(whole))

    def _replace_servers(self) -> None:
        del self.services["grafana"]
        for name in ("kafka", "redis", "prometheus"):
            self.services[name]["image"] = DEBIAN_IMAGE
            self.services[name]["volumes"] += PROGRAMS
        kafka = self.services["kafka"]
        java = [
            f"/etc/{folder.name}:/etc/{folder.name}:ro" for folder in Path("/etc").glob("java*")
        ]
        kafka["volumes"] += [*java, f"{JARS}:/opt/kafka/libs:ro"]
        kafka["environment"]["CLUSTER_ID"] = "5L6g3nShT-eMCtK--X86sw"
        kafka["command"] = ["sh", "-ec", KAFKA]
        kafka["healthcheck"]["test"] = ["CMD", "python3", "-c", KAFKA_ANSWERS]
        self.services["redis"]["command"] += ["--protected-mode", "no"]  # as its image is built
        self.services["prometheus"]["command"] = [
            "prometheus",
            "--config.file=/etc/prometheus/prometheus.yml",
            "--storage.tsdb.path=/prometheus",
        ]

    def __enter__(self) -> Composition:
        try:
            self._run("up", "--detach", "--no-build")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._run("down", "--volumes", "--timeout", "1", check=False)
        project = f"label=io.podman.compose.project={self._project}"
        left = podman("ps", "--all", "--quiet", "--filter", project, check=False).split()
        if left:  # one that was just starting again
            podman("rm", "--force", "--time", "0", *left, check=False)
        podman("network", "rm", "--force", f"{self._project}_default", check=False)

    def _run(self, *words: str, check: bool = True) -> None:
        command = [self._compose, "-p", self._project, "-f", str(self._file), *words]
        ran = subprocess.run(
            command, cwd=self._file.parent, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0 or not check, ran.stdout + ran.stderr

    def container(self, service: str) -> str:
        """Return the name of a service's container."""
        return f"{self._project}_{service}_1"

    def state(self, service: str) -> dict[str, Any]:
        """Return what podman knows of a service's container."""
        (described,) = json.loads(podman("inspect", self.container(service)))
        assert isinstance(described, dict)
        return described

    def is_healthy(self, service: str) -> bool:
        """Run a service's health check, as an engine does, and return whether it succeeds."""
        test = self.services[service]["healthcheck"]["test"]
        assert test[0] == "CMD"
        seconds = self.services[service]["healthcheck"]["timeout"]
        command = ["podman", "exec", self.container(service), *test[1:]]
        limited = ["timeout", "--signal", "KILL", seconds, *command]
        return subprocess.run(limited, capture_output=True, check=False).returncode == 0

    def signal(self, service: str, number: signal.Signals) -> None:
        """Send a signal to a container's first process, from outside."""
        os.kill(self.state(service)["State"]["Pid"], number)


def _absolute(mount: str) -> str:
    return f"{DEPLOY}{mount[1:]}" if mount.startswith("./") else mount


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
