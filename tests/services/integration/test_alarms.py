"""Alarms from the log to the estimates topic, the command line, HTTP and Prometheus."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator.web.asyncapi import document
from estimators import LocalMetric
from producers.wire.batch import heartbeat
from producers.wire.reports_pb2 import Attribute
from tests.support.events import Found, on_topic, publishing, reader_of, settings_of
from tests.support.reports.counted import HOUR, Client
from tests.support.reports.messages import EPOCH, batch
from tests.support.running.deployment import Deployment, wait_until

METRICS = """
[attributes]
country = ["DE", "FR"]

[metrics.late]
kind = "mean"
mechanism = "randomized_response"
range = [0, 1]
levels = [2, 4]
pane = "1h"
minimum_reports = 30
by = ["country"]

[alarms.moved]
metric = "late"
by = ["country"]
every = "1h"
baseline = "12h"
start = 2013-01-01T12:00:00Z
false_alarms = "1/1000h"

[alarms.all]
metric = "late"
every = "2h"
baseline_value = 0.3
start = 2013-01-01T00:00:00Z
false_alarms = "1/1000h"
direction = "down"
"""
MOVED, PANES = 20, 26


@pytest.fixture
def metrics_file(tmp_path: Path) -> Path:
    file = tmp_path / "metrics.toml"
    file.write_text(METRICS)
    return file


def produce(deployment: Deployment, hours: range) -> None:
    """Report for some hours, and close them; FR moves from 0.3 to 0.7."""
    late, draws = LocalMetric.require(deployment.metrics["late"]), np.random.default_rng(hours[0])
    sent = []
    for hour in hours:
        for number, country in enumerate(("DE", "FR")):
            mean = 0.7 if country == "FR" and hour >= MOVED else 0.3
            for level, epsilon in enumerate((2.0, 4.0)):
                answers, seed = draws.binomial(1, mean, 150), 1 + 4 * hour + 2 * number + level
                one = batch(late, answers.tolist(), epsilon, EPOCH + hour * HOUR, seed)
                one.attributes.append(Attribute(name="country", value=country))
                sent.append((hour % deployment.partitions, one.SerializeToString()))
    end = EPOCH + hours.stop * HOUR + late.lateness_ms
    sent += [(n, heartbeat(late, end)) for n in range(deployment.partitions) for _ in range(8)]
    deployment.produce(sent)
    with deployment.worker():
        deployment.wait_until_counted()


def alarms(deployment: Deployment) -> list[Found]:
    return [one for one in on_topic(deployment) if one.headers["ce_type"] == b"dither.alarm"]


def looked_until(deployment: Deployment, name: str) -> str | None:
    answer = ask(deployment, "/v1/alarms")
    (found,) = (one for one in answer["alarms"] if one["alarm"] == name)
    until: str | None = found["until"]
    return until


def ask(deployment: Deployment, path: str) -> Any:
    client = Client(deployment.store, deployment.metrics, settings_of(deployment))
    return client.get(path).json()


def check_tables(deployment: Deployment, moved: dict[str, Any], states: dict[str, str]) -> None:
    """Check that the command line and HTTP have the same table of alarms, and that of a replay."""
    printed = deployment.dither("alarms", "--csv")
    client = Client(deployment.store, deployment.metrics, settings_of(deployment))
    assert client.get("/v1/alarms?format=csv").text == printed.stdout != ""
    rows = [row for row in csv.DictReader(io.StringIO(printed.stdout)) if row["alarm"] == "moved"]
    by_slice = {row["slice"]: row for row in rows}
    assert [row["state"] for row in rows] == [one["state"] for one in moved["series"]]
    assert by_slice.keys() == {"country=DE", "country=FR", "country=none", "country=other"}
    assert len(states) == len(rows)
    assert by_slice["country=FR"]["last_alarm"] == moved["raised"][0]["at"]
    assert by_slice["country=DE"]["last_alarm"] == ""
    assert {row["watched_until"] for row in rows} == {moved["until"]}
    replayed = deployment.dither("alarms", "replay", "moved", "--csv")
    steps = [*csv.DictReader(io.StringIO(replayed.stdout))]
    raised = [row for row in steps if row["raised"] == "true"]
    assert len(raised) == len(moved["raised"])
    assert {row["slice"] for row in raised} == {"country=FR"}
    assert min(float(row["evidence"]) for row in raised) >= 1


def test_an_alarm_is_raised_once_whoever_publishes(deployment: Deployment) -> None:
    before = ask(deployment, "/v1/alarms")
    assert {one["until"] for one in before["alarms"]} == {None}
    assert "no publisher" in before["alarms"][0]["reason"]
    assert before["promised_per_year"] == pytest.approx(2 * 8.76)

    produce(deployment, range(MOVED + 1))
    with publishing(deployment):
        wait_until(lambda: looked_until(deployment, "moved") == "2013-01-01T21:00:00Z", "looked")
        wait_until(lambda: looked_until(deployment, "all") == "2013-01-01T20:00:00Z", "looked")
    (first,) = alarms(deployment)
    told = first.answer
    assert told["slice"] == {"country": "FR"}
    assert (told["at"], told["direction"]) == ("2013-01-01T21:00:00Z", "up")
    name, series, at = first.id.split("/")
    assert (name.partition("@")[0], series, at) == ("moved", "country=FR", told["at"])
    assert first.headers["ce_subject"] == b"moved"

    # The next publisher goes on; one that has lost all of Redis's copy makes no event again.
    produce(deployment, range(MOVED + 1, PANES))
    with publishing(deployment):
        wait_until(lambda: looked_until(deployment, "moved") == "2013-01-02T02:00:00Z", "looked")
    found = alarms(deployment)
    assert found[0].value == first.value
    client: Any = deployment.store.client
    for key in client.scan_iter(match="*publisher*"):
        client.delete(key)
    assert looked_until(deployment, "moved") is None
    with publishing(deployment):
        wait_until(lambda: looked_until(deployment, "moved") == "2013-01-02T02:00:00Z", "looked")
    assert [one.id for one in alarms(deployment)] == [one.id for one in found]

    # Of the copy only the state and the ids of alarms are lost: not how far the topic was read.
    keys = set(client.scan_iter(match="*:alarm*"))
    assert {key.rpartition(b"}:")[2].partition(b":")[0] for key in keys} == {b"alarm", b"alarms"}
    client.delete(*keys)
    assert looked_until(deployment, "moved") is None
    with publishing(deployment):
        wait_until(lambda: looked_until(deployment, "moved") == "2013-01-02T02:00:00Z", "looked")
    assert [one.id for one in alarms(deployment)] == [one.id for one in found]
    assert len({one.id for one in found}) == len(found)

    shown = ask(deployment, "/v1/alarms")
    (moved,) = (one for one in shown["alarms"] if one["alarm"] == "moved")
    assert moved["raised"] == [one.answer for one in reversed(found)]
    states = {str(one["slice"]["country"]): one["state"] for one in moved["series"]}
    assert states == {
        "DE": "watching",
        "FR": "watching",
        "None": "unwatchable",
        "{'other': True}": "unwatchable",
    }

    check_tables(deployment, moved, states)
    replayed = deployment.dither("alarms", "replay", "moved")
    assert replayed.returncode == 0, replayed.stderr
    again = [line for line in replayed.stdout.splitlines() if line.startswith("{")]
    assert [line.encode() for line in again] == [one.value for one in found]
    assert "2013-01-01T12:00:00Z  country=DE  " in replayed.stdout

    listed = deployment.dither("alarms")
    assert listed.returncode == 0, listed.stderr
    assert "country=FR went up from 0.3" in listed.stdout
    assert "its baseline has 0 reports: expected 30" in listed.stdout
    assert "All alarms together: at most 17.5 false alarms a year expected" in listed.stdout
    printed = json.loads(deployment.dither("alarms", "--json").stdout)
    assert printed == shown
    wrong = deployment.dither("alarms", "replay", "move")
    assert wrong.returncode == 1
    assert "no alarm 'move' in the definitions: did you mean 'moved'?" in wrong.stderr


def test_prometheus_has_how_alarms_stand(deployment: Deployment) -> None:
    produce(deployment, range(MOVED + 1))
    with publishing(deployment):
        wait_until(lambda: looked_until(deployment, "moved") == "2013-01-01T21:00:00Z", "looked")
    client = Client(deployment.store, deployment.metrics, settings_of(deployment))
    text = client.get("/metrics").text
    lines = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith("dither_alarm")
    }
    assert lines['dither_alarms_total{alarm="moved"}'] == 1
    assert lines['dither_alarm_state{alarm="moved",state="watching"}'] == 1
    labels = '{alarm="moved",direction="up",series="country=FR"}'
    assert lines[f"dither_alarm_raised_timestamp_seconds{labels}"] == EPOCH / 1000 + 21 * 3600
    assert lines['dither_alarm_evidence{alarm="moved",series="country=DE"}'] < 1
    assert 'dither_alarm_evidence{alarm="moved",series="country=none"}' not in lines
    assert lines["dither_alarms_promised_per_year"] == pytest.approx(2 * 8.76)


def test_the_document_of_the_topics_describes_the_event(deployment: Deployment) -> None:
    found = document(settings_of(deployment))
    assert "alarm" in found["channels"]["estimates"]["messages"]
    assert "AlarmRaised" in found["components"]["schemas"]
    assert reader_of(deployment).metrics == deployment.metrics
