"""Alarms and comparisons from the log to the topic of estimates, CLI, HTTP and Prometheus."""

import contextlib
import csv
import io
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from estimators import LocalMetric
from producers.wire.batch import heartbeat
from producers.wire.reports_pb2 import Attribute
from tests.support.events import Found, on_topic, publishing, settings_of
from tests.support.reports.counted import HOUR, Client
from tests.support.reports.messages import EPOCH, batch
from tests.support.rows import row
from tests.support.running.deployment import Deployment, wait_until

METRICS = """
[attributes]
country = ["DE", "FR"]
variant = ["new", "old"]
[metrics]
late = {kind = "mean", range = [0, 1], levels = [2, 4], pane = "1h", by = ["country"]}
clicks = {kind = "mean", range = [0, 1], levels = [4], pane = "1h", by = ["variant"]}
unseen = {kind = "mean", range = [0, 1], levels = [2], by = ["variant"]}
[alarms]
moved = {metric = "late", by = ["country"], every = "1h", baseline = "6h", \
start = 2013-01-01T20:00:00Z, false_alarms = "1/1000h"}
all = {metric = "late", every = "2h", baseline_value = 0.3, start = 2013-01-01T14:00:00Z, \
false_alarms = "1/1000h", direction = "down"}
[comparisons]
checkout = {metric = "clicks", where = { variant = "new" }, against = { variant = "old" }, \
start = 2013-01-01T15:00:00Z, split = "1:1"}
share = {metric = "clicks", of = "ratio", where = { variant = "new" }, against = "rest", \
start = 2013-01-01T14:00:00Z}
unknown = {metric = "unseen", where = { variant = "new" }, against = "rest", \
start = 2013-01-01T00:00:00Z}
"""
BEGUN, MOVED, PANES = 14, 22, 26
"""Hours: the first, the one in which FR moves, and one after the last."""
ALARM, DECISION = b"dither.alarm", b"dither.comparison.decided"


def produce(deployment: Deployment, hours: range) -> None:
    """Report for some hours, and close them; FR moves from 0.3 to 0.7, the new variant is ahead."""
    late, clicks = (LocalMetric.require(deployment.metrics[name]) for name in ("late", "clicks"))
    draws, sent = np.random.default_rng(hours[0]), []
    for hour in hours:
        moved = 0.7 if hour >= MOVED else 0.3
        answers = [
            (metric, "country", country, epsilon, draws.binomial(1, mean, 150))
            for metric, country, mean in ((late, "DE", 0.3), (late, "FR", moved))
            for epsilon in (2.0, 4.0)
        ]
        for variant, mean in (("new", 0.7), ("old", 0.3)):
            answers.append((clicks, "variant", variant, 4.0, draws.binomial(1, mean, 60)))
        for number, (metric, name, said, epsilon, values) in enumerate(answers):
            one = batch(
                metric, values.tolist(), epsilon, EPOCH + hour * HOUR, 1 + 6 * hour + number
            )
            one.attributes.append(Attribute(name=name, value=said))
            sent.append((hour % deployment.partitions, one.SerializeToString()))
    for metric in (late, clicks):
        beat = heartbeat(metric, EPOCH + hours.stop * HOUR + metric.lateness_ms)
        sent += [(n, beat) for n in range(deployment.partitions) for _ in range(8)]
    deployment.count(sent)


def events(deployment: Deployment, kind: bytes) -> list[Found]:
    return [one for one in on_topic(deployment) if one.headers["ce_type"] == kind]


def client_of(deployment: Deployment) -> Client:
    return Client(deployment.store, deployment.metrics, settings_of(deployment))


def until(client: Client, name: str) -> str | None:
    """Return up to when an alarm or comparison was looked at."""
    found: list[str | None] = [
        one["until"] for one in client.json("/v1/alarms")["alarms"] if one["alarm"] == name
    ]
    return found[0] if found else client.json(f"/v1/comparisons/{name}")["until"]


def publish_until(deployment: Deployment, moment: str, even: str, publishers: int = 1) -> None:
    """Publish until everything was looked at; the alarm `all` looks every other hour."""
    expected = {"moved": moment, "all": even, "checkout": moment, "share": moment}
    client = client_of(deployment)
    with contextlib.ExitStack() as stack:
        for _ in range(publishers):
            stack.enter_context(publishing(deployment))
        for name, looked in expected.items():
            with row(name, moment):
                wait_until(lambda n=name, m=looked: until(client, n) == m, "looked", pause=1.0)  # type: ignore[misc]


