"""`dither audit` proves what holds and says what does not."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aggregator.cli.main import cli
from estimators.mechanisms.laplace import Laplace
from estimators.mechanisms.randomized_response import RandomizedResponse
from estimators.shuffling import shuffled_epsilon

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
