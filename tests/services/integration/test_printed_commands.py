"""Every command that README, docs, help texts and error messages print works as printed."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from aggregator.cli.main import cli
from producers.ledger.ledger import Ledger
from tests.support.paths import ROOT
from tests.support.printed import DOCUMENTS, in_document, printed_commands, words
from tests.support.running.deployment import Deployment
from tests.support.running.servers import Kafka

FLIGHTS = ROOT / "producers" / "populations" / "flights.toml"
FOREGROUND = {"aggregate", "serve", "up", "demo", "watch", "coordinate", "kafka"}
"""They run until Ctrl-C; tests of their own start them."""
LONG = {"reproduce", "bench"}
"""They take minutes or hours: `make reproduction` and `make bench` run them."""
REGISTRY = {"schemas"}
"""They ask a schema registry: test_schema_registry.py has one."""
NOT_RUN = FOREGROUND | LONG | REGISTRY
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


def dither_commands(text: list[tuple[str, str]]) -> list[tuple[str, tuple[str, ...]]]:
    """Return (where, arguments) of those commands that are ours, each once."""
    found: dict[tuple[str, ...], str] = {}
    for place, command in text:
        program, *arguments = words(command)
        if program.rpartition("/")[2] == "dither":
            filled = tuple(PLACEHOLDERS.get(word, word) for word in arguments)
            found.setdefault(filled, place)
    return [(place, arguments) for arguments, place in found.items()]


def resolve(arguments: tuple[str, ...]) -> tuple[click.Command, str, list[str]]:
    """Return the command that arguments name, and what is left of them."""
    command: click.Command = cli
    name, rest = "dither", list(arguments)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        found, inner, rest = command.resolve_command(click.Context(command), rest)
        assert found is not None
        assert inner is not None
        command, name = inner, found
    return command, name, rest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the documents name, as the current one."""
    monkeypatch.chdir(tmp_path)
    for name, column in (
        ("delays.csv", "dep_delay"),
        ("flights.csv", "dep_delay"),
        ("latency.csv", "latency"),
    ):
        rows = [f"{3 * hour},2026-11-01 {hour:02}:00" for hour in range(1, 24)]
        (tmp_path / name).write_text("\n".join([f"{column},time_hour", *rows]))
    (tmp_path / "old_urls.txt").write_text("/\n/about\n/about/us\n/blog/2026\n")
    file = tmp_path / "producers" / "populations" / "flights.toml"
    file.parent.mkdir(parents=True)
    file.write_text(FLIGHTS.read_text())
    return tmp_path


def test_every_printed_dither_command_can_be_parsed(folder: Path) -> None:
    commands = dither_commands(list(printed_commands()))
    assert len(commands) > 80
    for place, arguments in commands:
        try:
            command, name, rest = resolve(arguments)
            if rest:  # a command's name alone speaks of the command
                command.make_context(name, [*rest])
        except click.exceptions.Exit:
            pass  # an option such as --show-settings, which ends it
        except click.ClickException as error:
            if is_about_an_option(error, rest):
                continue
            pytest.fail(f"{place}: dither {' '.join(arguments)}: {error.format_message()}")


def is_about_an_option(error: click.ClickException, rest: list[str]) -> bool:
    """Return whether a command was printed to speak of an option: all that it lacks are values."""
    if isinstance(error, click.MissingParameter):
        return isinstance(error.param, click.Argument)
    return isinstance(error, click.BadOptionUsage) and error.option_name == rest[-1]


def test_every_printed_make_target_and_module_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    seen = 0
    for place, command in printed_commands():
        program, *arguments = words(command)
        name = program.rpartition("/")[2]
        if name == "make":
            assert re.search(rf"^{arguments[0]}:", makefile, re.MULTILINE), (place, command)
        elif name.startswith("python") and arguments[0] == "-m":
            assert importlib.util.find_spec(arguments[1]) is not None, (place, command)
        elif name.startswith("python"):
            line = [sys.executable, arguments[0], "--help"]
            ran = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
            assert "Traceback" not in ran.stderr, (place, command, ran.stderr)
        else:
            continue
        seen += 1
    assert seen > 20


@pytest.fixture
def documented(kafka: Kafka, redis_url: str, folder: Path) -> Deployment:
    """A deployment with the documents' metrics, of which some reports are counted or refused."""
    metrics = folder / "metrics.toml"
    flights = FLIGHTS.read_text().replace("[attributes]\n", '[attributes]\nversion = ["1", "2"]\n')
    metrics.write_text(flights + MORE_METRICS)
    deployment = Deployment(kafka, redis_url, metrics)
    settings = deployment.settings
    (folder / "dither.toml").write_text(
        f'metrics = "{metrics}"\n'
        f'[kafka]\n"bootstrap.servers" = "{kafka.bootstrap_servers}"\n'
        f'[redis]\nurl = "{redis_url}"\n'
        f'[topics]\nreports = "{deployment.topic}"\ndeadletters = "{deployment.deadletters}"\n'
        f'estimates = "{deployment.estimates}"\nrounds = "{deployment.rounds}"\n'
        f"managed = {str(settings.topics.managed).lower()}\n"
        f'[aggregate]\ngroup = "{settings.aggregate.group}"\n'
    )
    deployment.produce([(0, b"no batch")])
    reported = CliRunner().invoke(cli, ["produce", "dep_delay", "--simulate", "normal:17,20"])
    assert reported.exit_code == 0, reported.output
    with deployment.store, deployment.worker():
        deployment.wait_until_counted()
    return deployment


def test_every_documented_command_that_ends_does_what_it_should(documented: Deployment) -> None:
    Ledger("device.ledger", budget=1.0, period="1d").spend("dep_delay", 0.5)
    text = [(str(file), one) for file in DOCUMENTS for one in in_document(file.read_text())]
    runner, ran = CliRunner(), 0
    for place, arguments in dither_commands(text):
        known = {"0:17": "0:0", "salary": "dep_delay", "adpm": "uniform"}
        known["new_checkout"] = "kennedy_or_newark"
        if arguments[:1] == ("ledger",):
            known["flights.csv"] = "device.ledger"
        given = [known.get(word, word) for word in arguments]
        command, name, rest = resolve(arguments)
        waits = given[:2] == ["produce", "air_time"]  # for its rounds, and a coordinator
        if not rest or waits or given[0] in NOT_RUN or "--help" in given:
            continue
        try:
            command.make_context(name, [*rest])
        except click.exceptions.Exit:
            pass
        except click.ClickException:
            continue  # it speaks of an option: the test above has seen that
        if given[0] == "audit":
            given += ["--reports", "2000"] if "--attack" in given else []
        result = runner.invoke(cli, given, input="y\n")
        told = f"{place}: dither {' '.join(given)}"
        assert result.exit_code == 0, f"{told}: {result.exception!r} {result.output}"
        ran += 1
    assert ran > 20