def test_a_finding_is_published_once_and_shown_alike(defined: Callable[..., Deployment]) -> None:
    deployment = defined(METRICS)
    client = client_of(deployment)
    before = client.json("/v1/alarms")
    assert {until(client, name) for name in ("moved", "all", "checkout", "share")} == {None}
    assert "no publisher" in before["alarms"][0]["reason"]
    assert before["promised_per_year"] == pytest.approx(2 * 8.76)

    produce(deployment, range(BEGUN, MOVED + 1))
    publish_until(deployment, "2013-01-01T23:00:00Z", "2013-01-01T22:00:00Z", publishers=2)
    (alarm,) = events(deployment, ALARM)
    told = alarm.answer
    assert (told["slice"], told["direction"]) == ({"country": "FR"}, "up")
    name, series, at = alarm.id.split("/")
    assert (name.partition("@")[0], series, at) == ("moved", "country=FR", "2013-01-01T23:00:00Z")
    decisions = events(deployment, DECISION)
    first = {one.headers["ce_subject"]: one for one in decisions}
    assert sorted(first) == [b"checkout", b"share"]
    assert len(decisions) == 2
    decided = first[b"checkout"].answer
    assert decided["at"] == first[b"checkout"].headers["ce_time"].decode() > "2013-01-01T15:00:00Z"
    assert (decided["lower"] > 0, decided["p_value"] <= 0.05) == (True, True)
    assert decided["covers"] == "all times from 2013-01-01T15:00:00Z"
    assert decided["a"]["where"] == {"variant": "new"}
    assert first[b"share"].answer["lower"] > 1
    assert first[b"checkout"].id == first[b"checkout"].key
    check_prometheus(deployment)

    # The next publishers go on, and those that have lost (part of) Redis's copy find the same.
    produce(deployment, range(MOVED + 1, PANES))
    publish_until(deployment, "2013-01-02T02:00:00Z", "2013-01-02T02:00:00Z")
    found = events(deployment, ALARM)
    assert found[0].value == alarm.value
    redis: Any = deployment.store.client
    for pattern in ("*publisher*", "*:alarm*"):
        redis.delete(*redis.scan_iter(match=pattern))
        assert until(client, "moved") is None
        publish_until(deployment, "2013-01-02T02:00:00Z", "2013-01-02T02:00:00Z")
        assert [one.id for one in events(deployment, ALARM)] == [one.id for one in found]
        assert events(deployment, DECISION) == decisions
    assert len({one.id for one in found}) == len(found)
    check_alarms(deployment, found)
    check_comparison(deployment, decided)


def check_alarms(deployment: Deployment, found: list[Found]) -> None:
    """See that HTTP, the command line, both tables and a replay have the same alarms."""
    client = client_of(deployment)
    shown = client.json("/v1/alarms")
    (moved,) = (one for one in shown["alarms"] if one["alarm"] == "moved")
    assert moved["raised"] == [one.answer for one in reversed(found)]
    states = {str(one["slice"]["country"]): one["state"] for one in moved["series"]}
    unwatchable = dict.fromkeys(("None", "{'other': True}"), "unwatchable")
    assert states == {"DE": "watching", "FR": "watching", **unwatchable}
    table = deployment.dither("alarms", "--csv").stdout
    assert client.get("/v1/alarms?format=csv").text == table
    rows = [row for row in csv.DictReader(io.StringIO(table)) if row["alarm"] == "moved"]
    last = {row["slice"]: row["last_alarm"] for row in rows}
    assert (last["country=FR"], last["country=DE"]) == (moved["raised"][0]["at"], "")
    assert last.keys() == {"country=DE", "country=FR", "country=none", "country=other"}
    replayed = deployment.dither("alarms", "replay", "moved").stdout.splitlines()
    again = [line.encode() for line in replayed if line.startswith("{")]
    assert again == [one.value for one in found]
    listed = deployment.dither("alarms").stdout
    assert "country=FR went up from 0." in listed
    assert "its baseline has 0 reports: expected " in listed
    assert "All alarms together: at most 17.5 false alarms a year expected" in listed
    assert json.loads(deployment.dither("alarms", "--json").stdout) == shown
    wrong = deployment.dither("alarms", "replay", "move")
    assert "no alarm 'move' in the definitions: did you mean 'moved'?" in wrong.stderr


def check_comparison(deployment: Deployment, decided: dict[str, Any]) -> None:
    """See that HTTP and the command line have the same comparisons."""
    client = client_of(deployment)
    shown = client.json("/v1/comparisons/checkout")
    assert shown["decisions"] == [decided]
    assert (shown["decided"], shown["decided_at"]) == (True, decided["at"])
    last = shown["history"][-1]
    assert (last["at"], last["value"]) == ("2013-01-02T02:00:00Z", shown["value"])
    listed = deployment.dither("comparisons").stdout
    assert f"decided at {decided['at']}: a above b, " in listed
    assert ": different now\n" in listed
    assert "p-values: may be looked at at any time" in listed
    assert json.loads(deployment.dither("comparisons", "checkout", "--json").stdout) == shown
    for words in (("checkout",), ()):
        table = client.get("/".join(["/v1/comparisons", *words]) + "?format=csv").text
        assert table == deployment.dither("comparisons", *words, "--csv").stdout
        assert table.splitlines()[1].startswith("checkout,difference,")
    assert "did you mean 'checkout'?" in deployment.dither("comparisons", "chekout").stderr


def check_prometheus(deployment: Deployment) -> None:
    """See how alarms and comparisons stand there, and that nothing is there that is unknown."""
    lines = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in client_of(deployment).get("/metrics").text.splitlines()
        if line.startswith(("dither_alarm", "dither_difference", "dither_comparison"))
    }
    assert lines['dither_alarms_total{alarm="moved"}'] == 1
    assert lines['dither_alarm_state{alarm="moved",state="watching"}'] == 1
    labels = '{alarm="moved",direction="up",series="country=FR"}'
    assert lines[f"dither_alarm_raised_timestamp_seconds{labels}"] == EPOCH / 1000 + 23 * 3600
    assert {line for line in lines if "unknown" in line} == {
        f'dither_comparison_reports{{arm="{arm}",comparison="unknown"}}' for arm in "ab"
    }
