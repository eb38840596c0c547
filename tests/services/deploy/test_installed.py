"""The wheel in clean virtual environments: a device's, and one for the demo and the service."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy.dist import build_sdist, build_wheel
from tests.support.paths import ROOT
from tests.support.running import http_client
from tests.support.running.deployment import wait_until
from tests.support.running.prometheus import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no clone"),
]
PATIENCE = 900.0
ON_TRUST = 0.25
"""Share of the demo's values that chance may put outside bounds that cover 95% of them."""
METRICS = """
[metrics.late]
kind = "mean"
mechanism = "randomized_response"
range = [0, 1]
levels = [1]
pane = "1m"
"""
FIVE_LINES = """
import sys
from dither import HttpReporter
with HttpReporter("late", sys.argv[1]) as reporter:
    reporter.report(1.0, epsilon=1.0)
    reporter.flush()
"""


@dataclasses.dataclass(frozen=True)
class Installed:
    """A virtual environment, and an empty folder to work in."""

    environment: Path
    folder: Path

    def command(self, *words: str) -> list[str]:
        return [str(self.environment / "bin" / words[0]), *words[1:]]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            cwd=self.folder,
            env=environ(),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )


def environ() -> dict[str, str]:
    """Return the variables without those that would show this folder or other settings."""
    hidden = ("DITHER_", "PYTHON")
    return {name: value for name, value in os.environ.items() if not name.startswith(hidden)}


@pytest.fixture(scope="module")
def install(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Installed]:
    """Installs the wheel with extras, in the versions of the lock where it has them."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build_wheel(build_sdist(folder), folder)

    def installed(extras: str) -> Installed:
        made = Installed(tmp_path_factory.mktemp("environment"), tmp_path_factory.mktemp("empty"))
        (made.folder / "metrics.toml").write_text(METRICS)
        venv.create(made.environment)
        uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet"]
        uv += ["--python", str(made.environment / "bin" / "python")]
        uv += ["--constraint", str(ROOT / "requirements.lock"), f"{wheel}{extras}"]
        subprocess.run(uv, check=True, cwd=made.folder, timeout=PATIENCE)
        return made

    return installed


@pytest.fixture(scope="module")
def device(install: Callable[[str], Installed]) -> Installed:
    return install("")


@pytest.fixture(scope="module")
def full(install: Callable[[str], Installed]) -> Installed:
    return install("[demo]")


def test_the_demo_runs_from_the_wheel_and_its_outcome_is_right(full: Installed) -> None:
    done = full.run("dither", "demo", "--seconds", "5", "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["verified"] is True
    assert outcome["reports"] > 3_000_000
    rows = outcome["metrics"]
    outside = [row for row in rows if not row["lower"] <= row["truth"] <= row["upper"]]
    assert len(rows) > 100
    assert len(outside) <= ON_TRUST * len(rows)
    assert outcome["alarms"]
    assert outcome["discoveries"]


def test_five_lines_from_an_empty_folder_reach_the_dashboard(
    full: Installed, device: Installed
) -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen(
        full.command("dither", "up", "--port", str(port)),
        cwd=full.folder,
        env=environ(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as service:
        try:
            wait_until(lambda: asked(f"{address}/readyz") is not None, "it is ready", PATIENCE)
            done = device.run("python", "-c", FIVE_LINES, address)
            assert done.returncode == 0, done.stderr
            estimate = f"{address}/v1/metrics/late/estimate"
            wait_until(lambda: (asked(estimate) or {}).get("reports") == 1, "it counts", PATIENCE)
            assert "<title>Dither" in http_client.get(address).text
        finally:
            service.send_signal(signal.SIGINT)
            service.wait(60)


def asked(address: str) -> Any:
    """Return what an address answers; None if that is an error."""
    try:
        answer = http_client.get(address, timeout=10)
    except httpx.TransportError:
        return None
    return answer.json() if answer.is_success else None
