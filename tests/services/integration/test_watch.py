"""`dither watch` and completion, as a person at a terminal has them."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aggregator.storage.redis_keys import tag
from tests.support.events import ages
from tests.support.paths import ROOT
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
            if process.poll() is None:
                process.kill()
            process.wait()


def interrupt(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGINT)
    return process.wait(30)


def count(deployment: Deployment, panes: range) -> None:
    deployment.produce(ages(deployment, panes))
    deployment.wait_until_counted()


def test_each_change_is_a_line_of_json_until_it_is_interrupted(
    deployment: Deployment, tmp_path: Path
) -> None:
    output = tmp_path / "out"

    def reports() -> list[int]:
        return [json.loads(line)["reports"] for line in output.read_text().splitlines()]

    with deployment.worker():
        count(deployment, range(2))
        with watching(deployment, output, "age", "--json") as process:
            wait_until(lambda: reports()[-1:] == [240], "the first line")
            count(deployment, range(2, 3))
            wait_until(lambda: reports()[-1] == 360, "another after the change")
            assert interrupt(process) == 0
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert all(answer["metric"] == "age" for answer in found)
    assert len({answer["reports"] for answer in found}) == 2
    shown = json.loads(deployment.dither("estimate", "age", "--json").stdout)
    assert {key: found[-1][key] for key in ("value", "lower", "upper")} == {
        key: shown[key] for key in ("value", "lower", "upper")
    }


def test_where_there_is_no_terminal_a_change_is_a_plain_line(
    deployment: Deployment, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    with deployment.worker():
        count(deployment, range(3))
        with watching(deployment, output, "age", "--window", "10m") as process:
            wait_until(lambda: "120 reports" in output.read_text(), "a line of the last pane")
            assert interrupt(process) == 0
    (line,) = {text.partition("  ")[2] for text in output.read_text().splitlines()}
    assert " in [" in line
    assert "\x1b" not in line


def test_a_partition_that_halts_is_named_once_while_others_count(
    deployment: Deployment, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    with deployment.worker():
        count(deployment, range(2))
    owner = f"{tag(deployment.topic, 1)}:owner"
    with watching(deployment, output, "age") as process:
        wait_until(lambda: "240 reports" in output.read_text(), "what is counted")
        deployment.store.client.hset(owner, "halted", "for a reason")
        wait_until(lambda: "partition 1 is halted" in output.read_text(), "it is named")
        deployment.store.client.hset(f"{tag(deployment.topic, 2)}:owner", "halted", "another")
        wait_until(lambda: "partition 2 is halted" in output.read_text(), "so is the next one")
        assert interrupt(process) == 0
    assert output.read_text().count("for a reason") == 1


def test_in_a_terminal_it_is_drawn_in_place(deployment: Deployment) -> None:
    screen, terminal = pty.openpty()
    drawn = ""
    try:
        with deployment.worker():
            count(deployment, range(2))
            with watching(deployment, terminal, "age") as process:
                while "●" not in drawn:
                    drawn += os.read(screen, 65536).decode(errors="replace")
                assert interrupt(process) == 0
            drawn += os.read(screen, 65536).decode(errors="replace")
    finally:
        os.close(screen)
        os.close(terminal)
    assert "240 reports" in drawn
    assert "epsilon" in drawn
    assert "Traceback" not in drawn
    assert "\x1b[?25h" in drawn, "the cursor is shown again"


def test_a_wrong_use_is_explained(deployment: Deployment) -> None:
    for arguments, told in {
        ("watch", "agee"): "did you mean 'age'",
        ("watch", "age", "--interval", "soon"): "a duration such as 30s",
        ("watch", "age", "--interval", "1ms"): "0.1s or more",
        ("watch", "age", "--window", "long"): "a duration such as 30s",
    }.items():
        run = deployment.dither(*arguments)
        assert run.returncode in (1, 2)
        assert told in run.stderr
        assert "Traceback" not in run.stderr


# -- Completion ---------------------------------------------------------------------------------


SCRIPT = """
eval "$(dither completion bash)"
while IFS= read -r line; do
    read -ra COMP_WORDS <<< "$line"
    [[ "$line" == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
    _dither_completion dither
    echo "${COMPREPLY[*]}"
done
"""


def completions(folder: Path, *typed: str) -> list[list[str]]:
    """Return what bash completes in each of these lines, with the script that Dither prints."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    dither = folder / "dither"
    dither.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m aggregator "$@"\n')
    dither.chmod(0o755)
    root = str(ROOT)
    environ = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": root}
    run = subprocess.run(
        [bash, "--norc", "-c", SCRIPT],
        input="\n".join(typed) + "\n",
        capture_output=True,
        text=True,
        cwd=folder,
        env=environ,
        check=True,
    )
    return [line.split() for line in run.stdout.splitlines()]


def test_bash_completes_commands_options_and_metrics(metrics_file: Path) -> None:
    folder = metrics_file.parent
    (folder / "other.toml").write_text('[metrics.tail]\nkind = "mean"\n')
    (folder / "broken.toml").write_text("not toml")
    assert completions(
        folder,
        "dither wat",
        "dither watch ",
        "dither estimate c",
        "dither watch age --inter",
        "dither watch --metrics other.toml ",
        "dither watch --metrics broken.toml ",
    ) == [["watch"], ["delay", "carrier", "age"], ["carrier"], ["--interval"], ["tail"], []]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_their_scripts(shell: str) -> None:
    run = subprocess.run([*DITHER, "completion", shell], capture_output=True, text=True, check=True)
    assert f"_DITHER_COMPLETE={shell}_complete" in run.stdout
