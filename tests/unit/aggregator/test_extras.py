"""The package without its extras: what a device needs works, the rest says what to install."""

import json
from pathlib import Path

import pytest

from aggregator.cli.main import command_help
from aggregator.extras import EXTRA_BY_COMMAND
from tests.support.base_install import link_base_requirements, run_as_device

WITHOUT = {
    *("audit", "completion", "define", "kafka", "ledger", "produce", "roles", "tokens", "topics")
}
"""Commands that need no extra."""
OF_A_METRIC = ("compare", "discover", "estimate", "series", "watch", "weights")
ARGUMENTS = {name: ["m"] for name in OF_A_METRIC} | {
    "slices": ["m"],
    "schemas": ["--set", "schemas.url=http://localhost:1"],
    "deadletters": ["list"],
    "plan": ["--devices", "9"],
    "reproduce": ["min-tasks"],
}


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("device")
    link_base_requirements(folder)
    return folder


COMMAND = """
import contextlib, io, json, sys
from aggregator.cli.main import main
told = {}
for command, arguments in json.loads(sys.argv[1]).items():
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            main([command, *arguments])
        except SystemExit as end:
            told[command] = [end.code, said.getvalue()]
print(json.dumps(told))
"""


def test_a_command_that_lacks_an_extra_says_in_one_line_what_to_install(device: Path) -> None:
    (device / "metrics.toml").write_text(
        '[metrics.m]\nkind = "mean"\nmechanism = "laplace"\nrange = [0, 1]\nlevels = [1]\n'
    )
    given = {
        name: ["--help"] if name in WITHOUT else ARGUMENTS.get(name, []) for name in command_help()
    }
    done = run_as_device(device, COMMAND, json.dumps(given))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert set(told) == set(command_help())
    for command, (code, message) in told.items():
        if command in WITHOUT:
            assert code == 0, message
            continue
        needed = EXTRA_BY_COMMAND.get(command, "server")
        what = "an estimate" if command == "plan" else f"dither {command}"
        assert message.startswith(f"Error: {what} needs "), message
        assert message.endswith(f", which is not installed: pip install 'dither[{needed}]'\n")
        assert (message.count("\n"), code) == (1, 1), message


def test_one_extra_is_enough_for_one_machine(device: Path) -> None:
    (device / "rows.csv").write_text("ms\n" + "\n".join(map(str, range(100))))
    done = run_as_device(device, COMMAND, json.dumps({"define": ["rows.csv", "--column", "ms"]}))
    assert "pip install 'dither[demo]'" in done.stdout, done.stdout + done.stderr
