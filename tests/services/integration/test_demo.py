"""`dither demo` as a newcomer runs it: no server, real flights, truth beside estimate."""

from __future__ import annotations

import datetime
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from producers.populations.flights import flight_metrics, flights
from producers.populations.population import Population
from tests.support.paths import ROOT
from tests.support.running import http_client
from tests.support.running.deployment import wait_until
from tests.support.running.processes import descendants, living

FLIGHTS = 336_776
PATIENCE = 600.0
"""Seconds: the demo promises an end, and no time for it. A minute is usual."""
pytestmark = pytest.mark.timeout(3 * PATIENCE + 300)
LOOK_SECONDS = 0.25
"""Between two looks at all processes of this machine, which take milliseconds."""
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
FOUR_WEEKS = 28 * 86_400_000
RELEASED = (573, 572, 571, 570, 569)
"""Panes of which one is the last that is closed. Each has about 25 batches, each in one of four
partitions by chance, and 8 in each partition close the panes before them: the 100 batches after
pane 569 do not with probability at most 4 P(Binomial(100, 1/4) <= 7) = 1.2e-5. Heartbeats close
pane 573, the last, where counting ends long after the flights: all partitions are quiet then."""
DEPENDENT = {"tail": 5, "delays": 3, "departure": 2}
FIRST_ROWS = (
    ("dep_delay", "minutes"),
    ("arr_delay", "minutes"),
    ("late", ""),
    ("carrier", "[A-Z0-9]{2}"),
    ("departure", r"0\.95 \(minutes\)"),
    ("tail", "N[0-9A-Z]+"),
    ("active_week", ""),
    ("delays", r"departure \(minutes\)"),
    ("air_time", "minutes"),
)
DISCOVERED = {"destination": "dest", "airline": "carrier"}
"""Metrics of strings that the definition does not list, and those that list them."""
VALUES = 1 + 1 + 1 + 16 + 105 + 2 + 5 + 1 + 3 + 1


class Demo:
    """A running demo, and all processes that it was seen to start."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.output, self.errors = folder / "stdout", folder / "stderr"
        self.seen: set[int] = set()
        self.looks_again = 0.0
        # Settings of the person who runs the tests are none of the demo's.
        environ = {k: v for k, v in os.environ.items() if not k.startswith("DITHER_")}
        with self.output.open("w") as output, self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "aggregator", "demo", *arguments],
                cwd=folder,
                env={
                    **environ,
                    "PYTHONPATH": str(ROOT),
                    "PYTHONUNBUFFERED": "1",
                },
                stdout=output,
                stderr=errors,
                start_new_session=True,
            )

    def told(self) -> str:
        return self.output.read_text()

    def has_ended(self) -> bool:
        if (now := time.monotonic()) >= self.looks_again:
            self.seen |= descendants(self.process.pid)
            self.looks_again = now + LOOK_SECONDS
        return self.process.poll() is not None

    def wait(self) -> int:
        wait_until(self.has_ended, "the demo ends", PATIENCE)
        return self.process.returncode

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for something that a running demo does; one that has ended fails at once."""

        def looked() -> bool:
            assert not self.has_ended(), f"before {what}: {self.errors.read_text()}"
            return condition()

        wait_until(looked, what, PATIENCE)

    def kill(self) -> None:
        """End it whatever happens; without its parent's pipe the embedded Redis ends itself."""
        if self.process.poll() is None:
            pids = descendants(self.process.pid)
            self.process.kill()
            self.process.wait()
            for pid in living(pids):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def population() -> Population:
    try:
        return flights()
    except ModuleNotFoundError as error:
        pytest.skip(f"needs the flights: {error}")


