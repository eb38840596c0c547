"""The manifests' pods, and the composition's services, of the real image: they lose no report.

Pods are killed, frozen and lost while devices report, against a Kafka and a Redis that trust
nobody: each report is counted once. The composition is run by podman-compose. Without a registry
its servers are this machine's: containers that see its programs, with the composition's settings,
commands and volumes. Kafka reads its settings from the environment with the class that its own
image uses. Grafana is left out then.
"""

import copy
import functools
import json
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import httpx
import pytest
import yaml  # type: ignore[import-untyped, unused-ignore]

from aggregator.cli.roles import roles
from aggregator.clock import SYSTEM_CLOCK
from aggregator.config.settings import load_settings
from aggregator.kafka import topic_admin
from aggregator.web.http.tokens import hash_token, new_token
from deploy.images import DEBIAN_IMAGE
from deploy.kafka.cluster import free_ports
from deploy.kafka.distribution import JARS
from estimators import Metric, load_metrics
from tests.support.paths import ROOT
from tests.support.reports.messages import batch
from tests.support.running import http_client
from tests.support.running.deployment import wait_until
from tests.support.running.pods import IMAGE, Manifest, Pods, network, podman, reaches_registry
from tests.support.running.secured import Secured, start_secured
from tests.support.running.servers import program

pytestmark = pytest.mark.slow

FOLDER = ROOT / "deploy" / "kubernetes"
AUTHORITY = "/etc/dither/authorities/ca.crt"
ROLES = {
    "dither-worker": "worker",
    "dither-coordinator": "coordinator",
    "dither-gateway": "gateway",
    "dither-serve": "publisher",
}
REPORTS = 50
START_SECONDS = 120.0


class Cluster:
    """The manifests, and what an operator gives to them."""

    def __init__(self, secured: Secured, network: str, image: str, folder: Path) -> None:
        self.secured, self.network, self.image, self.folder = secured, network, image, folder
        self.token = new_token()
        shutil.copytree(FOLDER, folder / "kubernetes")
        self._edit("dither.toml", "kafka.example.com:9093", secured.kafka.address)
        self._edit("kustomization.yaml", "registry.example.com/dither", image)
        self._edit("kustomization.yaml", "newTag: 0.1.0", "newTag: latest")
        settings = load_settings(str(folder / "kubernetes" / "dither.toml"), environ={})
        self.metrics = load_metrics(folder / "kubernetes" / "metrics.toml")
        administration = copy.deepcopy(settings)
        administration.kafka = secured.kafka.administration
        topic_admin.ensure_topics(administration)
        self._roles = roles(settings)
        certificate, key = secured.certificates.issue("dither", "dither.example.com")
        self.maps = {"dither-authorities": {"ca.crt": secured.certificates.ca.read_text()}}
        self.secrets = {name: self._secret(role) for name, role in ROLES.items()}
        for server in ("dither-serve", "dither-gateway"):
            self.secrets[server]["token-grafana"] = f"{hash_token(self.token)} read"
        self.secrets["dither-tls"] = {
            "tls.crt": certificate.read_text(),
            "tls.key": key.read_text(),
        }

    def _edit(self, name: str, before: str, after: str) -> None:
        file = self.folder / "kubernetes" / name
        assert file.read_text().count(before) == 1
        file.write_text(file.read_text().replace(before, after))

    def _secret(self, name: str) -> dict[str, str]:
        """Create the user of a role, with the role's rights, and return what it logs in with."""
        role, kafka, store = self._roles[name], self.secured.kafka, self.secured.redis
        password = str(kafka.user(role.user)["sasl.password"])
        kafka.allow(role.user, role.kafka)
        store.user(role.user, role.redis)
        secret = quote(store.passwords[role.user], safe="")
        place = f"{store.host}:{store.port}/0?ssl_ca_certs={AUTHORITY}"
        return {"kafka-password": password, "redis-url": f"rediss://{role.user}:{secret}@{place}"}

    def manifests(self) -> list[Manifest]:
        """Return what `kubectl apply -k` would apply."""
        kubectl = program("kubectl", "install kubectl 1.21 or newer")
        built = subprocess.run(
            [kubectl, "kustomize", self.folder / "kubernetes"], capture_output=True, check=True
        )
        return list(yaml.safe_load_all(built.stdout))

    def verify(self) -> dict[str, Any]:
        """Return what `dither verify` says, in a container of the image."""
        found = self._secret("verifier")
        settings = self.folder / "kubernetes"
        mounts = [f"{settings}:/etc/dither/settings:ro"]
        mounts.append(f"{self.secured.certificates.ca}:{AUTHORITY}:ro")
        variables = {
            "CONFIG": "/etc/dither/settings/dither.toml",
            "METRICS": "/etc/dither/settings/metrics.toml",
            "KAFKA_SASL_USERNAME": self._roles["verifier"].user,
            "KAFKA_SASL_PASSWORD": found["kafka-password"],
            "REDIS_URL": found["redis-url"],
        }
        words = [
            word for name, value in variables.items() for word in ("-e", f"DITHER_{name}={value}")
        ]
        words += [word for mount in mounts for word in ("-v", mount)]
        hardened = ["--rm", "--read-only", "--cap-drop", "ALL", "--network", self.network]
        outcome = podman("run", *hardened, *words, self.image, "verify", "--json", check=False)
        read: dict[str, Any] = json.loads(outcome)
        return read


@pytest.fixture
def cluster(image: str, tmp_path: Path) -> Iterator[Cluster]:
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents[:2]:
        folder.chmod(0o755)  # the pods' user reads what is mounted
    with network() as (name, host), start_secured(tmp_path / "secured", host) as secured:
        yield Cluster(secured, name, image, tmp_path)


