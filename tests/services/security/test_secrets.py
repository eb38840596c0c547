"""The whole service with exactly each role's rights, and nothing that it says tells a secret."""

import contextlib
import json
import logging
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from aggregator.cli.roles import Role
from aggregator.config.settings import Settings
from aggregator.kafka import clients
from deploy.kafka.cluster import free_ports
from tests.services.security.conftest import Places
from tests.support.running import fleet
from tests.support.running.deployment import PATIENCE, read_topic, wait_until
from tests.support.running.processes import PROC, descendants

pytestmark = pytest.mark.more

ENDINGS = "@/:+%&=?#"
"""What a password may have, and a URL must not."""


class Service:
    """Commands of one deployment, each as the user of its role, and all that they say.

    Parameters
    ----------
    places : Places
    folder : Path
        For secrets and logs.
    """

    def __init__(self, places: Places, folder: Path) -> None:
        self.places, self.folder = places, folder
        self.secrets: list[str] = []
        self.said: list[str] = []
        self.running: list[subprocess.Popen[bytes]] = []
        self.command_lines = ""

    def environ(self, role: Role, **wrong: str) -> dict[str, str]:
        """Return variables for a role: secrets are in files that they name."""
        settings = self._user(role)
        settings.kafka["debug"] = "security,conf,broker"
        settings.kafka |= {name.replace("_", "."): value for name, value in wrong.items()}
        found = {**os.environ, **self.places.variables(settings)}
        for variable in ("DITHER_KAFKA_SASL_PASSWORD", "DITHER_REDIS_URL"):
            file = self.folder / f"{role.name}-{variable}"
            file.write_text(f"{found.pop(variable)}\n")
            found[f"{variable}_FILE"] = str(file)
        return found

    def _user(self, role: Role) -> Settings:
        store = self.places.secured.redis
        name = f"{role.name}-{self.places.suffix}"
        store.passwords.setdefault(name, os.urandom(12).hex() + ENDINGS)
        settings = self.places.administration()
        settings.kafka = self.places.secured.kafka.user(name)
        self.places.secured.kafka.allow(name, role.kafka)
        settings.redis.url = store.user(name, role.redis)
        password = str(settings.kafka["sasl.password"])
        self.secrets += [password, store.passwords[name].removesuffix(ENDINGS)]
        return settings

    def run(self, role: str, *arguments: str, code: int = 0, **wrong: str) -> str:
        """Run a command to its end and return what it printed."""
        ran = fleet.run(arguments, PATIENCE, self.environ(self.places.role(role), **wrong))
        self.said += [ran.stdout, ran.stderr]
        assert ran.returncode == code, ran.stdout + ran.stderr
        return ran.stdout

    def start(self, role: str, *arguments: str) -> None:
        """Start a command that goes on."""
        with self.log(role).open("ab") as log:
            self.running.append(
                subprocess.Popen(
                    [sys.executable, "-m", "aggregator", *arguments, "--log-level", "debug"],
                    env=self.environ(self.places.role(role)),
                    stdout=log,
                    stderr=log,
                )
            )

    def log(self, role: str) -> Path:
        """Return where a role's output goes."""
        return self.folder / f"{role}.log"

    def look_at_processes(self) -> None:
        """Note the command lines of everything that was started, as anybody could."""
        for process in self.running:
            for pid in (process.pid, *descendants(process.pid)):
                with contextlib.suppress(OSError):
                    line = (PROC / str(pid) / "cmdline").read_bytes()
                    self.command_lines += line.replace(b"\0", b" ").decode() + "\n"

    def stop(self) -> None:
        """Stop what was started."""
        for process in self.running:
            process.terminate()
        for process in self.running:
            process.wait(PATIENCE)


@pytest.fixture
def service(places: Places, tmp_path: Path) -> Iterator[Service]:
    service = Service(places, tmp_path)
    try:
        yield service
    finally:
        service.stop()


