"""`dither audit` proves what holds and says what does not."""

import json
from fractions import Fraction
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aggregator.cli.main import cli
from estimators.mechanisms.laplace import Laplace
from estimators.mechanisms.randomized_response import RandomizedResponse
from estimators.shuffling.amplification import shuffled_epsilon
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
        flips = Fraction(2**64) / (ratio(mechanism, level) + 1) - 1
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


def test_a_crowd_has_a_second_promise_and_a_largest_level() -> None:
    file = Path("metrics.toml")
    low = 'low = {kind = "minimum", range = [0, 10], rounds = 5, levels = [1]}\n'
    file.write_text(file.read_text() + low)
    crowd = ["--shuffled", "10000", "--delta", "1e-8"]
    rows = json.loads(audit(*crowd, "--central", "1", "--json").stdout)["certificates"]
    laws = RandomizedResponse([Fraction(1)]).set_laws(0)
    assert rows[1]["shuffled_epsilon"] == shuffled_epsilon(laws, 10_000, 1e-8)
    assert [one["largest_level"] for one in rows] == [5.3, 5.3, 5.1, 5.1, None]
    assert rows[4]["shuffled_epsilon"] is None, "a search asks in several crowds"
    shown = audit("late", *crowd).stdout
    assert "0.0470" in shown
    assert "times the panes" in shown
    assert "largest level" not in shown
    refused = audit("--central", "1")
    assert refused.exit_code == 2
    assert "--shuffled REPORTS" in refused.stderr


def test_numbers_that_no_crowd_can_have_are_refused_and_levels_are_levels() -> None:
    sent = ("--shuffled", "20")
    for words, said in (
        ((*sent, "--delta", "nan"), "nan is not in the range 0<x<=1."),
        ((*sent, "--central", "nan"), "nan is not in the range x>0"),
        ((*sent, "--central", "inf"), "inf is not in the range x>0"),
        (("--shuffled", "1000000001"), "is not in the range 1<=x<=1000000000"),
    ):
        with row(*words):
            refused = audit(*words)
            assert refused.exit_code == 2
            assert said in refused.stderr
    for central, text, number in (
        ("1e-5", "  none", 0),
        ("20.0003", "  20.0003", 20.0003),
        ("100", "  64, the largest level", 64),
    ):
        with row(central):
            assert text in audit("late", *sent, "--central", central).stdout
            told = json.loads(audit("late", *sent, "--central", central, "--json").stdout)
            assert [one["largest_level"] for one in told["certificates"]] == [number] * 2


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
