"""`dither bench`: every benchmark runs, and says what it is expected to say."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from benchmarks.command import bench
from benchmarks.measure import STAGES, Benchmark, measure
from benchmarks.record import RECORDED, Record
from benchmarks.tables import BLOCK, filled
from tests.support.rows import row

Run = Callable[..., tuple[Result, dict[str, Any]]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    file = tmp_path / "results.json"

    def invoke(*arguments: str) -> tuple[Result, dict[str, Any]]:
        line = ["--quick", *arguments, "--json", str(file)]
        result = CliRunner().invoke(bench, line, catch_exceptions=False)
        return result, json.loads(file.read_text()) if file.exists() else {}

    return invoke


@pytest.mark.more
def test_a_stage_runs_and_writes_ours_baseline_unit_and_ratio(run: Run) -> None:
    for stage in ("randomize", "count", "commit"):
        result, written = run("--in-process", "--only", stage)
        with row(stage):
            assert result.exit_code == 0
            assert written["benchmarks"] or written["figures"]
        for name, found in written["benchmarks"].items():
            with row(name):
                assert name.startswith(f"{stage}/")
                assert found.keys() == {"ours", "baseline", "unit", "ratio"}
                assert found["unit"].endswith("/s")
                assert found["ratio"] == pytest.approx(found["ours"] / found["baseline"])
                assert name in result.stdout


def test_what_needs_apache_kafka_is_listed_with_its_reason(run: Run) -> None:
    result, written = run("--in-process", "--only", "end to end")
    assert "needs Apache Kafka" in written["not_run"]["end to end"]
    assert "not run: needs Apache Kafka" in result.stdout


def test_a_name_that_no_benchmark_has_is_refused(run: Run) -> None:
    result, _ = run("--in-process", "--only", "discover/nothing of the kind")
    assert result.exit_code == 2
    assert "no benchmark has 'discover/nothing of the kind' in its name" in result.output
    result = CliRunner().invoke(bench, ["--only", "userz"])
    assert result.exit_code == 2
    assert "--only userz: expected a stage" in result.output
    assert "baseline" not in result.output, "nothing has run"
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
    result, spread = measure(Benchmark("a/b/c", "x/s", ours, baseline), rounds=3)
    assert turns == ["ours", "baseline"] * 2 + ["baseline", "ours"] + ["ours", "baseline"]
    assert (result.ours, result.baseline, result.ratio) == (4, 2, 2)
    assert spread == (1, 3)


def test_the_tables_of_the_docs_are_those_of_the_recorded_run() -> None:
    for page in ("performance", "capacity"):
        text = (RECORDED.parents[1] / "docs" / f"{page}.md").read_text()
        stages = {name.partition("/")[0] for _, name, _ in BLOCK.findall(text)}
        with row(page):
            assert stages <= {*STAGES, "machine", "not run", "capacity"}
            told = "python -m benchmarks.tables --write PAGE"
            assert filled(BLOCK.sub(r"\1old\n\3", text), Record.read(RECORDED)) == text, told