def test_the_service_runs_with_each_roles_rights_and_tells_no_secret(service: Service) -> None:
    places, secured = service.places, service.places.secured
    certificate, key = secured.certificates.issue("serve")
    tls = [f"serve.tls_certificate={certificate}", f"serve.tls_key={key}"]
    trust = ssl.create_default_context(cafile=str(secured.certificates.ca))
    reading, taking = free_ports(2)

    def options(*assignments: str) -> list[str]:
        return [word for one in assignments for word in ("--set", one)]

    assert "created: " in service.run("operator", "topics")
    service.run("operator", "weights", "delay", "uniform")
    service.start("worker", "aggregate", "--workers", "2")
    service.start(
        "publisher", "serve", "--port", str(reading), *options("serve.gateway=false", *tls)
    )
    service.start(
        "gateway", "serve", "--port", str(taking), *options("publish.enabled=false", *tls)
    )
    produced = json.loads(
        service.run("reporter", "produce", "delay", "--simulate", "normal:17,20", "--json",
                    "--devices", "2000")
    )  # fmt: skip
    assert produced["reports"] == 2000

    with (
        httpx.Client(verify=trust, base_url=f"https://localhost:{reading}", timeout=60) as reader,
        httpx.Client(verify=trust, base_url=f"https://localhost:{taking}", timeout=60) as gateway,
    ):

        def answers(client: httpx.Client, path: str = "/readyz") -> bool:
            with contextlib.suppress(httpx.TransportError):
                return client.get(path).status_code == 200
            return False

        wait_until(lambda: answers(reader) and answers(gateway), "both servers answer")
        body = {"metric": "delay", "reports": [{"level": 0, "report": 1}]}

        def is_taken() -> bool:
            posted = gateway.post("/v1/reports", json=body)
            service.said.append(posted.text)
            return posted.status_code == 202

        wait_until(is_taken, "the gateway hands a report to Kafka")

        def reports() -> int:
            return int(reader.get("/v1/metrics/delay/estimate").json().get("reports", 0))

        wait_until(lambda: reports() >= 2001, "everything is counted")
        events = 'dither_published_events_total{type="provisional"}'
        wait_until(
            lambda: f"{events} 0.0" not in reader.get("/metrics").text, "an event is published"
        )
        assert reader.get("/v1/metrics/delay/estimate").json()["policy"] == "uniform"
        for path in ("/metrics", "/v1/status", "/v1/metrics", "/openapi.json", "/", "/nothing"):
            for client in (reader, gateway):  # the gateway has no right to read: its errors, too
                service.said.append(client.get(path).text)
        denied = gateway.get("/v1/metrics/delay/estimate")
        assert denied.status_code == 503
        service.said.append(denied.text)
    service.look_at_processes()
    assert "aggregate" in service.command_lines

    assert "delay" in service.run("reader", "estimate", "delay")
    assert json.loads(service.run("verifier", "verify", "--json"))["verified"]
    service.run("reader", "estimate", "delay", "--show-settings")
    service.run("reporter", "topics", code=1, sasl_password="wr0ng-pa55word")  # noqa: S106
    assert "invalid credentials" in service.said[-1]
    service.run("reader", "weights", "delay", "optimal", code=1)
    assert "the Redis user lacks a permission" in service.said[-1]
    service.stop()

    said = "\n".join([*service.said, service.command_lines])
    said += "".join(file.read_text() for file in service.folder.glob("*.log"))
    assert "committed" in said
    assert "publisher started" in said
    store = secured.redis.passwords["administrator"]
    for secret in (*service.secrets, "wr0ng-pa55word", store, key.read_text().splitlines()[1]):
        for form in (secret, quote(secret, safe="")):
            where = said.find(form)
            assert where < 0, said[max(0, where - 300) : where]
    administration, topic = secured.kafka.administration, places.settings.topics.estimates
    wait_until(lambda: bool(read_topic(administration, topic)), "an event")


def test_librdkafkas_log_tells_no_secret(places: Places, caplog: pytest.LogCaptureFixture) -> None:
    settings = places.user("reporter", [])
    settings.kafka |= {"debug": "all", "log_level": 7, "ssl.key.password": "hunter2"}
    caplog.set_level(logging.DEBUG, logger="aggregator.librdkafka")
    clients.LIBRDKAFKA_LOG.addHandler(caplog.handler)
    try:
        clients.admin(settings).poll(0)
    finally:
        clients.LIBRDKAFKA_LOG.removeHandler(caplog.handler)
    assert "sasl.password" in caplog.text
    assert str(settings.kafka["sasl.password"]) not in caplog.text
    assert "hunter2" not in caplog.text
