"""`dither bench`: every benchmark runs, and says what it is expected to say."""

from __future__ import annotations

import doctest
import functools
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from aggregator.cli.commands.clone import command_of_clone
from aggregator.errors import DitherError
from benchmarks import capacity, growth, steady, tables
from benchmarks import command as command_line
from benchmarks.command import STAGES, bench
from benchmarks.measure import Benchmark, Figure, measure
from benchmarks.record import RECORDED, Record
from benchmarks.tables import BLOCK, filled, table

#: Stages that need no server but Redis, and take less than a second each.
LIGHT = (
    "randomize",
    "encode",
    "accumulate",
    "count",
    "read",
    "ask",
    "commit",
    "window",
    "growth",
    "profile",
)
BROKER = ("consume", "produce")

Run = Callable[..., tuple[Result, dict[str, Any]]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    file = tmp_path / "results.json"

    def invoke(*arguments: str) -> tuple[Result, dict[str, Any]]:
        line = ["--quick", *arguments, "--json", str(file)]
        result = CliRunner().invoke(bench, line, catch_exceptions=False)
        return result, json.loads(file.read_text()) if file.exists() else {}

    return invoke


@pytest.mark.parametrize("stage", [*LIGHT, *BROKER])
def test_a_stage_runs_and_writes_ours_baseline_unit_and_ratio(stage: str, run: Run) -> None:
    result, written = run("--in-process", "--only", stage)
    assert result.exit_code == 0
    assert written["benchmarks"] or written["figures"]
    for name, found in written["benchmarks"].items():
        assert name.startswith(f"{stage}/")
        assert found.keys() == {"ours", "baseline", "unit", "ratio"}
        assert found["unit"].endswith("/s")
        assert found["ratio"] == pytest.approx(found["ours"] / found["baseline"])
        assert name in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    "stage", [name for name in STAGES if name not in (*LIGHT, *BROKER, "peers", "users")]
)
def test_a_stage_that_needs_servers_runs(stage: str, run: Run) -> None:
    result, written = run("--only", stage)
    assert result.exit_code == 0
    assert written["benchmarks"] or written["figures"] or written["not_run"]


def test_what_needs_apache_kafka_is_listed_with_its_reason(run: Run) -> None:
    result, written = run("--in-process", "--only", "end to end")
    assert "needs Apache Kafka" in written["not_run"]["end to end"]
    assert "not run: needs Apache Kafka" in result.stdout


def test_an_update_keeps_other_benchmarks_and_a_new_file_does_not(run: Run) -> None:
    run("--only", "encode")
    _, both = run("--only", "randomize/grr/urandom", "--update")
    assert [name.split("/")[0] for name in both["benchmarks"]] == ["encode", "randomize"]
    _, alone = run("--only", "randomize/grr/urandom")
    assert list(alone["benchmarks"]) == ["randomize/grr/urandom"]


def test_a_name_that_no_benchmark_has_is_refused(run: Run) -> None:
    result, _ = run("--in-process", "--only", "encode/nothing of the kind")
    assert result.exit_code == 2
    assert "no benchmark has 'encode/nothing of the kind' in its name" in result.output


def test_a_name_that_is_of_no_stage_is_refused_before_anything_runs() -> None:
    result = CliRunner().invoke(bench, ["--only", "userz"])
    assert result.exit_code == 2
    assert "--only userz: expected a stage" in result.output
    assert "baseline" not in result.output


def test_the_stages_are_listed_with_what_they_measure() -> None:
    listed = CliRunner().invoke(bench, ["--list"]).stdout.splitlines()
    assert [line[:12].strip() for line in listed] == list(STAGES)
    assert all(len(line) > 30 for line in listed)


def test_both_sides_take_turns_and_each_begins_as_often() -> None:
    turns: list[str] = []

    def side(name: str, rates: list[float]) -> Callable[[float], float]:
        def rate(_: float) -> float:
            turns.append(name)
            return rates[turns.count(name) - 1]

        return rate

    ours, baseline = side("ours", [0, 1, 6, 4]), side("baseline", [0, 1, 2, 2])
    result = measure(Benchmark("a/b/c", "x/s", ours, baseline), rounds=3)
    assert turns == ["ours", "baseline"] * 2 + ["baseline", "ours"] + ["ours", "baseline"]
    assert (result.ours, result.baseline, result.ratio) == (4, 2, 2)
    assert (result.lowest, result.highest) == (1, 3)


def test_sides_that_are_warm_run_no_more_often_than_they_allow() -> None:
    runs = iter([6.0, 2.0, 4.0, 2.0])
    side = functools.partial(next, runs)
    warm = Benchmark(
        "a/b/c", "x/s", lambda _: side(), lambda _: side(), most_rounds=1, is_warm=True
    )
    result = measure(warm, rounds=5)
    assert (result.ours, result.baseline, list(runs)) == (6, 2, [4, 2])


@pytest.mark.parametrize("lacking", ["benchmarks", "benchmarks.command"])
def test_without_the_repository_the_command_says_where_the_benchmarks_are(
    lacking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(_: str) -> object:
        raise ModuleNotFoundError(name=lacking)

    monkeypatch.setattr(importlib, "import_module", absent)
    missing = command_of_clone("benchmarks.command", "bench", "the benchmarks", "run it there")
    assert missing.name == "bench"
    with pytest.raises(DitherError, match="clone the repository"):
        missing.main([], standalone_mode=False)


def test_tables_of_a_page_are_replaced_and_its_text_is_not() -> None:
    record = Record(figures={"memory/small": Figure("memory/small", 69.04, "MB")})
    page = "before\n<!-- benchmarks: memory -->\nold\n<!-- end -->\nafter\n"
    new = filled(page, record)
    assert new.startswith("before\n<!-- benchmarks: memory -->\n| what | measured | unit |")
    assert "| small | 69 | MB |" in new
    assert new.endswith("<!-- end -->\nafter\n")
    assert "old" not in new
    assert filled(new, record) == new


@pytest.mark.parametrize("page", ["performance", "capacity"])
def test_the_tables_of_the_docs_are_those_of_the_recorded_run(page: str) -> None:
    text = (RECORDED.parents[1] / "docs" / f"{page}.md").read_text()
    named = [name for _, name, _ in BLOCK.findall(text)]
    stages = {name.partition("/")[0] for name in named}
    assert stages <= {*STAGES, "machine", "not run", "capacity"}
    assert filled(text, Record.read(RECORDED)) == text, "python -m benchmarks.tables --write PAGE"


@pytest.mark.parametrize("module", [capacity, command_line, growth, steady, tables])
def test_the_examples_in_the_benchmarks_hold(module: ModuleType) -> None:
    failed, tried = doctest.testmod(module)
    assert tried > 0
    assert failed == 0


def test_a_record_is_read_as_it_was_written(run: Run, tmp_path: Path) -> None:
    run("--only", "encode")
    record = Record.read(tmp_path / "results.json")
    assert record.as_dict() == json.loads((tmp_path / "results.json").read_text())
    assert table(record, "encode").count("\n") == 3
