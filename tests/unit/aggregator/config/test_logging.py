"""What the long-running commands log."""

from __future__ import annotations

import sys

import pytest
import structlog

from aggregator.config import logging


@pytest.mark.parametrize("as_json", [False, True])
def test_a_traceback_does_not_tell_what_variables_hold(
    as_json: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    logging.configure(as_json=as_json)
    sums = [31_415_926]
    try:
        sums[1]
    except IndexError:
        structlog.get_logger().exception("a defect")
    told = capsys.readouterr().err
    assert "a defect" in told
    assert "31415926" not in told
    assert as_json or "IndexError" in told
