"""Comparisons from the log to the estimates topic, the command line, HTTP and Prometheus."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator.web.asyncapi import document
from estimators import LocalMetric
from producers.wire.batch import heartbeat
from producers.wire.reports_pb2 import Attribute
from tests.support.events import Found, on_topic, publishing, settings_of
from tests.support.reports.counted import HOUR, Client
from tests.support.reports.messages import EPOCH, batch
from tests.support.running.deployment import Deployment, wait_until

METRICS = """
[attributes]
variant = ["new", "old"]

[metrics.clicks]
kind = "mean"
mechanism = "randomized_response"
range = [0, 1]
levels = [2, 4]
pane = "1h"
minimum_reports = 30
by = ["variant"]

[metrics.unseen]
kind = "mean"
mechanism = "randomized_response"
range = [0, 1]
levels = [2]
by = ["variant"]

[comparisons.checkout]
metric = "clicks"
where = { variant = "new" }
against = { variant = "old" }
start = 2013-01-01T01:00:00Z
split = "1:1"

[comparisons.share]
metric = "clicks"
of = "ratio"
where = { variant = "new" }
against = "rest"
start = 2013-01-01T00:00:00Z

[comparisons.unknown]
metric = "unseen"
where = { variant = "new" }
against = "rest"
start = 2013-01-01T00:00:00Z
"""
HOURS = 8


@pytest.fixture
def metrics_file(tmp_path: Path) -> Path:
    file = tmp_path / "metrics.toml"
    file.write_text(METRICS)
    return file


def produce(deployment: Deployment, hours: range) -> None:
    """Report for some hours, and close them; the new variant is clicked more often."""
    clicks, draws = LocalMetric.require(deployment.metrics["clicks"]), np.random.default_rng(1)
    sent = []
    for hour in hours:
        for number, variant in enumerate(("new", "old")):
            for level, epsilon in enumerate((2.0, 4.0)):
                values = draws.binomial(1, 0.7 - 0.4 * number, 60).tolist()
                seed = 1 + 4 * hour + 2 * number + level
                one = batch(clicks, values, epsilon, EPOCH + hour * HOUR, seed)
                one.attributes.append(Attribute(name="variant", value=variant))
                sent.append((hour % deployment.partitions, one.SerializeToString()))
    end = EPOCH + hours.stop * HOUR + clicks.lateness_ms
    sent += [(n, heartbeat(clicks, end)) for n in range(deployment.partitions) for _ in range(8)]
    deployment.produce(sent)
    with deployment.worker():
        deployment.wait_until_counted()


def ask(deployment: Deployment, path: str) -> Any:
    client = Client(deployment.store, deployment.metrics, settings_of(deployment))
    return client.json(path)


def until(deployment: Deployment, name: str) -> str | None:
    found: str | None = ask(deployment, f"/v1/comparisons/{name}")["until"]
    return found


def decisions(deployment: Deployment) -> list[Found]:
    wanted = b"dither.comparison.decided"
    return [one for one in on_topic(deployment) if one.headers["ce_type"] == wanted]


def looked(deployment: Deployment, moment: str) -> None:
    for name in ("checkout", "share"):
        wait_until(lambda name=name: until(deployment, name) == moment, f"{name} looked")  # type: ignore[misc]


def test_a_decision_is_published_once_whoever_publishes(deployment: Deployment) -> None:
    assert "no publisher" in ask(deployment, "/v1/comparisons/checkout")["reason"]
    produce(deployment, range(HOURS))
    with publishing(deployment), publishing(deployment):
        looked(deployment, "2013-01-01T08:00:00Z")
    first = {one.headers["ce_subject"]: one for one in decisions(deployment)}
    assert sorted(first) == [b"checkout", b"share"]
    assert len(decisions(deployment)) == 2
    event = first[b"checkout"]
    told = event.answer
    assert told["at"] == event.headers["ce_time"].decode() > "2013-01-01T01:00:00Z"
    assert told["lower"] > 0
    assert told["p_value"] <= 0.05
    assert told["covers"] == "all times from 2013-01-01T01:00:00Z"
    assert told["a"]["where"] == {"variant": "new"}
    assert event.id == event.key
    assert event.id.startswith("checkout@")
    assert first[b"share"].answer["lower"] > 1

    # One that has lost all of Redis's copy finds the same, and publishes nothing again.
    client: Any = deployment.store.client
    for key in client.scan_iter(match="*publisher*"):
        client.delete(key)
    assert until(deployment, "checkout") is None
    produce(deployment, range(HOURS, HOURS + 2))
    with publishing(deployment):
        looked(deployment, "2013-01-01T10:00:00Z")
    assert [one.value for one in decisions(deployment)] == [one.value for one in first.values()]
    shown = ask(deployment, "/v1/comparisons/checkout")
    assert shown["decisions"] == [told]
    assert (shown["decided"], shown["decided_at"]) == (True, told["at"])
    assert shown["history"][-1]["at"] == "2013-01-01T10:00:00Z"
    assert shown["history"][-1]["value"] == shown["value"]

    listed = deployment.dither("comparisons")
    assert listed.returncode == 0, listed.stderr
    assert f"decided since {told['at']}" in listed.stdout
    assert "p-values: may be looked at at any time" in listed.stdout
    printed = json.loads(deployment.dither("comparisons", "checkout", "--json").stdout)
    assert printed == shown
    for words, path in (
        (("checkout",), "/v1/comparisons/checkout"),
        ((), "/v1/comparisons"),
    ):
        client = Client(deployment.store, deployment.metrics, settings_of(deployment))
        found = client.get(f"{path}?format=csv")
        assert found.text == deployment.dither("comparisons", *words, "--csv").stdout
        assert found.text.splitlines()[1].startswith("checkout,difference,")
    wrong = deployment.dither("comparisons", "chekout")
    assert wrong.returncode == 1
    assert "did you mean 'checkout'?" in wrong.stderr


def test_prometheus_has_comparisons_and_nothing_of_what_is_unknown(deployment: Deployment) -> None:
    produce(deployment, range(HOURS))
    with publishing(deployment):
        looked(deployment, "2013-01-01T08:00:00Z")
    client = Client(deployment.store, deployment.metrics, settings_of(deployment))
    lines = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in client.get("/metrics").text.splitlines()
        if line.startswith(("dither_difference", "dither_comparison"))
    }
    labels = '{category="",comparison="checkout"}'
    shown = ask(deployment, "/v1/comparisons/checkout")
    for name, field in (
        ("dither_difference", "value"),
        ("dither_difference_lower", "lower"),
        ("dither_difference_upper", "upper"),
        ("dither_difference_pvalue", "p_value"),
    ):
        assert lines[name + labels] == pytest.approx(shown[field])
    assert lines[f"dither_comparison_decided{labels}"] == 1
    assert f"dither_comparison_decided_timestamp_seconds{labels}" in lines
    reports = lines['dither_comparison_reports{arm="a",comparison="checkout"}']
    assert reports == shown["a"]["reports"] == 120 * (HOURS - 1)
    assert {line for line in lines if "unknown" in line} == {
        'dither_comparison_reports{arm="a",comparison="unknown"}',
        'dither_comparison_reports{arm="b",comparison="unknown"}',
    }


def test_the_document_of_the_topics_describes_the_decision(deployment: Deployment) -> None:
    found = document(settings_of(deployment))
    assert "comparisonDecided" in found["channels"]["estimates"]["messages"]
    assert "ComparisonDecided" in found["components"]["schemas"]
