"""Every command that README, docs, help texts and error messages print works as printed."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from aggregator.cli.main import cli
from producers.ledger.ledger import Ledger
from tests.support.paths import ROOT
from tests.support.printed import DOCUMENTS, in_document, printed_commands, words
from tests.support.running.deployment import Deployment

FLIGHTS = ROOT / "producers" / "populations" / "flights.toml"
NOT_RUN = {
    *("aggregate", "serve", "up", "demo", "watch", "coordinate", "kafka"),  # until Ctrl-C
    *("reproduce", "bench"),  # for minutes or hours
    "schemas",  # a registry: test_schema_registry.py has one
}
PLACEHOLDERS = {
    "METRIC": "dep_delay",
    "FILE": "flights.csv",
    "NAME": "dep_delay",
    "COMMAND": "estimate",
    "PARTITION": "3",
    "PARTITION:OFFSET": "0:0",
    "EXPERIMENT": "errata",
    "STAGE": "randomize",
    "TEXT": "-",
    "N": "2",
    "{}": "read",
}
DOCUMENTED = {"0:17": "0:0", "salary": "dep_delay", "adpm": "uniform"}
DOCUMENTED |= {"new_checkout": "kennedy_or_newark"}
MORE_METRICS = """
[metrics.latency]
kind = "distribution"
range = [1, 10_000]
scale = "log"
levels = [1, 2, 4]
by = ["version"]

[metrics.aircraft]
kind = "frequency"
categories = "open"
discover = true
preset = "upper"
levels = [1, 2, 4]
pane = "1d"
options = {last = 32}

[metrics.error]
kind = "frequency"
categories = "open"
discover = true
preset = "text"
levels = [1, 2, 4]
pane = "1d"

[metrics.gradient]
kind = "vector_mean"
mechanism = "hemisphere"
dimension = 8
radius = 1.0
levels = [1, 2]

[metrics.page]
kind = "frequency"
mechanism = "count_sketch"
categories = "open"
levels = [1, 2]
"""


class Command:
    """A command of ours that is printed somewhere."""

    def __init__(self, place: str, arguments: tuple[str, ...]) -> None:
        self.told, self.arguments = f"{place}: dither {' '.join(arguments)}", arguments
        self.command: click.Command = cli
        self.name, self.rest = "dither", list(arguments)
        while isinstance(self.command, click.Group) and self.rest and self.rest[0][0] != "-":
            context = click.Context(self.command)
            found, inner, self.rest = self.command.resolve_command(context, self.rest)
            assert found is not None
            assert inner is not None
            self.command, self.name = inner, found

    @property
    def is_whole(self) -> bool:
        """Whether it can be run; one that speaks of an option lacks values, and nothing else."""
        try:
            self.command.make_context(self.name, [*self.rest])
        except click.exceptions.Exit:
            return True  # an option such as --show-settings, which ends it
        except (click.MissingParameter, click.BadOptionUsage) as error:
            if isinstance(error, click.MissingParameter):
                speaks = isinstance(error.param, click.Argument)
            else:
                speaks = error.option_name == self.rest[-1]
            if not speaks:
                pytest.fail(f"{self.told}: {error.format_message()}")
            return False
        return True


def ours(printed: list[tuple[str, str]]) -> Iterator[Command]:
    """Yield those commands that are ours, each once."""
    found: dict[tuple[str, ...], str] = {}
    for place, command in printed:
        program, *arguments = words(command)
        if program.rpartition("/")[2] == "dither":
            filled = tuple(PLACEHOLDERS.get(word, word) for word in arguments)
            found.setdefault(filled, place)
    return (Command(place, arguments) for arguments, place in found.items())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the documents name, as the current one."""
    monkeypatch.chdir(tmp_path)
    columns = {"delays.csv": "dep_delay", "flights.csv": "dep_delay", "latency.csv": "latency"}
    for name, column in columns.items():
        rows = [f"{3 * hour},2026-11-01 {hour:02}:00" for hour in range(1, 24)]
        (tmp_path / name).write_text("\n".join([f"{column},time_hour", *rows]))
    (tmp_path / "old_urls.txt").write_text("/\n/about\n/about/us\n/blog/2026\n")
    file = tmp_path / "producers" / "populations" / "flights.toml"
    file.parent.mkdir(parents=True)
    file.write_text(FLIGHTS.read_text())
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_every_printed_command_can_be_parsed_and_every_target_and_module_exists() -> None:
    printed = list(printed_commands())
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert sum(not command.rest or command.is_whole for command in ours(printed)) > 60
    others, scripts = 0, set()
    for place, command in printed:
        program, *arguments = words(command)
        name = program.rpartition("/")[2]
        if name == "make":
            assert re.search(rf"^{arguments[0]}:", makefile, re.MULTILINE), (place, command)
        elif name.startswith("python") and arguments[0] == "-m":
            assert importlib.util.find_spec(arguments[1]) is not None, (place, command)
        elif name.startswith("python"):
            scripts.add(arguments[0])
        others += name != "dither"
    assert others > 20
    for script in sorted(scripts):
        line = [sys.executable, script, "--help"]
        ran = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
        assert "Traceback" not in ran.stderr, (script, ran.stderr)


@pytest.mark.more
def test_every_documented_command_that_ends_does_what_it_should(
    folder: Path, defined: Callable[..., Deployment]
) -> None:
    flights = FLIGHTS.read_text().replace("[attributes]\n", '[attributes]\nversion = ["1", "2"]\n')
    deployment = defined(flights + MORE_METRICS)
    topics, aggregate = deployment.settings.topics, deployment.settings.aggregate
    (folder / "dither.toml").write_text(
        f'metrics = "{deployment.metrics_file}"\n[redis]\nurl = "{deployment.redis_url}"\n'
        f'[kafka]\n"bootstrap.servers" = "{deployment.kafka.bootstrap_servers}"\n'
        f'[topics]\nreports = "{topics.reports}"\ndeadletters = "{topics.deadletters}"\n'
        f'estimates = "{topics.estimates}"\nrounds = "{topics.rounds}"\n'
        f'managed = {str(topics.managed).lower()}\n[aggregate]\ngroup = "{aggregate.group}"\n'
    )
    runner, ran = CliRunner(), 0
    reported = runner.invoke(cli, ["produce", "dep_delay", "--simulate", "normal:17,20"])
    assert reported.exit_code == 0, reported.output
    deployment.count([(0, b"no batch")])
    Ledger("device.ledger", budget=1.0, period="1d").spend("dep_delay", 0.5)
    text = [(str(file), one) for file in DOCUMENTS for one in in_document(file.read_text())]
    for command in ours(text):
        file = "device.ledger" if command.arguments[:1] == ("ledger",) else "flights.csv"
        known = {**DOCUMENTED, "flights.csv": file}
        given = [known.get(word, word) for word in command.arguments]
        waits = given[:2] == ["produce", "air_time"]  # for its rounds, and a coordinator
        if not command.rest or waits or given[0] in NOT_RUN or "--help" in given:
            continue
        if not command.is_whole:
            continue
        if "--attack" in given:
            given += ["--reports", "2000"]
        result = runner.invoke(cli, given, input="y\n")
        assert result.exit_code == 0, f"{command.told}: {result.exception!r} {result.output}"
        ran += 1
    assert ran > 20
