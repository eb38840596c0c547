"""`dither watch`, as a person at a terminal has them."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aggregator.storage.redis_keys import tag
from tests.support.events import ages
from tests.support.running.deployment import Deployment, wait_until

DITHER = [sys.executable, "-m", "aggregator"]


@contextlib.contextmanager
def watching(
    deployment: Deployment, output: Path | int, *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run `dither watch` with its output in a file or a terminal."""
    command = [*DITHER, "watch", *arguments, "--interval=100ms", *deployment.flags]
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}
    with contextlib.ExitStack() as stack:
        out = output if isinstance(output, int) else stack.enter_context(output.open("wb"))
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environ)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def interrupt(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGINT)
    return process.wait(90)


@pytest.mark.more
def test_each_change_is_a_line_of_json_or_of_text_and_a_terminal_is_drawn_in_place(
    deployment: Deployment, tmp_path: Path
) -> None:
    screen, terminal = pty.openpty()
    files, drawn = (tmp_path / "json", tmp_path / "text"), ""

    def answers() -> list[dict[str, float]]:
        told = files[0].read_text().splitlines()
        return [json.loads(line) for line in told if line.startswith("{") and line.endswith("}")]

    try:
        with (
            watching(deployment, files[0], "age", "--json") as as_json,
            watching(deployment, files[1], "age", "--window", "10m") as as_text,
            watching(deployment, terminal, "age") as in_place,
        ):
            deployment.count(ages(deployment, range(2)))
            wait_until(lambda: [one["reports"] for one in answers()][-1:] == [240], "a first line")
            wait_until(lambda: "120 reports" in files[1].read_text(), "a line of the last pane")
            while "240 reports" not in drawn or "●" not in drawn:
                drawn += os.read(screen, 65536).decode(errors="replace")
            owner = f"{tag(deployment.topic, 2)}:owner"
            deployment.store.client.hset(owner, "halted", "for a reason")
            wait_until(lambda: "partition 2 is halted" in files[1].read_text(), "it is named")
            deployment.store.client.hset(f"{tag(deployment.topic, 3)}:owner", "halted", "another")
            wait_until(lambda: "partition 3 is halted" in files[1].read_text(), "so is the next")
            assert interrupt(in_place) == 0
            drawn += os.read(screen, 65536).decode(errors="replace")
            assert [interrupt(one) for one in (as_json, as_text)] == [0, 0]
    finally:
        os.close(screen)
        os.close(terminal)
    shown = json.loads(deployment.dither("estimate", "age", "--json").stdout)
    for key in ("metric", "reports", "value", "lower", "upper"):
        assert answers()[-1][key] == shown[key]
    text = files[1].read_text()
    assert " in [" in text
    assert "\x1b" not in text
    assert text.count("for a reason") == 1
    assert "epsilon" in drawn
    assert "Traceback" not in drawn
    assert "\x1b[?25h" in drawn, "the cursor is shown again"
