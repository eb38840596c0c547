"""`dither ledger` tells what a device's file says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from aggregator.cli.main import cli, main
from producers import Ledger


def test_a_ledger_is_told_in_words_and_as_json(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    Ledger(path, budget=2).spend("dep_delay", "1.5", reports=3)
    before = path.read_bytes()
    told = CliRunner().invoke(cli, ["ledger", str(path)])
    assert told.exit_code == 0
    assert "3 randomized answers about dep_delay (1.5)" in told.output
    assert "e^1.5 = 4.5 times surer" in told.output
    found = json.loads(CliRunner().invoke(cli, ["ledger", str(path), "--json"]).output)
    whole, delay = found["accounts"]
    assert found["period_seconds"] == 86_400
    assert (whole["metric"], whole["budget"], whole["left"]) == ("", 2, 0.5)
    assert (delay["metric"], delay["spent"], delay["reports"]) == ("dep_delay", 1.5, 3)
    assert path.read_bytes() == before


def test_a_file_that_is_no_ledger_is_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "diary"
    path.write_text("dear diary")
    with pytest.raises(SystemExit) as caught:
        main(["ledger", str(path)])
    assert caught.value.code == 1
    assert "this is not a ledger" in capsys.readouterr().err