class Devices:
    """They report to a gateway, again until it says that Kafka has the batch."""

    def __init__(self, pods: Pods, metric: Metric) -> None:
        self._pods, self._metric, self.sent = pods, metric, 0

    def report(self, batches: int) -> None:
        for _ in range(batches):
            self.sent += 1
            answers = [float(self.sent % 2)] * REPORTS
            payload = batch(self._metric, answers, time_ms=SYSTEM_CLOCK.now_ms(), seed=self.sent)
            body = payload.SerializeToString()
            wait_until(lambda body=body: self._post(body), "a gateway takes the batch")  # type: ignore[misc]

    def _post(self, body: bytes) -> bool:
        pod = next(name for name in self._pods.running if name.startswith("dither-gateway"))
        headers = {"Content-Type": "application/x-protobuf"}
        url = f"https://{self._pods.address(pod)}:8080/v1/reports"
        answer = httpx.post(url, content=body, headers=headers, verify=False, timeout=30)  # noqa: S501
        assert answer.status_code in (202, 503, 504), answer.text
        return answer.status_code == 202


def counted(cluster: Cluster, pods: Pods) -> int:
    """Return of how many reports a server estimates."""
    pod = next(name for name in pods.running if name.startswith("dither-serve"))
    url = f"https://{pods.address(pod)}:8080/v1/metrics/crashed/estimate"
    headers = {"Authorization": f"Bearer {cluster.token}"}
    answer = httpx.get(url, headers=headers, verify=False, timeout=30)  # noqa: S501
    assert answer.status_code == 200, answer.text
    return int(answer.json()["reports"])


def test_pods_that_are_killed_frozen_and_lost_lose_no_report(cluster: Cluster) -> None:
    with Pods(
        cluster.manifests(), cluster.maps, cluster.secrets, cluster.network, cluster.folder
    ) as pods:
        assert len(pods.running) == 8
        for pod in pods.running:
            has_started = functools.partial(pods.probe, pod, "startup")
            wait_until(has_started, f"{pod} has started: {pods.logs(pod)}", START_SECONDS)
        devices = Devices(pods, cluster.metrics["crashed"])
        devices.report(5)
        wait_until(lambda: counted(cluster, pods) == 5 * REPORTS, "all is counted")
        for pod in pods.running:
            assert pods.probe(pod, "liveness"), pod
            if pod.startswith(("dither-serve", "dither-gateway")):
                assert pods.probe(pod, "readiness"), pods.logs(pod)

        # A process is killed: its container starts again.
        before = pods.state("dither-worker-0")["RestartCount"]
        pods.signal("dither-worker-0", signal.SIGKILL)
        devices.report(5)
        wait_until(
            lambda: pods.state("dither-worker-0")["RestartCount"] > before, "it is started again"
        )
        wait_until(lambda: pods.probe("dither-worker-0", "liveness"), "it works again")

        # A process hangs, and its watchdog with it: its probe says so.
        pods.signal("dither-worker-1", signal.SIGSTOP)
        devices.report(5)
        assert not pods.probe("dither-worker-1", "liveness")
        pods.restart("dither-worker-1")
        wait_until(lambda: pods.probe("dither-worker-1", "liveness"), "it works again")

        # A machine is lost: pods of each kind, one of which was taking reports.
        lost = ["dither-worker-0", "dither-gateway-0", "dither-serve-0", "dither-coordinator-0"]
        for pod in lost:
            pods.delete(pod)
        devices.report(5)
        for pod in lost:
            pods.start(pod)
        for pod in lost:
            wait_until(lambda pod=pod: pods.probe(pod, "startup"), pod, START_SECONDS)  # type: ignore[misc]
        devices.report(5)

        wait_until(lambda: counted(cluster, pods) == devices.sent * REPORTS, "all is counted")
        outcome = cluster.verify()
        assert outcome["verified"], outcome
        assert (outcome["differences"], outcome["unverifiable"]) == ([], [])
        for pod in pods.running:
            state = pods.state(pod)
            assert not state["State"]["OOMKilled"]
            assert state["HostConfig"]["ReadonlyRootfs"]
            assert state["HostConfig"]["Memory"] > 0


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
        java = [f"{folder}:{folder}:ro" for folder in Path("/etc").glob("java*")]
        kafka["volumes"] += [*java, f"{JARS}:/opt/kafka/libs:ro"]
        kafka["environment"]["CLUSTER_ID"] = "5L6g3nShT-eMCtK--X86sw"
        kafka["command"] = ["sh", "-ec", KAFKA]
        kafka["healthcheck"]["test"] = ["CMD", "python3", "-c", KAFKA_ANSWERS]
        self.services["redis"]["command"] += ["--protected-mode", "no"]  # as its image is built
        flags = "--config.file=/etc/prometheus/prometheus.yml --storage.tsdb.path=/prometheus"
        self.services["prometheus"]["command"] = ["prometheus", *flags.split()]

    def __enter__(self) -> Self:
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


COMPOSED_SECONDS = 180.0
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

            wait_until(posted, "it is taken", COMPOSED_SECONDS)

        def is_counted() -> bool:
            answer = http_client.get(f"{url}/metrics/crashed/estimate", timeout=30)
            return answer.status_code == 200 and answer.json()["reports"] == 50 * sent

        def is_healthy(service: str) -> None:
            healthy = functools.partial(composition.is_healthy, service)
            wait_until(healthy, f"{service} is healthy", COMPOSED_SECONDS)

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
