"""`dither reproduce` lists, runs, prints and draws."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from aggregator.cli.commands.reproduce import reproduce
from aggregator.errors import DitherError
from reproduction.experiments import EXPERIMENTS, Claim, Experiment, Number, Outcome
from tests.support.rows import row


def ran(*arguments: str, code: int | None = 0) -> str:
    result = CliRunner().invoke(reproduce, arguments)
    assert result.exit_code in ({0, 1} if code is None else {code}), result.exception
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.output


def test_numbers_stand_beside_those_of_the_paper_and_without_a_name_it_lists_them() -> None:
    told = ran("adpm-fig1b", "--runs", "4")
    assert "ADPM, Figure 1 (B). Data: synthetic" in told
    assert "3.989  exact  3.989  1.000  agrees" in told
    assert "holds: ADPM's error does not fall" in told
    listed = ran()
    assert all(f"{name} " in listed and x.title in listed for name, x in EXPERIMENTS.items())


def test_what_cannot_be_done_is_told() -> None:
    for arguments, message in (
        (["hldp-wights"], "did you mean 'hldp-weights'"),
        (["all", "--plot", "x.png"], "--plot draws one experiment"),
        (["hldp-weights", "--plot", "x.png"], "no figure, only numbers"),
        (["min-tasks", "--data", "x.csv"], "x.csv: no such file"),
    ):
        with row(arguments), pytest.raises(DitherError, match=message):
            CliRunner().invoke(reproduce, arguments, catch_exceptions=False)


def test_as_json_it_has_everything() -> None:
    found = json.loads(ran("hist-shuffle", "--json", "--seed", "3"))
    assert (found["name"], found["seed"], found["agrees"]) == ("hist-shuffle", 3, True)
    assert [claim["holds"] for claim in found["claims"]] == [True, True]
    assert len(found["plot"]["curves"][0]["x"]) == len(found["plot"]["curves"][0]["y"]) > 10


def test_what_does_not_come_out_is_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = Outcome([Number("n", 1.0, 0.1, 2.0, 0.1)], [Claim("c", holds=False, measured="3")])
    monkeypatch.setitem(EXPERIMENTS, "wrong", Experiment("t", "s", "d", 1, 1, lambda *_: outcome))
    told = ran("wrong", code=1)
    assert "DIFFERS" in told
    assert "FAILS: c (3)" in told
    assert "not as expected: wrong" in told


@pytest.mark.more
def test_it_runs_on_records_that_are_given(tmp_path: Path) -> None:
    file = tmp_path / "ratings.csv"
    rng = np.random.default_rng(1)
    rows = [f"{user},1,{rating},0" for user, rating in enumerate(rng.integers(1, 11, 300) / 2)]
    file.write_text("\n".join(["userId,movieId,rating,timestamp", *rows]))
    told = ran("min-tasks", "--runs", "2", "--data", str(file), code=None)
    assert "Data: ratings.csv: 300 ratings of 300 users.\n" in told
    assert "alpha, lowest average rating, epsilon = 1 " in told
    assert "least age" not in told
    refused = r"300 users.*: hist-fig1 cannot be run on it; min-tasks can"
    with pytest.raises(DitherError, match=refused):
        CliRunner().invoke(reproduce, ["hist-fig1", "--data", str(file)], catch_exceptions=False)
