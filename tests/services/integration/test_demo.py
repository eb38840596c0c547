"""`dither demo` as a newcomer runs it: no server, real flights, truth beside estimate."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.paths import ROOT
from tests.support.running import http_client
from tests.support.running.deployment import wait_until
from tests.support.running.processes import descendants, living

PATIENCE = 600.0
"""Seconds: the demo promises an end, and no time for it. A minute is usual."""
pytestmark = [pytest.mark.timeout(3 * PATIENCE), pytest.mark.more]
MOST_UNCOVERED = 4
"""Values outside their bounds that are put down to chance.

`tail`, `delays` and `departure` count as one each. The bounds of each of the eight metrics hold
together with probability 0.95, RAPPOR's because those of its k categories fail with probability
0.05 / k each. Given the flights, the noise of any two of its values is independent, and so is that
of different metrics; but the values of `tail`, of `delays`, and of `departure` depend on each
other. So the number outside is a sum of independent coins with expectation at most 8 * 0.05 = 0.4:
by Chernoff's bound it exceeds 4 with probability below e^-0.4 (0.4 e / 5)^5 < 4e-4.
"""
WARNING = (
    "metric 'arr_delay' has trusted collection: TRUE VALUES leave this device, not randomized\n"
)
DEPENDENT = {"tail": 5, "delays": 3, "departure": 2}
VALUES = 1 + 1 + 1 + 16 + 105 + 2 + 5 + 1 + 3 + 1


class Demo:
    """A running demo, and all processes that it was seen to start."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.output, self.errors = folder / "stdout", folder / "stderr"
        self.seen: set[int] = set()
        # Settings of the person who runs the tests are none of the demo's.
        environ = {k: v for k, v in os.environ.items() if not k.startswith("DITHER_")}
        with self.output.open("w") as output, self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "aggregator", "demo", *arguments],
                cwd=folder,
                env={**environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )

    def told(self) -> str:
        return self.output.read_text()

    def has_ended(self) -> bool:
        self.seen |= descendants(self.process.pid)
        return self.process.poll() is not None

    def wait(self) -> int:
        wait_until(self.has_ended, "the demo ends", PATIENCE, pause=0.25)
        return self.process.returncode

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something that a running demo does; one that has ended fails at once."""

        def looked() -> bool:
            assert not self.has_ended(), f"before {what}: {self.errors.read_text()}"
            return condition()

        wait_until(looked, what, PATIENCE, pause=0.25)


@contextmanager
def demo(folder: Path, *arguments: str) -> Iterator[Demo]:
    """Run a demo; nothing that it started is left, whatever happens."""
    running = Demo(folder, *arguments)
    try:
        yield running
        wait_until(lambda: not living(running.seen), "all that it started has ended")
    finally:
        if running.process.poll() is None:
            pids = descendants(running.process.pid)
            running.process.kill()
            running.process.wait()
            for pid in living(pids):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_year_ends_with_one_json_object_of_truth_within_the_bounds(tmp_path: Path) -> None:
    from producers.populations.flights import flight_metrics, flights

    with demo(tmp_path, "--seconds", "3", "--json") as running:
        assert running.wait() == 0, running.errors.read_text()
    assert running.errors.read_text() == WARNING
    outcome, population = json.loads(running.told()), flights()
    counted = ["reports", "reports_per_second", "verified"]
    assert list(outcome) == [*counted, "metrics", "alarms", "comparisons", "discoveries"]
    has = {name: population.has_value(name) for name in flight_metrics()}
    assert outcome["reports"] == sum(int(np.sum(one)) for one in has.values())
    assert outcome["verified"] is True
    rows = outcome["metrics"]
    truths = {(row["metric"], row["category"]): row["truth"] for row in rows}
    delays = population.columns["dep_delay"][has["dep_delay"]]
    assert truths["dep_delay", None] == pytest.approx(np.clip(delays, -60, 180).mean())
    assert truths["tail", "N725MQ"] == pytest.approx(
        (population.columns["tail"][has["tail"]] == "N725MQ").mean()
    )
    assert sum(t for (name, _), t in truths.items() if name == "dest") == pytest.approx(1)
    for row in rows:
        assert row["covered"] == (row["lower"] <= row["truth"] <= row["upper"])
    check_uncovered([row["metric"] for row in rows if not row["covered"]])
    check_findings(outcome)


def check_uncovered(names: list[str]) -> None:
    coins = [name for name in names if name not in DEPENDENT]
    assert len(coins) + len(DEPENDENT.keys() & set(names)) <= MOST_UNCOVERED


def check_findings(outcome: Any) -> None:
    """See the storm of 8 March, Kennedy before Newark, and the largest destinations and airlines.

    On 8 March 76% of the flights were late: 18 standard errors of a day above January. ATL and ORD
    have 20 times the noise floor of half a year, UA and B6 more than 60 times. For each metric all
    strings are real with probability 0.975, and all bounds hold with 0.975: of these four promises
    three fail with probability below 4 * 0.025^3 = 7e-5.
    """
    (march,) = (one for one in outcome["alarms"] if one["since"] <= "2013-03-08" < one["at"])
    assert march["truth_of_baseline"] == pytest.approx(0.225, abs=0.001)
    assert march["value"] == pytest.approx(march["truth"], abs=0.2)
    assert {(one["alarm"], one["direction"]) for one in outcome["alarms"]} == {("storm", "up")}
    (decided,) = outcome["comparisons"]
    assert "2013-01-01" < decided["decided_at"] < "2013-06-01"
    assert decided["lower"] <= decided["truth"] <= decided["upper"]
    assert -0.04 < decided["truth"] < -0.01
    broken = 0
    for found, frequent in zip(outcome["discoveries"], ({"ATL", "ORD"}, {"UA", "B6"}), strict=True):
        strings = {row["string"]: row for row in found["strings"]}
        assert frequent <= strings.keys()
        broken += any(row["truth"] == 0 for row in strings.values())
        broken += any(not row["lower"] <= row["truth"] <= row["upper"] for row in strings.values())
    assert broken <= 2


def test_ctrl_c_ends_the_demo_early_with_a_summary_for_people(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "60", "--stay") as running:
        running.wait_for(
            lambda: bool(re.search(r"within|outside", running.told())), "the first estimates"
        )
        running.process.send_signal(signal.SIGINT)
        running.wait_for(lambda: "dashboard: " in running.errors.read_text(), "it stays")
        told = running.errors.read_text().removeprefix(WARNING)
        shown = re.fullmatch(r"dashboard: (\S+)  \(Ctrl-C ends it\)\n", told)
        assert shown is not None, told
        assert "<title>Dither" in http_client.get(shown[1]).text
        running.process.send_signal(signal.SIGINT)
        assert running.wait() == 0, running.errors.read_text()
    assert len(running.seen) >= 3, "a worker, the HTTP server and Redis"
    told = running.told()
    assert re.search(r"metric +category +truth +estimate +lower +upper", told)
    for name, label in (
        ("dep_delay", "minutes"),
        ("carrier", "[A-Z0-9]{2}"),
        ("tail", "N[0-9A-Z]+"),
    ):
        assert re.search(rf"{name} +{label} *(-?\d+(\.\d+)? +){{4}}(within|outside|says)", told)
    summary = re.search(
        r"([\d,]+) reports, [\d,]+ a second; truth within the bounds for (\d+) of (\d+) values"
        r"(?:; the bounds of (\d+) more cover their whole range)?",
        told,
    )
    assert summary is not None
    telling = int(summary[3])
    assert telling + int(summary[4] or 0) == VALUES
    assert int(summary[2]) >= telling - MOST_UNCOVERED - sum(DEPENDENT.values()) + len(DEPENDENT)
    assert told.rstrip().endswith("the state in Redis is correct, byte for byte")
    assert "\x1b" not in told, "no colours where there is no terminal"


def test_a_demo_that_is_terminated_stops_what_it_started(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "60", "--json") as running:
        running.wait_for(lambda: len(running.seen) >= 4, "servers and workers run")
        running.process.terminate()
        assert running.wait() == 128 + signal.SIGTERM
    assert running.told() == ""
