"""The README's way from one's own CSV file to a metric on the dashboard, command by command."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from estimators import load_metrics
from producers.wire.batch import encode_batch
from tests.support.paths import ROOT
from tests.support.reports.messages import EPOCH
from tests.support.running import http_client
from tests.support.running.deployment import wait_until
from tests.support.running.processes import descendants, living

DEVICES = 3_000
SECTION = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Your own numbers")[2]
SETUP, DEFINE, UP, PRODUCE = (
    line.partition("#")[0].strip()
    for line in SECTION.partition("```bash\n")[2].partition("```")[0].splitlines()
)
ESTIMATE = ".venv/bin/dither estimate dep_delay --json"
VARIABLES = {"PYTHONPATH": str(ROOT), "DITHER_GATEWAY_TRUSTED_WITHOUT_TLS": "true"}
FIRST_PANE = "?to=2013-01-01T00:10:00Z"  # of a later one, the release may come at any time
KEPT_METRICS = """
[metrics]
late = {kind = "mean", mechanism = "randomized_response", range = [0, 1], levels = [1], \
lateness = "1h"}
pay = {kind = "mean", trust = "central", range = [0, 1], levels = [1]}
longest = {kind = "maximum", range = [0, 8], levels = [1], rounds = 3}
"""

pytestmark = pytest.mark.more


class Shell:
    """A folder with a CSV file, where commands run as the README has them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rows = (f"{i % 90 - 20},2026-03-{1 + i % 28:02d} {i % 24:02d}:00" for i in range(DEVICES))
        (folder / "delays.csv").write_text("dep_delay,time_hour\n" + "\n".join(rows))
        program = folder / ".venv" / "bin" / "dither"
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aggregator "$@"\n')
        program.chmod(0o755)

    def start(self, command: str) -> subprocess.Popen[str]:
        own = {k: v for k, v in os.environ.items() if not k.startswith("DITHER_")}
        return subprocess.Popen(
            ["sh", "-c", f"exec {command}"],  # noqa: S607
            cwd=self.folder,
            env={**own, **VARIABLES},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def post(self, batches: Sequence[bytes]) -> None:
        """Post batches until Kafka has them, as a device does."""
        url, kind = f"http://127.0.0.1:{self.port}/v1/reports", "application/x-protobuf"
        for body in batches:
            request: dict[str, Any] = {"content": body, "headers": {"Content-Type": kind}}
            wait_until(
                lambda asked=request: http_client.post(url, **asked).status_code == 202,  # type: ignore[misc]
                "Kafka has the batch",
            )

    def estimate(self, metric: str, query: str = "") -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.port}/v1/metrics/{metric}/estimate{query}"
        return dict(http_client.get(url).json())

    def run(self, command: str, status: int = 0) -> str:
        """Run a command to its end; return what it prints, or says on failure."""
        process = self.start(command)
        told, errors = process.communicate(timeout=60)
        assert process.returncode == status, errors
        return errors if status else told

    def up(self, options: str = "") -> subprocess.Popen[str]:
        """Start the service, and wait until it tells of its dashboard."""
        process = self.start(f"{UP} --port 0{options}")
        assert process.stdout is not None
        while not (line := process.stdout.readline()).startswith("dashboard: "):
            assert process.poll() is None
        (self.port,) = re.findall(r"http://127\.0\.0\.1:(\d+)/", line)
        return process


