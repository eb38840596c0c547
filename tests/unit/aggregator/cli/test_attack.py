"""`dither audit --attack` reads what a reporter sends, and says so where it tells too much."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from aggregator.cli.main import cli
from tests.support.reports.broken import FAULTS, broken

METRICS = """
[metrics.late]
kind = "mean"
mechanism = "randomized_response"
range = [0, 1]
levels = [0.5, 1, 2, 4]

[metrics.delay]
kind = "mean"
mechanism = "laplace"
range = [0, 10]
levels = [1, 2]

[metrics.carrier]
kind = "frequency"
mechanism = "rappor"
categories = ["AA", "B6", "DL", "UA", "WN", "9E", "EV", "MQ", "US"]
levels = [1, 2]

[metrics.tail]
kind = "frequency"
mechanism = "count_sketch"
categories = "open"
levels = [1, 2]

[metrics.word]
kind = "frequency"
categories = "open"
levels = [1, 2]
options = { rows = 64 }

[metrics.place]
max_batch_reports = 10
kind = "vector_mean"
dimension = 2
radius = 5
levels = [1, 2]

[metrics.inside]
kind = "vector_mean"
mechanism = "lifted_caps"
dimension = 2
radius = 5
levels = [1, 2]

[metrics.speed]
kind = "mean"
mechanism = "windows"
range = [0, 1]
levels = [1, 2]

[metrics.longest]
kind = "maximum"
range = [0, 64]
rounds = 6
levels = [0.5, 1, 2]

[metrics.shortest]
kind = "minimum"
range = [0, 64]
rounds = 4
split = "budget"
levels = [4, 8]
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
    for row in found["attacks"]:
        assert 0.9 * row["epsilon"] < row["at_least"] <= row["epsilon"]
        assert row["reports"] == 400_000
    assert [row["epsilon"] for row in found["attacks"]] == [0.5, 1, 2, 4]


def test_every_metric_withstands_it_and_is_attacked_in_earnest() -> None:
    code, rows = attacked("--reports", "40000")
    assert code == 0
    private = {"late", "delay", "carrier", "tail", "word", "place", "inside", "speed"}
    assert {row["metric"] for row in rows} == private | {"longest", "shortest"}
    for row in rows:
        assert row["holds"]
        assert (0.4 if row["epsilon"] < 1 else 0.7) * row["epsilon"] < row["at_least"]


def test_one_answer_of_a_search_that_splits_the_budget_is_held_to_its_part_of_it() -> None:
    code, rows = attacked("shortest", "--reports", "40000")
    assert code == 0
    assert [(row["epsilon"], row["answers"]) for row in rows] == [(1, 4), (2, 4)]
    told = CliRunner().invoke(cli, ["audit", "shortest", "--attack", "--reports", "4000"])
    assert told.stdout.count("randomized_response, 1 of 4") == 2


CAUGHT = [
    *(("late", fault) for fault in FAULTS),
    *(("longest", fault) for fault in FAULTS),
    *(("shortest", fault) for fault in ("threshold", "level")),
    *(("carrier", fault) for fault in ("threshold", "shared", "level")),
    *(("delay", fault) for fault in ("threshold", "shared")),
    *(("tail", fault) for fault in ("bits", "level")),
    *(("word", fault) for fault in ("threshold", "bits", "level")),
    *(("place", fault) for fault in ("threshold", "restarted")),
    *((metric, "threshold") for metric in ("inside", "speed")),
]


@pytest.mark.parametrize(("metric", "fault"), CAUGHT)
def test_a_fault_is_caught(metric: str, fault: str) -> None:
    code, rows = attacked(metric, "--reports", "40000", fault=fault)
    assert code == 1
    lowest = rows[0]
    assert not lowest["holds"], "the next level still leaves room for the fault"
    if fault == "byte":
        assert "on the wire" in lowest["fault"]
    elif fault in ("restarted", "shared"):
        assert lowest["event"].startswith("repeats")


def test_people_read_it_as_a_table() -> None:
    told = CliRunner().invoke(cli, ["audit", "late", "--attack", "--reports", "4000"])
    certificates, attacks = told.stdout.split("\n\n")
    assert certificates.count("holds") == attacks.count("holds") == 4
    assert "at least (99.9%)" in attacks
