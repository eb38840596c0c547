"""A release: what the source distribution and the wheel contain, byte for byte; that it runs."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from deploy import dist
from deploy.dist import NotReleasableError, build_sdist, build_wheel, refuse_strangers
from deploy.kafka.cluster import free_ports
from tests.support.paths import ROOT
from tests.support.running import http_client
from tests.support.running.deployment import wait_until
from tests.support.running.processes import run

PACKAGES = ("aggregator/", "dither/", "estimators/", "producers/")
NEEDED = {
    "aggregator/py.typed",
    "aggregator/storage/lua/commit.lua",
    "aggregator/web/static/vendor/inter-latin-wght-normal.woff2",
    "producers/browser/dither.js",
    "producers/populations/flights.toml",
    "producers/wire/reports.proto",
}
PATIENCE = 900.0
ON_TRUST = 0.25
"""Share of the demo's values that chance may put outside bounds that cover 95% of them."""
METRICS = """
[metrics]
late = {kind = "mean", mechanism = "randomized_response", range = [0, 1], levels = [1], \
pane = "1m"}
"""
FIVE_LINES = """
import sys
from dither import HttpReporter
with HttpReporter("late", sys.argv[1]) as reporter:
    reporter.report(1.0, epsilon=1.0)
    reporter.flush()
"""

pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no clone"),
]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_sdist(tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(sdist, tmp_path_factory.mktemp("wheel"))


def sources() -> set[str]:
    """Return the files that git has, or would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    return set(filter(None, run(command, cwd=ROOT).split("\0")))


def files_of(archive: Path) -> dict[str, bytes]:
    """Return the files of a wheel or a source distribution, by name."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            return {name: opened.read(name) for name in opened.namelist()}
    with tarfile.open(archive) as opened_tar:
        read = ((each.name, opened_tar.extractfile(each)) for each in opened_tar)
        return {name.partition("/")[2]: file.read() for name, file in read if file}


def test_a_release_has_all_of_the_packages_and_nothing_else(wheel: Path, sdist: Path) -> None:
    given = set(files_of(sdist))
    assert given - {"PKG-INFO"} <= sources()
    assert {"Makefile", "requirements.lock", "deploy/Dockerfile", "tests/conftest.py"} <= given
    assert not {name for name in given if name.startswith(".ci")}
    packed = {name for name in files_of(wheel) if ".dist-info/" not in name}
    made_of = {
        name
        for name in sources()
        if name.startswith(PACKAGES)
        and not re.match(r"producers/browser/([\w.-]+\.(json|md)$|opentelemetry/)", name)
    }
    assert packed == made_of
    assert packed >= NEEDED


def test_the_source_distribution_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    """Whatever the clock, the user's mask and the times of files say."""
    copy = tmp_path / "copy"
    for name in sources():
        if not name.startswith((*PACKAGES, "pyproject.toml", "README.md", "LICENSE")):
            continue
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
        target.chmod(0o600)
        os.utime(target, (1e9, 1e9))
    again = dist.hatchling("wheel", copy, tmp_path)
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()


def test_a_file_that_is_not_committed_is_no_part_of_a_release(tmp_path: Path) -> None:
    stranger = tmp_path / "dither-0.1.0.tar.gz"
    with tarfile.open(stranger, "w:gz") as archive:
        archive.add(ROOT / "README.md", "dither-0.1.0/README.md")
    refuse_strangers(stranger)
    with tarfile.open(stranger, "w:gz") as archive:
        archive.add(ROOT / "README.md", "dither-0.1.0/producers/secret.pem")
    with pytest.raises(NotReleasableError, match=r"does not have: producers/secret\.pem\. Delete"):
        refuse_strangers(stranger)


# -- The wheel in clean virtual environments ------------------------------------------------------


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
def install(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Installed]:
    """Installs the wheel with extras, in the versions of the lock where it has them."""

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


@pytest.mark.slow
def test_the_demo_runs_from_the_wheel_and_its_outcome_is_right(full: Installed) -> None:
    done = full.run("dither", "demo", "--seconds", "5", "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["verified"] is True
    assert outcome["reports"] > 3_000_000
    rows = [row for row in outcome["metrics"] if not row["vacuous"]]
    outside = [row for row in rows if not row["lower"] <= row["truth"] <= row["upper"]]
    assert len(rows) > 100
    assert len(outside) <= ON_TRUST * len(rows)
    assert outcome["alarms"]
    assert outcome["discoveries"]


@pytest.mark.slow
def test_five_lines_in_an_empty_folder_give_a_dashboard(full: Installed, device: Installed) -> None:
    (port,) = free_ports(1)
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
