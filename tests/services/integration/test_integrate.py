"""What README and docs show works as it stands there, and so do the commands that are printed."""

import ast
import importlib.util
import json
import re
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from aggregator.cli.main import cli
from tests.support.events import ages, all_are_final, final_ids, on_topic, publishing
from tests.support.paths import ROOT
from tests.support.running.deployment import Deployment, as_json, wait_until


def blocks(page: str, language: str) -> list[str]:
    """Return a page's blocks of code in a language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def rows(database: Path) -> list[tuple[str, str, str, bytes]]:
    if not database.exists():
        return []
    connection = sqlite3.connect(database)
    try:
        return list(connection.execute("SELECT * FROM final ORDER BY pane"))
    except sqlite3.OperationalError:  # it has made no table yet
        return []
    finally:
        connection.close()


@pytest.mark.more
def test_a_killed_consumer_keeps_each_estimate_once(deployment: Deployment, tmp_path: Path) -> None:
    """Each run is in a group of its own: the second has lost all offsets, and reads all again."""
    (source,) = blocks("docs/integrate.md", "python")
    assert len(source.splitlines()) <= 20
    source = source.replace("localhost:9092", deployment.kafka.bootstrap_servers)
    source = source.replace('"dither.estimates"', f'"{deployment.estimates}"')
    file, database = tmp_path / "consumer.py", tmp_path / "estimates.db"
    with deployment.worker(), publishing(deployment):
        for panes in (range(12), range(12, 20)):
            deployment.produce(ages(deployment, panes))
            wait_until(lambda end=panes.stop: all_are_final(deployment, end), "final")  # type: ignore[misc]
            wait_until(lambda end=panes.stop: len(final_ids(deployment)) == end, "published")  # type: ignore[misc]
            file.write_text(source.replace("my-backend", f"{deployment.topic}-{panes.stop}"))
            with subprocess.Popen([sys.executable, str(file)], cwd=tmp_path) as consumer:
                try:
                    wait_until(lambda end=panes.stop: len(rows(database)) >= end, "all its rows")  # type: ignore[misc]
                    assert consumer.poll() is None
                finally:
                    consumer.kill()
    kept, events = rows(database), [event for event in on_topic(deployment) if event.is_final]
    assert [(row[0], json.loads(row[3])) for row in kept] == [(e.id, e.answer) for e in events]
    assert [row[1:3] for row in kept] == [("age", event.answer["from"]) for event in events]
    assert list(json.loads(blocks("docs/integrate.md", "json")[0])) == list(events[0].answer)


def test_the_metric_the_reporter_and_the_reader_of_the_readme_work_together(
    defined: Callable[..., Deployment], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (definition,) = blocks("README.md", "toml")
    monkeypatch.chdir(tmp_path)
    deployment = defined(definition)
    report, read = blocks("README.md", "python")
    report = report.replace("localhost:9092", deployment.kafka.bootstrap_servers)
    report = report.replace('"}) as', f'"}}, topic="{deployment.topic}") as')
    assert deployment.topic in report
    names: dict[str, object] = {}
    exec(compile(report, "README.md", "exec"), names)  # noqa: S102
    deployment.count()
    monkeypatch.setenv("DITHER_REDIS_URL", deployment.redis_url)
    monkeypatch.setenv("DITHER_TOPICS_REPORTS", deployment.topic)
    exec(compile(read, "README.md", "exec"), names)  # noqa: S102
    shown = as_json(deployment.dither("estimate", "dep_delay", "--json"))
    assert (shown["reports"], shown["status"]) == (1, "too_few_reports")


DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
SOURCES = [
    file
    for package in ("estimators", "producers", "aggregator", "dither", "deploy", "benchmarks")
    for file in sorted((ROOT / package).rglob("*.py"))
]
PROGRAM = r"(?:\.venv/bin/)?(?:dither|make|python3?)"
LINE = re.compile(rf"^(?:\$ )?({PROGRAM}(?: .*)?)$")
INLINE = re.compile(rf"`({PROGRAM} [^`]*)`")
IN_SOURCE = re.compile(rf"(?:`|^ +|\\n +){PROGRAM} ", re.MULTILINE)
"""Where a source without a match has no command: most need not be parsed."""
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHELL = {"", "bash", "sh", "console"}


def printed_commands() -> Iterator[tuple[str, str]]:
    """Yield (where, command) of every command that is printed somewhere."""
    for file in DOCUMENTS:
        yield from ((str(file.relative_to(ROOT)), one) for one in in_document(file.read_text()))
    for file in SOURCES:
        yield from ((str(file.relative_to(ROOT)), one) for one in in_source(file.read_text()))


def in_document(text: str) -> Iterator[str]:
    """Yield the commands of a Markdown text: lines of shell blocks, and inline code."""
    for language, body in BLOCK.findall(text):
        if language in SHELL:
            found = (LINE.match(line) for line in body.replace("\\\n", " ").splitlines())
            yield from (one[1] for one in found if one)
    yield from INLINE.findall(BLOCK.sub("", text))


def in_source(text: str) -> Iterator[str]:
    """Yield the commands in backticks in a module's strings, those of its messages among them."""
    for node in ast.walk(ast.parse(text)) if IN_SOURCE.search(text) else ():
        if isinstance(node, ast.JoinedStr):
            parts = (p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)
            yield from INLINE.findall("".join(str(part) for part in parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for line in node.value.splitlines():
                if found := re.match(rf"^ +({PROGRAM} .+)$", line):  # an example of a help text
                    yield found[1]
            yield from INLINE.findall(" ".join(node.value.split()))


def words(command: str) -> list[str]:
    """Return a command's words, without its comment, what is optional, and redirections."""
    plain = re.sub(r"\s\[[^\]]*\]|\s#.*$|\s>>?\s.*$|\s\|\s.*$", "", command)
    return shlex.split(plain)


FLIGHTS = ROOT / "producers" / "populations" / "flights.toml"
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
            found.setdefault(tuple(PLACEHOLDERS.get(word, word) for word in arguments), place)
    return (Command(place, arguments) for arguments, place in found.items())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files that the documents name, as the current one."""
    monkeypatch.chdir(tmp_path)
    columns = {"delays.csv": "dep_delay", "flights.csv": "dep_delay", "latency.csv": "latency"}
    columns["crashes.csv"] = "used_x"
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
