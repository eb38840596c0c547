"""`dither demo` as a newcomer runs it: no server, real flights, truth beside estimate."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.running import http_client
from tests.support.running.deployment import wait_until
from tests.support.running.processes import descendants, living

PATIENCE = 600.0
"""Seconds: the demo promises an end, and no time for it. A minute is usual."""
MOST_UNCOVERED = 6
"""Values outside their bounds that are put down to chance; each of eleven metrics counts once.

The bounds of each hold together with probability 0.95, and the noise of different metrics is
independent: more than 6 fail with a probability of at most 330 (0.05)^7 < 3e-7.
"""
WARNING = (
    "metric 'arr_delay' has trusted collection: TRUE VALUES leave this device, not randomized\n"
)
DEPENDENT = {"tail": 5, "delays": 3, "departure": 2}
VALUES = 1 + 1 + 1 + 1 + 4 + 4 + 16 + 105 + 2 + 5 + 1 + 3 + 1
SUMMARY = (
    r"([\d,]+) reports, [\d,]+ a second; truth within the bounds for (\d+) of (\d+) values"
    r"(?:; the bounds of (\d+) more cover their whole range)?"
)


@pytest.mark.more
@pytest.mark.timeout(3 * PATIENCE)
def test_ctrl_c_ends_the_demo_early_with_a_summary_for_people(tmp_path: Path) -> None:
    output, errors = tmp_path / "stdout", tmp_path / "stderr"
    # Settings of the person who runs the tests are none of the demo's.
    environ = {k: v for k, v in os.environ.items() if not k.startswith("DITHER_")}
    with output.open("w") as out, errors.open("w") as err:
        demo = subprocess.Popen(
            [sys.executable, "-m", "aggregator", "demo", "--seconds", "60", "--stay"],
            cwd=tmp_path,
            env={**environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    seen: set[int] = set()

    def wait_for(condition: Callable[[], bool], what: str) -> None:
        def looked() -> bool:
            assert demo.poll() is None, f"before {what}: {errors.read_text()}"
            seen.update(descendants(demo.pid))
            return condition()

        wait_until(looked, what, PATIENCE, pause=0.25)

    try:
        wait_for(lambda: bool(re.search("within|outside", output.read_text())), "estimates")
        demo.send_signal(signal.SIGINT)
        wait_for(lambda: "dashboard: " in errors.read_text(), "it stays")
        told = errors.read_text().removeprefix(WARNING)
        shown = re.fullmatch(r"dashboard: (\S+)  \(Ctrl-C ends it\)\n", told)
        assert shown is not None, told
        assert "<title>Dither" in http_client.get(shown[1]).text
        demo.send_signal(signal.SIGINT)
        assert demo.wait(PATIENCE) == 0, errors.read_text()
        wait_until(lambda: not living(seen), "all that it started has ended")
    finally:
        demo.kill()
        demo.wait()
        for pid in living(seen):
            os.kill(pid, signal.SIGKILL)
    assert len(seen) >= 3, "a worker, the HTTP server and Redis"
    told = output.read_text()
    for name, label in (
        ("dep_delay", "minutes"),
        ("carrier", "[A-Z0-9]{2}"),
        ("tail", "N[0-9A-Z]+"),
    ):
        assert re.search(rf"{name} +{label} *(-?\d+(\.\d+)? +){{4}}(within|outside|says)", told)
    summary = re.search(SUMMARY, told)
    assert summary is not None
    telling = int(summary[3])
    assert telling + int(summary[4] or 0) == VALUES
    assert int(summary[2]) >= telling - MOST_UNCOVERED - sum(DEPENDENT.values()) + len(DEPENDENT)
    assert told.rstrip().endswith("the state in Redis is correct, byte for byte")
    assert "late_shuffled: privacy epsilon 2 whoever colludes; among 449 others" in told
    assert "two processes of one operator are no relay" in told
    assert "late_shuffled: no value yet: no pane of 10 s has ended with a crowd of 500" in told
    assert "\x1b" not in told, "no colours where there is no terminal"
