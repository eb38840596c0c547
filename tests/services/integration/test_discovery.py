"""Strings that nobody listed, from devices through Kafka and Redis to the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

from aggregator.cli.main import cli
from aggregator.reading.discovery.answers import discovery_answer
from aggregator.reading.reader import Reader
from estimators import LocalMetric
from producers import Reporter
from tests.support.events import final_ids, on_topic, publishing
from tests.support.reports.counted import Client
from tests.support.reports.messages import EPOCH, batch
from tests.support.running.deployment import Deployment, wait_until

METRICS = """
[metrics.tail]
kind = "frequency"
categories = "open"
discover = true
preset = "upper"
levels = [2, 4]
pane = "1h"
options = {last = 24, rows = 64}

[metrics.page]
kind = "frequency"
mechanism = "count_sketch"
categories = "open"
levels = [1]
"""
HOUR = 3600
CODES = ("JFK", "LGA", "EWR")
SECONDS = EPOCH / 1000


@pytest.fixture
def metrics_file(tmp_path: Path) -> Path:
    file = tmp_path / "metrics.toml"
    file.write_text(METRICS)
    return file


def test_strings_that_nobody_listed_are_found(deployment: Deployment) -> None:
    """10,000 devices in two panes, and a few in a third one, which stays open."""
    tail = deployment.metrics["tail"]
    assert isinstance(tail, LocalMetric)
    rng = np.random.default_rng(1)
    config = {"bootstrap.servers": deployment.kafka.bootstrap_servers}
    with deployment.worker(), Reporter(tail, config, topic=deployment.topic) as reporter:
        for pane, people in ((0, 5_000), (1, 5_000)):
            held = rng.choice(CODES, people, p=(0.5, 0.3, 0.2)).tolist()
            if pane == 0:
                held[:5] = ["SECRET"] * 5
            reporter.report(held, epsilon=4, time=SECONDS + HOUR * pane)
        reporter.flush()
        later = EPOCH + 2500 * HOUR  # ten batches in each partition close what was before
        last_ones = [batch(tail, ["JFK"], 4, later, number) for number in range(60)]
        deployment.produce([(n % 6, one.SerializeToString()) for n, one in enumerate(last_ones)])
        deployment.wait_until_counted()
    reader = Reader(deployment.store, deployment.metrics)

    with pytest.raises(ValueError, match="discover = true"):
        reader.discover("page")
    open_still = reader.discover("tail", SECONDS + 2 * HOUR, SECONDS + 4 * HOUR)
    assert (open_still.status, len(open_still.found)) == ("provisional", 0)

    steps: list[float] = []
    answer = reader.discover("tail", SECONDS, SECONDS + 2 * HOUR, progress=steps.append)
    assert (answer.status, answer.covers) == ("final", "this window")
    assert set(answer.found.strings) == set(CODES)
    assert answer.found.strings[0] == "JFK"
    assert answer.found.reports == 10_000
    for row, truth in zip(answer.found, (0.5, 0.3, 0.2), strict=True):
        assert row.lower < truth < row.upper
    assert steps[-1] == 1

    closed = reader.discover("tail")  # all panes that are closed
    assert (closed.status, closed.covers) == ("final", "all ends of panes")
    assert closed.found.strings == answer.found.strings
    assert np.all(closed.found.lower <= answer.found.lower)
    last = reader.discover("tail", window="1h")
    assert set(last.found.strings) == set(CODES)
    assert last.found.reports == 5_000
    with pytest.raises(ValueError, match="one of the two"):
        reader.discover("tail", SECONDS, window="1h")

    asked = reader.estimate("tail", SECONDS, SECONDS + 2 * HOUR, categories=["JFK", "SECRET"])
    assert asked.lower[0] < 0.5 < asked.upper[0]  # type: ignore[index]
    assert asked.lower[1] == 0  # type: ignore[index]

    assert '"JFK"' in printed(deployment, "discover", "tail", "--window", "1h")
    told = json.loads(printed(deployment, "discover", "tail", "--json"))
    assert [row["string"] for row in told["strings"]] == closed.found.strings
    assert told["beta"] == 0.05
    client = Client(deployment.store, deployment.metrics, deployment.settings)
    over_http = polled(client, "/v1/metrics/tail/discoveries?window=1h")
    assert [row["string"] for row in over_http["strings"]] == last.found.strings
    assert over_http["found_from"] < 0.2
    assert client.get("/v1/metrics/tail/discoveries?window=1h").json() == over_http
    table = client.get("/v1/metrics/tail/discoveries?window=1h&format=csv").text
    assert table == last.to_frame().to_csv()
    other = "/v1/metrics/tail/discoveries?window=1h&beta=0.01"
    began = client.get(other)
    assert (began.status_code, began.headers["retry-after"]) == (202, "1")
    assert client.ask("DELETE", other).json()["status"] == "cancelled"
    assert "begins one" in client.problem(404, other, "DELETE")["remedy"]
    client.problem(400, "/v1/metrics/page/discoveries")
    client.problem(404, "/v1/metrics/nothing/discoveries")
    client.problem(400, "/v1/metrics/tail/discoveries?window=1h&from=2013-01-01")
    client.problem(400, "/v1/metrics/tail/discoveries?beta=2")
    refused = CliRunner().invoke(cli, ["discover", "page", *deployment.flags])
    assert refused.exit_code == 2
    assert "discover = true" in refused.stderr
    assert deployment.verify().verified
    has_events_with_the_strings(deployment, reader)


def has_events_with_the_strings(deployment: Deployment, reader: Reader) -> None:
    """Each final event has what is found in its pane."""
    with publishing(deployment):
        wait_until(lambda: len(final_ids(deployment)) >= 2, "two final events")
    found = [event for event in on_topic(deployment) if event.is_final]
    assert [event.answer["reports"] for event in found] == [5_000, 5_000]
    for pane, event in enumerate(found):
        start = SECONDS + HOUR * pane
        asked = discovery_answer(reader.discover("tail", start, start + HOUR))
        listed = event.answer["discovery"]
        assert listed["strings"] == msgspec.to_builtins(asked.strings)
        assert {row["string"] for row in listed["strings"]} == set(CODES)
        assert (listed["candidates"], listed["left_out"]) == (asked.candidates, 0)
        assert (listed["beta"], listed["covers"]) == (0.05, "this window")


def printed(deployment: Deployment, *arguments: str) -> str:
    """Return what a command prints."""
    told = CliRunner().invoke(cli, [*arguments, *deployment.flags], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    return told.stdout


def polled(client: Client, path: str) -> dict[str, Any]:
    """Ask until the answer is there."""
    shares = [0.0]

    def is_there() -> bool:
        told = client.get(path)
        assert told.status_code in (200, 202), told.text
        shares.append(told.json().get("share", 1.0))
        return told.status_code == 200

    wait_until(is_there, "an answer")
    assert shares == sorted(shares)
    found: dict[str, Any] = client.get(path).json()
    return found


def test_before_any_report_nothing_is_found(deployment: Deployment) -> None:
    answer = Reader(deployment.store, deployment.metrics).discover("tail")
    assert (answer.status, answer.found.strings) == ("not_ready", [])
    assert "no pane is closed yet" in answer.reason
    assert answer.reason in printed(deployment, "discover", "tail")
    assert "discovers  tail: strings whose code words" in printed(deployment, "metrics")
