"""`dither audit --attack` reads what a reporter sends, and says so where it tells too much."""

from __future__ import annotations

import contextlib
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from aggregator.cli.main import cli
from tests.support.reports.broken import FAULTS, broken
from tests.support.rows import row

METRICS = """
[metrics]
late = {kind = "mean", mechanism = "randomized_response", range = [0, 1], levels = [0.5, 1, 2, 4]}
delay = {kind = "mean", mechanism = "laplace", range = [0, 10], levels = [1, 2]}
tail = {kind = "frequency", mechanism = "count_sketch", categories = "open", levels = [1, 2]}
word = {kind = "frequency", categories = "open", levels = [1, 2], options = {rows = 64}}
place = {kind = "vector_mean", dimension = 2, radius = 5, levels = [1, 2], max_batch_reports = 10}
inside = {kind = "vector_mean", mechanism = "lifted_caps", dimension = 2, radius = 5, levels = [1]}
speed = {kind = "mean", mechanism = "windows", range = [0, 1], levels = [1, 2]}
longest = {kind = "maximum", range = [0, 64], rounds = 6, levels = [0.5, 1, 2]}
shortest = {kind = "minimum", range = [0, 64], rounds = 4, split = "budget", levels = [4, 8]}

[metrics.carrier]
kind = "frequency"
mechanism = "rappor"
categories = ["AA", "B6", "DL", "UA", "WN", "9E", "EV", "MQ", "US"]
levels = [1, 2]
"""
SURE = "0.999999"
"""Of each level's bound here: a false alarm in this file once in ten thousand runs at most."""


@pytest.fixture(autouse=True)
def _folder_with_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("metrics.toml").write_text(METRICS)


def attacked(*arguments: str, fault: str = "") -> tuple[int, list[dict[str, Any]]]:
    """Return the exit code and what was shown of each level."""
    with broken(fault) if fault else contextlib.nullcontext():
        told = CliRunner().invoke(
            cli, ["audit", *arguments, "--attack", "--confidence", SURE, "--json"]
        )
    assert told.exit_code in (0, 1), told.output
    return told.exit_code, json.loads(told.stdout)["attacks"]


def test_the_attack_on_randomized_response_comes_within_a_tenth_and_never_above() -> None:
    told = CliRunner().invoke(cli, ["audit", "late", "--attack", "--json"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert found["confidence"] == 0.999
    for attack in found["attacks"]:
        assert 0.9 * attack["epsilon"] < attack["at_least"] <= attack["epsilon"]
        assert attack["reports"] == 400_000
    assert [attack["epsilon"] for attack in found["attacks"]] == [0.5, 1, 2, 4]


def test_every_metric_withstands_it_and_is_attacked_in_earnest() -> None:
    """A search that splits the budget is held to one answer's part of it."""
    code, rows = attacked("--reports", "40000")
    assert code == 0
    assert {attack["metric"] for attack in rows} == tomllib.loads(METRICS)["metrics"].keys()
    for attack in rows:
        assert attack["holds"]
        assert (0.4 if attack["epsilon"] < 1 else 0.7) * attack["epsilon"] < attack["at_least"]
    split = [attack for attack in rows if attack["metric"] == "shortest"]
    assert [(attack["epsilon"], attack["answers"]) for attack in split] == [(1, 4), (2, 4)]


CAUGHT = {
    "late": FAULTS,
    "longest": ("threshold", "level"),
    "shortest": ("threshold", "level"),
    "carrier": ("threshold", "shared", "level"),
    "delay": ("threshold", "shared"),
    "tail": ("bits", "level"),
    "word": ("threshold", "bits", "level"),
    "place": ("threshold", "restarted"),
    "inside": ("threshold",),
    "speed": ("threshold",),
}


@pytest.mark.parametrize("metric", CAUGHT)
def test_a_fault_is_caught(metric: str) -> None:
    for fault in CAUGHT[metric]:
        with row(fault):
            code, rows = attacked(metric, "--reports", "40000", fault=fault)
            assert code == 1
            lowest = rows[0]
            assert not lowest["holds"], "the next level still leaves room for the fault"
            if fault == "byte":
                assert "on the wire" in lowest["fault"]
            elif fault in ("restarted", "shared"):
                assert lowest["event"].startswith("repeats")
