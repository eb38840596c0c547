"""`dither define --examples`, and what `dither discover` prints."""

import json
import tomllib
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result

from aggregator.cli.main import cli
from aggregator.features.discovery.discover_command import as_text
from aggregator.reading.discovered_strings import Discovered, discovery_answer
from aggregator.reading.window import Window
from estimators import Discovery, LocalMetric, define


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments)


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    file = tmp_path / "tail.txt"
    file.write_text("".join(f"N{i}UA\n" for i in range(100, 200)), encoding="utf-8")
    return file


def test_a_definition_with_the_code_of_examples_loads(examples: Path) -> None:
    told = run("define", "--examples", str(examples), "--level", "1", "--level", "2")
    assert told.exit_code == 0, told.output
    (name, table), *_ = tomllib.loads(told.output)["metrics"].items()
    metric = define(name=name, **table)
    assert isinstance(metric, LocalMetric)
    assert (name, metric.levels, metric.pane) == ("tail", [1, 2], "1d")
    assert "N150UA" not in told.output
    again = define(
        **{key: value for key, value in table.items() if key != "code"},
        name=name,
        examples=examples.read_text(encoding="utf-8").split(),
    )
    assert again.revision == metric.revision


def answer(strings: list[str], lower: float, status: str = "final") -> Discovered:
    metric = define(
        name="tail", kind="frequency", categories="open", discover=True, preset="upper", levels=[1]
    )
    numbers = np.full(len(strings), 0.25)
    found = Discovery(strings, numbers, np.full(len(strings), lower), 2 * numbers, 9000, 3000)
    return Discovered(Window(metric=metric, status=status, end_ms=0), found, status, 0.05, "it")


def test_an_answer_is_plain_text_for_a_terminal_and_plain_json() -> None:
    text = as_text(answer(["a\x1b[2J\u202e"], 0.125))
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert '"a\\u001b[2J\\u202e"' in text
    assert "0.1250" in text
    assert "> 0" in as_text(answer(["JFK"], 0.0)), "a lower bound of zero is not attained"
    fields = json.loads(msgspec.json.encode(discovery_answer(answer(["JFK"], 0.1))))
    found = {"string": "JFK", "value": 0.25, "lower": 0.1, "upper": 0.5}
    assert (fields["strings"], fields["status"], fields["reports"]) == ([found], "final", 9000)
    assert fields["longest_code"] == 64
