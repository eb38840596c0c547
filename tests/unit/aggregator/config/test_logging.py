"""What the long-running commands log."""

import io
import json
import re
import subprocess
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


@pytest.mark.parametrize("as_json", [False, True])
def test_libraries_and_failures_are_logged_in_the_same_form(as_json: bool) -> None:
    code = f"""
import logging as of_libraries
from aggregator.config import logging
logging.configure(as_json={as_json})
of_libraries.getLogger("producers").warning("a batch of %d", 3)
logging.tell_failure("no broker")
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    library, failure = told.stderr.splitlines()
    if as_json:
        events = [json.loads(line)["event"] for line in (library, failure)]
        assert events == ["a batch of 3", "no broker"]
    else:
        assert "a batch of 3" in library
        assert failure == "Error: no broker"


def test_a_log_on_a_full_disk_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with io.TextIOWrapper(io.FileIO("/dev/full", "w"), write_through=True) as full:
        monkeypatch.setattr(sys, "stderr", full)
        logging.configure()
        structlog.get_logger().warning("lost")


def test_the_level_holds_for_what_libraries_and_producers_log() -> None:
    code = """
import logging as of_libraries, sys
from aggregator.config import logging
logging.configure(sys.argv[1])
for name in ("producers.relay", "library"):
    for level in (of_libraries.INFO, of_libraries.WARNING, of_libraries.ERROR):
        of_libraries.getLogger(name).log(level, "%s-%d", name, level)
"""
    logged = {
        level: re.findall(
            r"(producers|library)(?:\.relay)?-(\d+)",
            subprocess.run(
                [sys.executable, "-c", code, level], capture_output=True, text=True, check=True
            ).stderr,
        )
        for level in ("info", "error")
    }
    ours, theirs = (("producers", str(level)) for level in (20, 30)), [("library", "30")]
    errors = [("producers", "40"), ("library", "40")]
    assert sorted(logged["info"]) == sorted([*ours, *theirs, *errors])
    assert logged["error"] == errors
