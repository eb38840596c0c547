"""A worker and a server as their containers run them: no root, no rights, nothing to write to."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from aggregator.state.watermark import CONFIRMING_BATCHES
from deploy.kafka.cluster import free_ports
from tests.services.security.conftest import Places
from tests.support.paths import ROOT
from tests.support.running import http_client
from tests.support.running.deployment import PATIENCE, wait_until

pytestmark = pytest.mark.more

USER = 10001
JAIL = """
set -e
mount --make-rprivate /
i=0
for path in $DITHER_TEST_NEEDED; do
  mkdir -p "$DITHER_TEST_HELD/$i"; mount --bind "$path" "$DITHER_TEST_HELD/$i"; i=$((i + 1))
done
for path in $DITHER_TEST_HIDDEN; do mount -t tmpfs -o mode=755 tmpfs "$path"; done
i=0
for path in $DITHER_TEST_NEEDED; do
  mkdir -p "$path"; mount --bind "$DITHER_TEST_HELD/$i" "$path"
  mount -o remount,ro,bind "$path"; i=$((i + 1))
done
for path in $DITHER_TEST_HIDDEN; do mount -o remount,ro "$path"; done
mount -o remount,ro,bind /
exec setpriv --reuid 10001 --regid 10001 --clear-groups --no-new-privs --bounding-set=-all \
  --inh-caps=-all -- "$@"
"""


def hidden(path: str) -> str | None:
    """Return the folder above a path that others may not enter, such as a home."""
    for above in reversed(Path(path).parents):
        if not above.stat().st_mode & 0o001:
            return str(above)
    return None


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody may read."""
    found = Path(tempfile.mkdtemp(prefix="dither-contained-"))
    found.chmod(0o755)
    yield found
    shutil.rmtree(found, ignore_errors=True)


@pytest.fixture
def jail(folder: Path) -> dict[str, str]:
    """Variables for a process without rights, on file systems that it cannot write."""
    if os.geteuid() != 0 or not (shutil.which("unshare") and shutil.which("setpriv")):
        pytest.skip("needs root, to take everything away from a process (unshare, setpriv)")
    tried = subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True)  # noqa: S607
    if tried.returncode != 0:
        pytest.skip("mount namespaces are not allowed here")
    held = folder / "held"
    held.mkdir()
    needed = dict.fromkeys((sys.base_prefix, sys.prefix, str(ROOT)))
    covered = {path: above for path in needed if (above := hidden(path))}
    return {
        "DITHER_TEST_HELD": str(held),
        "DITHER_TEST_NEEDED": " ".join(covered),
        "DITHER_TEST_HIDDEN": " ".join(dict.fromkeys(covered.values())),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(ROOT),
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
    }


def command(*arguments: str) -> list[str]:
    return ["unshare", "--mount", "sh", "-c", JAIL, "sh", *arguments]


def test_the_service_runs_there(jail: dict[str, str], folder: Path, places: Places) -> None:
    here = places.filled()
    (port,) = free_ports(1)
    running: list[subprocess.Popen[bytes]] = []
    (folder / "ca.pem").write_bytes(here.secured.certificates.ca.read_bytes())
    (folder / "metrics.toml").write_bytes(here.metrics_file.read_bytes())

    def start(role: str, *arguments: str) -> None:
        rights = here.role(role)
        settings = here.user(role, rights.kafka, rights.redis)
        authority, readable = str(here.secured.certificates.ca), str(folder / "ca.pem")
        settings.kafka["ssl.ca.location"] = readable
        settings.redis.url = settings.redis.url.replace(authority, readable)
        settings.metrics = str(folder / "metrics.toml")
        with (folder / f"{role}.log").open("wb") as log:
            process = subprocess.Popen(
                command(sys.executable, "-m", "aggregator", *arguments),
                env={**jail, **here.variables(settings)},
                stdout=log,
                stderr=log,
                cwd="/",
            )
        running.append(process)

    try:
        start("worker", "aggregate", "--workers", "1")
        start("publisher", "serve", "--port", str(port), "--set", "serve.gateway=false")

        def is_counted() -> bool:
            for process, log in zip(running, ("worker", "publisher"), strict=True):
                assert process.poll() is None, (folder / f"{log}.log").read_text()
            with contextlib.suppress(httpx.TransportError):
                answer = http_client.get(f"http://127.0.0.1:{port}/v1/metrics/delay/estimate")
                return bool(answer.json().get("reports") == 1 + CONFIRMING_BATCHES)
            return False

        wait_until(is_counted, "all reports are counted and served", PATIENCE)
        log = folder / "publisher.log"
        wait_until(lambda: "publisher started" in log.read_text(), "events are published")
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(PATIENCE) for process in running]
    assert codes[0] == 0
    logs = "".join((folder / f"{name}.log").read_text() for name in ("worker", "publisher"))
    assert "Read-only" not in logs
    assert "Permission denied" not in logs