@pytest.fixture(scope="module")
def finished(population: Population, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """A whole year in three seconds."""
    demo = Demo(tmp_path_factory.mktemp("demo"), "--seconds", "3", "--json")
    try:
        demo.wait()
        yield demo
    finally:
        demo.kill()


@pytest.fixture(scope="module")
def outcome(finished: Demo) -> Any:
    assert finished.process.returncode == 0, finished.errors.read_text()
    return json.loads(finished.told())


def test_the_demo_ends_with_one_json_object_and_says_nothing_else(
    finished: Demo, outcome: Any
) -> None:
    counted = ["reports", "reports_per_second", "verified"]
    assert list(outcome) == [*counted, "metrics", "alarms", "comparisons", "discoveries"]
    for row in outcome["metrics"]:
        named = ["metric", "category", "truth", "value", "lower", "upper", "covered", "vacuous"]
        assert list(row) == named
    assert finished.errors.read_text() == WARNING


def test_every_report_of_every_flight_is_counted_and_proved(
    outcome: Any, population: Population
) -> None:
    assert np.sum(population.has_value("carrier")) == FLIGHTS
    expected = sum(int(np.sum(population.has_value(name))) for name in flight_metrics())
    assert outcome["reports"] == expected
    assert outcome["verified"] is True
    assert outcome["reports_per_second"] > 0


def test_an_alarm_finds_the_storms_and_tells_the_truth_beside_them(outcome: Any) -> None:
    """On 8 March 76% of the flights were late: 18 standard errors of a day above January."""
    found = outcome["alarms"]
    assert {one["alarm"] for one in found} == {"storm"}
    (march,) = (one for one in found if one["since"] <= "2013-03-08T00:00:00Z" < one["at"])
    assert march["truth_of_baseline"] == pytest.approx(0.225, abs=0.001)
    assert march["baseline"] == pytest.approx(march["truth_of_baseline"], abs=0.03)
    assert march["value"] == pytest.approx(march["truth"], abs=0.2)
    assert {one["direction"] for one in found} == {"up"}
    assert found[0]["at"] < "2013-03-10T00:00:00Z"


def test_a_comparison_is_decided_and_tells_the_truth_beside_it(outcome: Any) -> None:
    """In the year 21.6% of the flights from JFK arrive late, and 24.1% of those from EWR."""
    (found,) = outcome["comparisons"]
    assert found["comparison"] == "kennedy_or_newark"
    assert "2013-01-01" < found["decided_at"] < "2013-06-01"
    assert found["at"] > "2013-12-25"
    assert found["lower"] <= found["truth"] <= found["upper"]
    assert -0.04 < found["truth"] < -0.01


def test_strings_that_nobody_listed_are_discovered_beside_the_truth(
    outcome: Any, population: Population
) -> None:
    """ATL and ORD have 20 times the noise floor of half a year, UA and B6 more than 60 times.

    For each metric all strings are real with probability 0.975, and all bounds hold with 0.975: of
    these four promises three fail with probability below 4 * 0.025^3 = 7e-5.
    """
    broken = 0
    assert [found["metric"] for found in outcome["discoveries"]] == list(DISCOVERED)
    for found, frequent in zip(outcome["discoveries"], ({"ATL", "ORD"}, {"UA", "B6"}), strict=True):
        listed = flight_metrics()[DISCOVERED[found["metric"]]]
        until_ms = 1000 * datetime.datetime.fromisoformat(found["to"]).timestamp()
        part = population.part(0, int(np.searchsorted(population.time_ms, until_ms)))
        own = part.columns[listed.name][part.has_value(listed.name)]
        held = np.bincount(own, minlength=len(listed.labels)) / own.size
        truth = dict(zip(listed.labels, held.tolist(), strict=True))
        strings = {row["string"]: row for row in found["strings"]}
        assert found["held"] == np.count_nonzero(held)
        assert found["reports"] == own.size
        assert frequent <= strings.keys()
        for string, row in strings.items():
            assert row["truth"] == pytest.approx(truth.get(string, 0.0))
        broken += any(row["truth"] == 0 for row in strings.values())
        broken += any(not row["lower"] <= row["truth"] <= row["upper"] for row in strings.values())
    assert broken <= 2


def test_truth_stands_beside_each_estimate_and_lies_within_its_bounds(
    outcome: Any, population: Population
) -> None:
    rows = outcome["metrics"]
    metrics = flight_metrics() | flight_metrics(searches=True)
    assert [(row["metric"], row["category"]) for row in rows] == [
        (name, category)
        for name, metric in metrics.items()
        if name not in DISCOVERED
        for category in metric.labels or (None,)
    ]
    truths = {(row["metric"], row["category"]): row["truth"] for row in rows}
    delays = population.columns["dep_delay"][population.has_value("dep_delay")]
    assert truths["dep_delay", None] == pytest.approx(np.clip(delays, -60, 180).mean())
    means = []
    for pane in RELEASED:
        edges = np.searchsorted(population.time_ms, (pane * FOUR_WEEKS, (pane + 1) * FOUR_WEEKS))
        of_pane = population.part(*edges.tolist())
        arrivals = of_pane.columns["arr_delay"][of_pane.has_value("arr_delay")]
        means.append(pytest.approx(np.clip(arrivals, -60, 180).mean()))
    assert truths["arr_delay", None] in means
    assert sum(t for (name, _), t in truths.items() if name == "dest") == pytest.approx(1)
    for row in rows:
        assert row["lower"] <= row["upper"]
        assert row["covered"] == (row["lower"] <= row["truth"] <= row["upper"])
    late = population.columns["departure"][population.has_value("departure")]
    quantiles = np.quantile(late, [0.5, 0.95], method="inverted_cdf")
    assert [truths["departure", q] for q in ("0.5", "0.95")] == pytest.approx(quantiles, abs=1)
    tails = population.columns["tail"][population.has_value("tail")]
    assert truths["tail", "N725MQ"] == pytest.approx((tails == "N725MQ").mean())
    vectors = population.columns["delays"][population.has_value("delays")]
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    shortened = (vectors * np.minimum(1, 60 / np.maximum(length, 1e-9))).mean(axis=0)
    told = [truths["delays", name] for name in ("departure", "arrival", "in the air")]
    assert told == pytest.approx(shortened.tolist())
    uncovered = [row["metric"] for row in rows if not row["covered"]]
    coins = [name for name in uncovered if name not in DEPENDENT]
    assert len(coins) + len(DEPENDENT.keys() & set(uncovered)) <= MOST_UNCOVERED


def test_the_demo_leaves_no_process_behind(finished: Demo) -> None:
    assert len(finished.seen) >= 3, "a worker, the HTTP server and Redis"
    assert living(finished.seen) == set()


def test_ctrl_c_ends_the_demo_early_with_a_summary_for_people(
    population: Population, tmp_path: Path
) -> None:
    demo = Demo(tmp_path, "--seconds", "60", "--stay")
    try:
        demo.wait_for(
            lambda: bool(re.search(r"within|outside", demo.told())), "the first estimates"
        )
        demo.process.send_signal(signal.SIGINT)
        demo.wait_for(lambda: "dashboard: " in demo.errors.read_text(), "it stays")
        told = demo.errors.read_text().removeprefix(WARNING)
        shown = re.fullmatch(r"dashboard: (\S+)  \(Ctrl-C ends it\)\n", told)
        assert shown is not None, told
        assert "<title>Dither" in http_client.get(shown[1], timeout=30).text
        demo.process.send_signal(signal.SIGINT)
        assert demo.wait() == 0, demo.errors.read_text()
    finally:
        demo.kill()
    told = demo.told()
    assert re.search(r"metric +category +truth +estimate +lower +upper", told)
    number = r"-?\d+(\.\d+)?"
    for name, label in FIRST_ROWS:
        numbers = rf"({number} +){{4}}(within|outside|says nothing)"
        if name == "arr_delay":  # where its first pane was not released yet, there are none
            numbers = rf"({numbers})?"
        if name == "air_time":  # once its first round is open, one side is certain, the other not
            side = rf"(-|{number}) +"
            numbers = rf"{number} +(at least )?{number} +{side}{side}(within|outside|says nothing)"
        assert re.search(rf"{name} +{label} *{numbers}", told)
    summary = re.search(
        r"([\d,]+) reports, [\d,]+ a second; truth within the bounds for (\d+) of (\d+) values"
        r"(?:; the bounds of (\d+) more cover their whole range)?",
        told,
    )
    assert summary is not None
    reports = int(summary[1].replace(",", ""))
    assert 0 < reports < 10 * FLIGHTS
    assert re.search(r"^destination: (\d+ )?strings (are )?found", told, re.MULTILINE)
    telling = int(summary[3])
    assert telling + int(summary[4] or 0) == VALUES
    assert int(summary[2]) >= telling - MOST_UNCOVERED - sum(DEPENDENT.values()) + len(DEPENDENT)
    assert told.rstrip().endswith("the state in Redis is correct, byte for byte")
    assert "\x1b" not in told, "no colours where there is no terminal"
    assert living(demo.seen) == set()


def test_a_demo_that_is_terminated_stops_what_it_started(
    population: Population, tmp_path: Path
) -> None:
    demo = Demo(tmp_path, "--seconds", "60", "--json")
    try:
        demo.wait_for(lambda: len(demo.seen) >= 4, "servers and workers run")
        demo.process.terminate()
        assert demo.wait() == 128 + signal.SIGTERM
    finally:
        demo.kill()
    assert demo.told() == ""
    # A worker whose supervisor was terminated before it could listen is ended by its guard.
    wait_until(lambda: not living(demo.seen), "all that it started has ended")
