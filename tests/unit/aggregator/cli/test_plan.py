"""`dither plan`: what a team reads before anything ships."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from aggregator.cli.main import cli
from tests.support.rows import row

METRICS = """
[metrics]
late = {kind = "mean", mechanism = "randomized_response", range = [0, 1], levels = [0.5, 1], \
lateness = "1d"}
minutes = {kind = "mean", mechanism = "randomized_response", range = [0, 100], levels = [1], \
lateness = "1d"}
country = {kind = "frequency", mechanism = "grr", categories = 20, levels = [0.5], lateness = "1d"}
age = {kind = "maximum", range = [0, 128], rounds = 7, levels = [1]}
"""


@pytest.fixture
def run(tmp_path: Path) -> Any:
    path = tmp_path / "metrics.toml"
    path.write_text(METRICS)

    def plan(*words: str) -> Result:
        return CliRunner().invoke(cli, ["plan", "--metrics", str(path), *words])

    return plan


def test_a_plan_says_how_wide_what_to_paste_and_what_to_change(run: Any) -> None:
    asked = ("--devices", "20000", "--budget", "1", "late=0.02", "minutes=2", "country=0.1")
    text = run(*asked).output
    assert "late     0.02    0." in text
    assert "never" in text, "what comes last is never answered first come"
    assert "Within all wishes: no." in text
    assert "are missing." in text
    assert "country: its largest level within the budget is 0.5" in text
    assert 'turn="1d", tickets={"late": ' in text
    document = json.loads(run(*asked, "--json").output)
    rows = {each["metric"]: each for each in document["metrics"]}
    assert document["tickets"] == {"late": 1, "minutes": 1, "country": 4}
    assert rows["minutes"]["first_come"] is None
    assert rows["late"]["first_come"] < rows["late"]["lottery"]
    assert document["needed"] > 20_000
    ample = ("--devices", "3000000", *asked[2:], "--happens", "late=0.5")
    assert "Within all wishes: yes; " in run(*ample).output


def test_without_a_budget_it_shows_the_width_of_each_level_of_every_kind(run: Any) -> None:
    rows = json.loads(run("--devices", "200000", "--json").output)["widths"]
    assert [(each["metric"], each["epsilon"]) for each in rows] == [
        ("late", 0.5), ("late", 1), ("minutes", 1), ("country", 0.5), ("age", 1)
    ]  # fmt: skip
    assert all(each["within"] > 0 for each in rows)
    assert run("--devices", "9", "late", "--csv").output.startswith("metric,epsilon,reports,within")


def test_a_wish_without_a_budget_says_how_many_devices_it_takes(run: Any) -> None:
    """docs/what-to-ask.md has 46,000 reports of a share for 1%: four times those for 2%."""
    asked = ("--devices", "9", "late=0.02", "minutes", "--happens", "late=0.5")
    needed = [each["needed"] for each in json.loads(run(*asked, "--json").output)["widths"]]
    assert needed[2] is None
    assert math.isclose(needed[1], 2 * 46_000 / 4, rel_tol=0.05)
    told = run(*asked).output.splitlines()
    assert [line.split()[-1] for line in told[1:]] == [
        *(f"{each:,.0f}" for each in needed[:2]),
        "-",
    ]


def test_what_is_said_of_one_metric_and_of_one_device(run: Any) -> None:
    alone = run("--devices", "20,000", "--budget", "4", "minutes=2").output
    assert "One metric needs no lottery." in alone
    assert 'Ledger("daily.ledger", budget=4, period="20h")' in alone
    few = run("--devices", "1", "--budget", "1", "late=0.02", "minutes").output
    assert "give each metric a wish, as in minutes=2." in few
    assert "inf" not in run("--devices", "1", "--budget", "1", "late=0.02", "minutes=2").output


def test_what_cannot_be_planned_is_an_error_that_says_so(run: Any) -> None:
    cases = [
        (("lat=0.1",), "no metric 'lat'"),
        (("late=0",), "expected a number above 0, as in late=0.02"),
        (("late=x",), "expected a number above 0"),
        (("late=1e-300",), "late=1e-300: expected at least 1e-09"),
        (("late=2",), "late=2: expected at least 1e-09, and less than half of its range, 0.5"),
        (("late=0.1", "late=0.2"), "a metric is named twice"),
        (("late", "--happens", "minutes=0.5"), "expected a planned metric"),
        (("late", "--happens", "late=2"), "a share of at most 1"),
        (("late", "--happens", "late=1e-300"), "at least 1e-09"),
        (("late", "--happens", "late"), "--happens late: expected a planned metric, and a share"),
        (("age",), "no metric that a lottery can draw"),
        (("late", "--budget", "0.3"), "the lowest level of 'late' is 0.5"),
        (("late", "--budget", "0.55555"), "0.55555: expected at most 4 decimal digits"),
        (("late", "--budget", "nan"), "nan is not in the range 0<x<=64"),
        (("late", "--budget", "inf"), "inf is not in the range 0<x<=64"),
        (("late", "--budget", "65"), "is not in the range 0<x<=64"),
        (("late", "--devices", "1e6"), "'1e6' is not a valid whole number"),
        (("late", "--devices", "1000000000001"), "is not in the range 1<=x<=1000000000000"),
    ]
    for words, message in cases:
        with row(*words):
            found = run("--devices", "100", "--budget", "1", *words)
            assert found.exit_code == 2
            assert message in " ".join(found.output.split())


def test_the_number_of_devices_that_would_do_does(run: Any) -> None:
    asked = ("--budget", "1", "late=0.02", "minutes=1.7")
    needed = json.loads(run("--devices", "9000000", *asked, "--json").stdout)["needed"]
    for devices, said in (
        (needed, "wishes: yes."),
        (needed + 1, f"wishes: yes; {needed:,.0f} devices would do."),
        (needed - 1, f"wishes: no. {needed:,.0f} devices are needed, 1 are missing."),
    ):
        with row(devices):
            assert said in run("--devices", f"{devices:.0f}", *asked).output


def test_a_metric_that_no_roll_up_of_the_turn_takes_is_named(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "metrics.toml"
    text = path.read_text().replace('lateness = "1d"', 'pane = "7d"', 1)
    crowd = 'lateness = "2d", crowd = { minimum = 1000, wait = "12h" }'
    text += f'hidden = {{kind = "frequency", categories = 2, levels = [1], {crowd}}}'
    path.write_text(text.replace('[0.5], lateness = "1d"', '[0.5], lateness = "5m"'))
    asked = ("--devices", "1000", "--budget", "1", "late", "minutes", "country", "hidden")
    found = run(*asked, "--json")
    told = found.stderr
    assert "hidden: trusted, memoized, with a crowd" in told
    assert "hidden" not in json.loads(found.stdout)["tickets"]
    assert "country: a device that is off for 5m after a turn is not counted: expected" in told
    assert "late: no RollUp of a turn of 1d takes it: its definition needs a lateness" in told
    assert "late: no RollUp of a turn of 1d takes it: it is no multiple of its pane" in told
    assert "minutes" not in told
