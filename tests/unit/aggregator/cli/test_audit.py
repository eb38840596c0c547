"""`dither audit` proves what holds and says what does not; an attack says so, too."""

from __future__ import annotations

import contextlib
import json
import math
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from aggregator.cli.main import cli
from estimators.mechanisms.laplace import Laplace
from estimators.mechanisms.randomized_response import RandomizedResponse
from estimators.shuffling import shuffled_epsilon
from tests.support.reports.broken import FAULTS, broken
from tests.support.rows import row

METRICS = """
[metrics]
late = {kind = "mean", mechanism = "randomized_response", range = [0, 1], levels = [0.5, 1]}
delay = {kind = "mean", mechanism = "auto", range = [0, 10], levels = [0.5, 8]}
"""


@pytest.fixture(autouse=True)
def _folder_with_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("metrics.toml").write_text(METRICS)


def audit(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["audit", *arguments])


def test_each_level_of_each_metric_has_its_certificate() -> None:
    told = audit("--json")
    assert told.exit_code == 0
    rows = json.loads(told.stdout)["certificates"]
    assert [(one["metric"], one["mechanism"], one["epsilon"]) for one in rows] == [
        ("late", "randomized_response", 0.5),
        ("late", "randomized_response", 1.0),
        ("delay", "windows", 0.5),
        ("delay", "windows", 8.0),
    ]
    for one in rows:
        assert one["private"] is True
        assert one["log_ratio"] == pytest.approx(one["epsilon"], rel=1e-12)
        assert one["log_ratio"] <= one["epsilon"] * (1 + 1e-15)
    assert audit().stdout.count("holds") == 4


def test_a_randomizer_that_says_too_much_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    ratio = RandomizedResponse.privacy_ratio

    def broken(mechanism: RandomizedResponse, level: int) -> Fraction:
        """Return what a threshold that is one too low would make of it."""
        kept = ratio(mechanism, level)
        flips = Fraction(2**64) / (kept + 1) - 1
        return (2**64 - flips) / flips

    monkeypatch.setattr(RandomizedResponse, "privacy_ratio", broken)
    told = audit("late")
    assert told.exit_code == 1
    assert told.stdout.count("FAILS") == 2


def test_an_exponent_above_epsilon_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    exponent = Laplace.privacy_exponent
    monkeypatch.setattr(
        Laplace,
        "privacy_exponent",
        lambda self, level: exponent(self, level) + Fraction(level, 10**30),
    )
    file = Path("metrics.toml")
    file.write_text(file.read_text().replace('"auto"', '"laplace"'))
    told = audit("delay", "--json")
    assert told.exit_code == 1
    assert [one["private"] for one in json.loads(told.stdout)["certificates"]] == [True, False]


def test_a_shuffler_is_shown_where_its_theorem_applies() -> None:
    told = audit("--shuffled", "20000", "--delta", "1e-6", "--json")
    rows = json.loads(told.stdout)["certificates"]
    assert rows[1]["shuffled_epsilon"] == shuffled_epsilon(1.0, 20_000, 1e-6)
    assert rows[1]["shuffled_epsilon"] < 1
    assert math.log(20_000 / (16 * math.log(2 / 1e-6))) < 8
    assert rows[3]["shuffled_epsilon"] is None
    assert "not applicable" in audit("delay", "--shuffled", "20000").stdout


def test_what_is_collected_in_trust_or_is_not_there_has_no_certificate() -> None:
    pay = '[metrics.pay]\nkind = "mean"\ntrust = "central"\nrange = [0, 9]\nlevels = [1]\n'
    file = Path("metrics.toml")
    file.write_text(file.read_text() + pay)
    told = audit("--json")
    assert "pay" not in {one["metric"] for one in json.loads(told.stdout)["certificates"]}
    assert "pay: no certificate, because its reports are true values" in told.stderr
    assert audit("pay").exit_code == 1
    told = audit("lat")
    assert told.exit_code == 1
    assert "late" in str(told.exception)


# -- Attacks -------------------------------------------------------------------------------------

ATTACKED = """
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
carrier.categories = ["AA", "B6", "DL", "UA", "WN", "9E", "EV", "MQ", "US"]
carrier.levels = [1, 2]
carrier.kind = "frequency"
carrier.mechanism = "rappor"
"""
SURE = "0.999999"
"""Of each level's bound here: a false alarm in this file once in ten thousand runs at most."""


@pytest.fixture
def _attacked(_folder_with_metrics: None) -> None:
    Path("metrics.toml").write_text(ATTACKED)


def attacked(*arguments: str, fault: str = "") -> tuple[int, list[dict[str, Any]]]:
    """Return the exit code and what was shown of each level."""
    with broken(fault) if fault else contextlib.nullcontext():
        told = CliRunner().invoke(
            cli, ["audit", *arguments, "--attack", "--confidence", SURE, "--json"]
        )
    assert told.exit_code in (0, 1), told.output
    return told.exit_code, json.loads(told.stdout)["attacks"]


@pytest.mark.usefixtures("_attacked")
def test_the_attack_on_randomized_response_comes_within_a_tenth_and_never_above() -> None:
    told = CliRunner().invoke(cli, ["audit", "late", "--attack", "--json"])
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    assert found["confidence"] == 0.999
    for attack in found["attacks"]:
        assert 0.9 * attack["epsilon"] < attack["at_least"] <= attack["epsilon"]
        assert attack["reports"] == 400_000
    assert [attack["epsilon"] for attack in found["attacks"]] == [0.5, 1, 2, 4]


@pytest.mark.usefixtures("_attacked")
def test_every_metric_withstands_it_and_is_attacked_in_earnest() -> None:
    """A search that splits the budget is held to one answer's part of it."""
    code, rows = attacked("--reports", "40000")
    assert code == 0
    assert {attack["metric"] for attack in rows} == tomllib.loads(ATTACKED)["metrics"].keys()
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


@pytest.mark.usefixtures("_attacked")
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
