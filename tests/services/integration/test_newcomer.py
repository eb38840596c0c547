"""The README's way from one's own CSV file to a metric on the dashboard, command by command."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from aggregator.local.deployment import free_port
from tests.support.paths import ROOT
from tests.support.running.deployment import wait_until
from tests.support.running.processes import descendants, living

README = ROOT / "README.md"
MOST_COMMANDS = 6
SETUP = "make setup"
DEVICES = 3_000


def commands() -> list[str]:
    """Return the commands of the README's section."""
    section = README.read_text(encoding="utf-8").partition("## Your own numbers")[2]
    block = re.search(r"```bash\n(.*?)```", section, re.DOTALL)
    assert block is not None
    return [line.partition("#")[0].strip() for line in block[1].splitlines()]


class Shell:
    """A folder with a CSV file, where commands run as the README has them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        rows = (f"{i % 90 - 20},2026-03-{1 + i % 28:02d} {i % 24:02d}:00" for i in range(DEVICES))
        (folder / "delays.csv").write_text("dep_delay,time_hour\n" + "\n".join(rows))
        program = folder / ".venv" / "bin" / "dither"
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aggregator "$@"\n')
        program.chmod(0o755)

    @property
    def environ(self) -> dict[str, str]:
        own = {k: v for k, v in os.environ.items() if not k.startswith("DITHER_")}
        root = str(README.parent)
        return {**own, "PYTHONPATH": root, "DITHER_SERVE_PORT": str(self.port)}

    def run(self, command: str) -> str:
        done = subprocess.run(  # noqa: S602  (a person's shell)
            command, shell=True, cwd=self.folder, env=self.environ, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["sh", "-c", f"exec {command}"],  # noqa: S607
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def service(shell: Shell) -> Iterator[subprocess.Popen[str]]:
    """The running service, after the commands before it."""
    _, define, up, _ = commands()
    shell.run(define)
    process = shell.start(up)
    try:
        wait_until(
            lambda: process.poll() is not None or (shell.folder / "dither.toml").exists(),
            "the service runs",
        )
        yield process
    finally:
        seen = descendants(process.pid)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        told, errors = process.communicate(timeout=60)
        assert living(seen) == set()
        assert process.returncode == 0, errors
        assert f"dashboard: http://127.0.0.1:{shell.port}/" in told
        assert not (shell.folder / "dither.toml").exists()


def test_the_way_is_short_and_begins_with_the_setup() -> None:
    assert commands()[0] == SETUP
    assert len(commands()) <= MOST_COMMANDS - 1, "and one to open the dashboard"


def test_a_column_becomes_a_metric_on_the_dashboard(
    shell: Shell, service: subprocess.Popen[str]
) -> None:
    produce = commands()[-1]
    told = shell.run(produce)
    assert f"{DEVICES:,} reports of dep_delay" in told
    estimate = ".venv/bin/dither estimate dep_delay --json"
    wait_until(lambda: json.loads(shell.run(estimate))["reports"] == DEVICES, "all are counted")
    found = json.loads(shell.run(estimate))
    truth = float(told.rpartition("truth: ")[2])
    assert found["lower"] <= truth <= found["upper"], "false alarms: at most 5%, seeds are random"
    with urllib.request.urlopen(f"http://127.0.0.1:{shell.port}/metrics", timeout=30) as answer:
        scraped = answer.read().decode()
    assert f'dither_reports_total{{metric="dep_delay",outcome="accepted"}} {DEVICES}.0' in scraped


def test_a_second_service_in_the_folder_is_refused(
    shell: Shell, service: subprocess.Popen[str]
) -> None:
    second = shell.start(commands()[2])
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 1
    assert "dither.toml was written by a `dither up` that is running in this folder" in errors
    assert service.poll() is None


def test_closing_the_terminal_ends_the_service(
    shell: Shell, service: subprocess.Popen[str]
) -> None:
    service.send_signal(signal.SIGHUP)
    assert service.wait(60) == 0


def test_nothing_of_a_service_that_is_killed_is_left(shell: Shell) -> None:
    shell.run(commands()[1])
    with shell.start(commands()[2]) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            told = [process.stdout.readline() for _ in range(3)]
        finally:
            seen = descendants(process.pid)
            process.kill()
    assert told[-1].startswith("dashboard: ")
    assert len(seen) >= 3, "a worker, the HTTP server and Redis"
    wait_until(lambda: not living(seen), "they have ended, too")
    for command in ("metrics", "estimate dep_delay", "produce dep_delay --simulate uniform"):
        process = shell.start(f".venv/bin/dither {command}")
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 1
        assert errors.startswith("Error: dither.toml was left by a `dither up` that was killed")
    with shell.start(commands()[2]) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while not process.stdout.readline().startswith("dashboard: "):
            assert process.poll() is None, process.stderr.read()
        assert "waiting" not in shell.run(".venv/bin/dither estimate dep_delay")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert "dither.toml was left by a `dither up` that was killed" in process.stderr.read()
    assert not (shell.folder / "dither.toml").exists()


def child_of(process: subprocess.Popen[str], command: str) -> int:
    """Return the process that runs a command of ours for `dither up`, or its Redis."""
    words = [command, "--log-level=error"] if command != "valkey-server" else [command]
    for pid in descendants(process.pid):
        line = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        if all(any(word in one for one in line) for word in words) and "-c" not in line:
            return pid
    raise AssertionError(f"no process runs {command}")


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("aggregate", "the worker, `dither aggregate`, (process {})"),
        ("serve", "the HTTP server, `dither serve`, (process {})"),
        ("valkey-server", "the embedded Redis"),
    ],
)
def test_a_process_that_dies_is_named_with_its_end(shell: Shell, command: str, named: str) -> None:
    shell.run(commands()[1])
    process = shell.start(commands()[2])
    assert process.stdout is not None
    try:
        while not process.stdout.readline().startswith("dashboard: "):
            assert process.poll() is None
        pid = child_of(process, command)
        os.kill(pid, signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert f"{named.format(pid)} was ended by SIGKILL (exit code -9; usually" in errors


def test_the_last_lines_of_a_process_that_fails_are_told(shell: Shell) -> None:
    shell.run(commands()[1])
    nowhere = "--set serve.tls_certificate=nowhere.pem --set serve.tls_key=nowhere.pem"
    process = shell.start(f"{commands()[2]} {nowhere}")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    told = errors.partition("the HTTP server, `dither serve`, (process ")[2]
    assert "has ended with exit code 1; its last lines:\n  Error: " in told
    assert "nowhere.pem" in told


def test_a_port_that_is_taken_is_named(shell: Shell) -> None:
    shell.run(commands()[1])
    with socket.create_server(("127.0.0.1", shell.port)):
        process = shell.start(commands()[2])
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"port {shell.port} of 127.0.0.1" in errors