def command_words(pid: int) -> list[str]:
    """Return the words of a process's command line; none of one that guards a child."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    return [] if "-c" in words else words


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    assert SETUP == "make setup"
    made = Shell(tmp_path)
    made.run(DEFINE)
    return made


def test_a_column_becomes_a_metric_on_the_dashboard_until_the_end(shell: Shell) -> None:
    service = shell.up()
    told = shell.run(PRODUCE)
    assert f"{DEVICES:,} reports of dep_delay" in told
    wait_until(lambda: json.loads(shell.run(ESTIMATE))["reports"] == DEVICES, "all are counted")
    found, truth = json.loads(shell.run(f"{ESTIMATE} --beta=1e-6")), told.rpartition("truth: ")[2]
    assert found["lower"] <= float(truth) <= found["upper"]
    scraped = http_client.get(f"http://127.0.0.1:{shell.port}/metrics").text
    assert f'dither_reports_total{{metric="dep_delay",outcome="accepted"}} {DEVICES}.0' in scraped
    refused = "dither.toml was written by a `dither up` that is running in this folder"
    assert refused in shell.run(UP, status=1)
    seen = descendants(service.pid)
    service.send_signal(signal.SIGHUP)
    service.communicate(timeout=60)
    assert (service.returncode, living(seen)) == (0, set())
    assert not (shell.folder / "dither.toml").exists()


def test_nothing_is_left_of_a_killed_service_and_the_next_says_what_dies(shell: Shell) -> None:
    killed = shell.up()
    seen = descendants(killed.pid)
    killed.kill()
    killed.communicate()
    assert len(seen) >= 3, "a worker, the HTTP server and Redis"
    wait_until(lambda: not living(seen), "they have ended, too")
    left = "dither.toml was left by a `dither up` that was killed"
    assert shell.run(ESTIMATE, status=1).startswith(f"Error: {left}")
    service = shell.up()
    pid = next(pid for pid in descendants(service.pid) if "aggregate" in command_words(pid))
    os.kill(pid, signal.SIGKILL)
    _, errors = service.communicate(timeout=60)
    assert service.returncode == 1
    assert left in errors
    named = f"the worker, `dither aggregate`, (process {pid})"
    assert f"{named} was ended by SIGKILL (exit code -9; usually" in errors


def test_a_folder_keeps_its_counts_between_runs_and_counts_nothing_twice(shell: Shell) -> None:
    (shell.folder / "metrics.toml").write_text(KEPT_METRICS)
    metrics, keep = load_metrics(shell.folder / "metrics.toml"), " --folder 'the counts'"
    first, second, third = (
        [encode_batch(metrics["late"], [0] * 5, [1, 0, 1, 1, 0], EPOCH) for _ in range(40)]
        for _ in range(3)
    )
    pay = [encode_batch(metrics["pay"], [0], [1], EPOCH + i // 80 * 600_000) for i in range(160)]

    service = shell.up(keep)
    shell.post(pay)
    wait_until(
        lambda: shell.estimate("pay", FIRST_PANE).get("value") is not None, "a pane is released"
    )
    release, round_path = shell.estimate("pay", FIRST_PANE), "/v1/metrics/longest/round"
    assert release["reports"] == 80
    opened = http_client.get(f"http://127.0.0.1:{shell.port}{round_path}").json()
    words = {pid: command_words(pid) for pid in descendants(service.pid)}
    workers = [pid for pid in words if "aggregate" in words[pid]]
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)  # nothing is counted before the service is told to end
    shell.post(first)
    service.send_signal(signal.SIGINT)
    servers = {pid for pid in words if "serve" in words[pid]}
    wait_until(lambda: not living(servers), "the gateway has ended")
    for pid in workers:
        os.kill(pid, signal.SIGCONT)
    told, _ = service.communicate(timeout=60)
    assert (service.returncode, "the counts are in " in told) == (0, True)

    service = shell.up(keep)
    assert shell.estimate("late")["reports"] == 200
    shell.post([*first, *second])
    wait_until(lambda: shell.estimate("late")["reports"] == 400, "the new ones are counted once")
    assert shell.estimate("pay", FIRST_PANE) == release
    assert http_client.get(f"http://127.0.0.1:{shell.port}{round_path}").json() == opened
    verified = json.loads(shell.run(".venv/bin/dither verify --allow-truncated --json"))
    assert (verified["verified"], verified["differences"]) == (True, [])
    assert all("in an earlier log, which is gone" in told for told in verified["unverifiable"])
    refused = shell.run(".venv/bin/dither recount --yes 0 1 2 3", status=1)
    assert "had left the log before" in refused
    shell.post(third)
    service.kill()
    service.communicate()

    service = shell.up(keep)
    assert 400 <= shell.estimate("late")["reports"] <= 600
    shell.post([*first, *second, *third])
    wait_until(lambda: shell.estimate("late")["reports"] == 600, "each is counted once")
    assert shell.estimate("pay", FIRST_PANE) == release
    service.send_signal(signal.SIGINT)
    service.communicate(timeout=60)
    assert service.returncode == 0
