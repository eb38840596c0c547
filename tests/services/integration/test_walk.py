"""Every kind of metric from devices through Kafka and Redis, by every way in and out.

One worker and one server run as processes. Bounds are asked for at beta = 10^-6 where the truth has
to be within them, so a false alarm has at most that probability for each metric.
"""

import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from aggregator.config.settings import Settings
from aggregator.reading.window import WindowStatistic
from aggregator.web.http.traffic import Traffic
from aggregator.web.relay_application import relay_application
from estimators import LocalMetric, SearchMetric
from producers import DitherMetricExporter, EachExport, HttpReporter, Ledger, Reporter, RollUp
from producers.gateway import Gateway
from producers.relay import forwarding, intake
from producers.relay.crowd_folder import CrowdFolder
from producers.relay.forwarding import Forwarder, ServiceClient
from producers.relay.intake import CrowdRelay
from tests.support.events import Found, coordinating, on_topic, service
from tests.support.reports.crowds import KEY, key_file, public
from tests.support.reports.messages import EPOCH, batch
from tests.support.reports.searching import DEVICES, FOUND, devices
from tests.support.running import http_client
from tests.support.running.deployment import Deployment, as_json, wait_until
from tests.support.running.gateway_server import serving
from tests.support.running.served_application import served_application

METRICS = """
[attributes]
country = ["DE", "FR"]
[metrics]
place = {kind = "vector_mean", dimension = 2, radius = 5, levels = [4], pane = "1h"}
carrier = {kind = "frequency", categories = ["AA", "B6", "DL"], levels = [4], pane = "1h"}
page = {kind = "frequency", categories = ["home", "help"], levels = [4], pane = "1h"}
wage = {kind = "mean", trust = "central", range = [0, 100], levels = [0.5, 4], pane = "1h"}
delay = {kind = "mean", mechanism = "randomized_response", range = [-60, 180], levels = [1, 4], \
pane = "1h", by = ["country"]}
code = {kind = "frequency", categories = "open", discover = true, preset = "upper", levels = [4], \
pane = "1h", options = {last = 24, rows = 64}}
latency = {kind = "distribution", range = [1, 1000], bins = 64, scale = "log", quantiles = [0.5, \
0.9], unit = "ms", levels = [1, 4], pane = "1h"}
longest = {kind = "maximum", range = [0, 64], levels = [2, 8], rounds = 4, round_reports = 200, \
beta = 1e-6}
active = {kind = "mean", mechanism = "randomized_response", range = [0, 1], levels = [64], \
pane = "1h", lateness = "3h", minimum_reports = 1}
"""
SECONDS = EPOCH / 1000
LATENCIES = np.random.default_rng(1).lognormal(4, 1, 3_000)
CODES = ["JFK"] * 1_800 + ["LGA"] * 1_200
TRUTHS: dict[str, list[float]] = {
    "delay": [30.0],
    "place": [3.0, -4.0],
    "carrier": [0.75, 0.25, 0.0],
    "page": [0.25, 0.75],
    "latency": np.quantile(LATENCIES, [0.5, 0.9]).tolist(),
    "longest": [45.0],
    "active": [1.0],
}
REPORTS = {
    "delay": 1_000,
    "place": 300,
    "carrier": 400,
    "page": 200,
    "code": 3_000,
    "latency": 3_000,
    "longest": DEVICES,
    "wage": 200,
    "active": 1,
}
FINAL = {"delay", "code", "latency", "wage", "place"}
"""Metrics with reports of 2013, which heartbeats make final; others may be final by the clock."""


class Walk(NamedTuple):
    deployment: Deployment
    url: str
    produced: Any
    """What `dither produce` told of the vectors of its file."""


@pytest.fixture(scope="module")
def walk(lasting: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    deployment, folder = lasting(METRICS), tmp_path_factory.mktemp("walk")
    with service(deployment) as url, coordinating(deployment):
        produced = send(deployment, url, folder)
        deployment.wait_until_counted()
        wait_until(lambda: finals(deployment).keys() == FINAL, "all panes of 2013 are published")
        reader = deployment.reader()
        wait_until(lambda: reader.estimate("longest").status == "final", "the search is over")
        yield Walk(deployment, url, produced)


def send(deployment: Deployment, url: str, folder: Path) -> Any:
    """Report by every way in; return what `dither produce` told."""
    metrics, config = deployment.metrics, deployment.properties

    def reporter(name: str, **options: Any) -> Reporter:
        metric, topic = LocalMetric.require(metrics[name]), deployment.topic
        return Reporter(metric, config, topic=topic, **options)

    with devices(deployment, SearchMetric.require(metrics["longest"])):
        with reporter("delay") as delays:
            for country, value in (("DE", 60.0), ("FR", 0.0)):
                said = {"country": country}
                epsilons = np.tile([1.0, 4.0], 250)
                delays.report(np.full(500, value), epsilons, SECONDS, attributes=said)
        with reporter("latency") as latencies:
            latencies.report(LATENCIES, np.tile([1.0, 4.0], 1_500), SECONDS)
        with HttpReporter("carrier", url, queue=folder / "carrier") as carriers:
            carriers.report(["AA"] * 300 + ["B6"] * 100, 4)
        roll_up(url, folder / "active")
        export(url, folder / "page", REPORTS["page"])
        wages = [batch(metrics["wage"], [20] * 100, e, EPOCH, int(2 * e)) for e in (0.5, 4)]
        codes = batch(
            metrics["code"], CODES, 4
        )  # seeded: else one run in 20 may find a string more
        sent = [one.SerializeToString() for one in (*wages, codes)]
        deployment.produce([*((0, one) for one in sent), (1, b"\xffbad")])
        table = folder / "places.csv"
        rows = ["when,east,north", *["2013-01-01,3,-4"] * 300, *["2013-01-01,1,NA"] * 7]
        table.write_text("\n".join(rows))
        columns = ("--column", "east", "--column", "north", "--time-column", "when", "--json")
        return as_json(deployment.dither("produce", "place", "--csv", str(table), *columns))


def roll_up(url: str, queue: Path) -> None:
    """Be a device that was used in an hour that is over, and tells once that it was."""
    hour = time.time() // 3600 * 3600 - 3 * 3600
    now = [hour + 60]
    with HttpReporter("active", url, queue=queue, clock=lambda: now[0]) as reporter:
        used = RollUp(reporter, "active", "1h", 64, clock=lambda: now[0])
        for _ in range(3):
            used.add()
        now[0] = hour + 3600 + 2700  # a quarter of the lateness after its end
        used.report_ended()
        used.report_ended()


def export(url: str, queue: Path, exports: int) -> None:
    """Be an application with the OpenTelemetry SDK that exports so often, one page each time."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    mapped = EachExport(HttpReporter("page", url, queue=queue), 4, None, category="page")
    exporter = DitherMetricExporter({"app.views": mapped})
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=math.inf)
    provider = MeterProvider([reader], shutdown_on_exit=False)
    views = provider.get_meter("app").create_counter("app.views")
    for number in range(exports):
        views.add(1, {"page": "help" if number % 4 else "home"})
        reader.collect()
    provider.shutdown()


def finals(deployment: Deployment) -> dict[str, list[Found]]:
    found: dict[str, list[Found]] = {}
    for event in on_topic(deployment):
        if event.is_final and (name := event.headers["ce_subject"].decode()) in FINAL:
            found.setdefault(name, []).append(event)
    return found


def told(deployment: Deployment, name: str, *options: str) -> Any:
    beta = () if name in ("wage", "longest") else ("--beta=1e-6",)
    return as_json(deployment.dither("estimate", name, *beta, *options, "--json"))


def test_every_report_is_counted_once_and_the_log_proves_it(walk: Walk) -> None:
    expected = {f"accepted:{name}": number for name, number in REPORTS.items()}
    assert walk.deployment.counts() == expected | {"malformed:": 1}
    assert (walk.produced["reports"], walk.produced["missing"]) == (300, 7)
    assert walk.produced["truth"] == {"0": 3.0, "1": -4.0}
    verified = walk.deployment.dither("verify", "--json")
    assert verified.returncode == 0, verified.stdout
    assert json.loads(verified.stdout)["differences"] == []


def test_the_command_line_has_the_truth_within_the_bounds_of_every_kind(walk: Walk) -> None:
    for name, truth in TRUTHS.items():
        found = told(walk.deployment, name)
        assert found["reports"] == REPORTS[name] or name == "longest"
        lower, upper = np.atleast_1d(found["lower"]), np.atleast_1d(found["upper"])
        assert (lower <= truth).all(), (name, found)
        assert (truth <= upper).all(), (name, found)
    assert told(walk.deployment, "longest")["search"]["bisection"] == list(FOUND)
    code = told(walk.deployment, "code", "--category", "JFK", "--category", "EWR")
    assert code["lower"][0] <= 0.6 <= code["upper"][0]
    assert code["lower"][1] == 0
    asked = ("latency", "--quantile", "0.95", "--below", "250", "--beta=1e-6")
    lines = [
        line.split() for line in walk.deployment.dither("estimate", *asked).stdout.splitlines()
    ]
    assert "0.95" in [line[0] for line in lines if line]
    below = next(line for line in lines if line[:2] == ["250", "ms"])
    assert float(below[3]) <= (LATENCIES < 250).mean() <= float(below[4])


def test_slices_hold_what_devices_said_of_themselves(walk: Walk) -> None:
    found = told(walk.deployment, "delay", "--by", "country")
    values = {one["slice"]["country"]: one for one in found["slices"] if one["reports"]}
    assert values.keys() == {"DE", "FR"}
    for country, truth in (("DE", 60), ("FR", 0)):
        assert values[country]["lower"] <= truth <= values[country]["upper"]
        assert values[country]["reports"] == 500
    french = told(walk.deployment, "delay", "--where", "country=FR")
    assert (french["reports"], french["value"]) == (500, values["FR"]["value"])


def test_http_answers_what_the_command_line_does(walk: Walk) -> None:
    for name, query in (
        *((name, "") for name in REPORTS),
        ("delay", "&window=1h&weights=uniform"),
        ("carrier", "&category=B6&category=AA&pointwise=true"),
    ):
        options = [f"--{one.removesuffix('=true')}" for one in query.split("&")[1:]]
        beta = "?" if name in ("wage", "longest") else "?beta=1e-6"
        answer = http_client.get(f"{walk.url}/v1/metrics/{name}/estimate{beta}{query}").json()
        assert answer == told(walk.deployment, name, *options), (name, query)
    streamed = b""
    with http_client.stream("GET", f"{walk.url}/v1/events") as stream:
        for chunk in stream.iter_bytes():
            streamed += chunk
            if b"event: estimate" in streamed and b"event: status" in streamed:
                break
    assert b'"metric":"delay"' in streamed.replace(b" ", b"")


def test_each_closed_pane_is_one_final_event_with_the_readers_answer(walk: Walk) -> None:
    hour = ("--from", "2013-01-01", "--to", "2013-01-01T01:00", "--json")
    for name, events in finals(walk.deployment).items():
        assert len({event.id for event in events}) == len(events) == 1, name
        answer = events[0].answer
        assert (answer["status"], answer["reports"]) == ("final", REPORTS[name])
        shown = as_json(walk.deployment.dither("estimate", name, *hour))
        for key in ("value", "lower", "upper"):  # an event has the largest first
            ordered = [np.sort(np.atleast_1d(one[key])).tolist() for one in (answer, shown)]
            assert ordered[0] == ordered[1], (name, key)
    (wage,) = finals(walk.deployment)["wage"]
    assert (wage.answer["trust"], wage.answer["from"]) == ("central", "2013-01-01T00:00:00Z")
    assert all(0 < level["loss"] <= level["epsilon"] for level in wage.answer["levels"])
    (code,) = finals(walk.deployment)["code"]
    discovered = as_json(walk.deployment.dither("discover", "code", "--json"))
    for strings in (code.answer["discovery"]["strings"], discovered["strings"]):
        assert [row["string"] for row in strings] == ["JFK", "LGA"]
        assert strings[0]["lower"] < 0.6 < strings[0]["upper"]


def test_prometheus_has_the_estimates_and_what_became_of_messages(walk: Walk) -> None:
    lines = dict(
        line.rsplit(" ", 1)
        for line in http_client.get(f"{walk.url}/metrics").text.splitlines()
        if not line.startswith("#")
    )
    for name, number in REPORTS.items():
        labels = f'{{metric="{name}",outcome="accepted"}}'
        assert float(lines[f"dither_reports_total{labels}"]) == number
    found = told(walk.deployment, "delay")
    assert float(lines['dither_estimate{category="",metric="delay"}']) == found["value"]
    assert float(lines['dither_deadletters_total{reason="malformed"}']) == 1
    assert float(lines['dither_release_timestamp_seconds{metric="wage"}']) == SECONDS + 3600


def test_what_was_refused_is_in_the_dead_letters_and_is_explained(walk: Walk) -> None:
    (letter,) = as_json(walk.deployment.dither("deadletters", "list", "--json"))["letters"]
    assert (letter["reason"], letter["from"].partition(":")[0]) == ("malformed", "1")
    assert "malformed" in walk.deployment.dither("deadletters", "explain", letter["place"]).stdout


HIDDEN = """
[metrics]
hidden = {kind = "mean", mechanism = "randomized_response", range = [0, 1], levels = [3], \
pane = "1d", lateness = "2d", crowd = {minimum = 100, wait = "12h"}}
"""
PEOPLE = 110
post = ServiceClient.post


def test_reports_of_people_arrive_by_a_relay(
    defined: Callable[[str], Deployment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part is posted twice. Mutants: a random batch id; one without the batch's index."""
    monkeypatch.setattr(intake, "TICK_SECONDS", 0.02)
    monkeypatch.setattr(forwarding, "TURN_SECONDS", 0.02)
    monkeypatch.setattr("producers.gateway.crowds.MAX_BATCH_BYTES", 2 * 60)
    monkeypatch.setattr(
        ServiceClient, "post", lambda self, body: post(self, body) and post(self, body)
    )
    deployment, now_ms, key = defined(HIDDEN), [EPOCH], public(KEY)
    config = deployment.properties
    keys, folder = str(key_file(tmp_path)), CrowdFolder(tmp_path / "relay")
    gateway = Gateway(deployment.metrics, config, deployment.topic, crowd_keys=keys)
    with serving(gateway) as url:
        wait_until(lambda: not gateway._sender.obstacle, "Kafka answers")
        (token_file := tmp_path / "token").write_text("dither_relay")
        forwarder = Forwarder(ServiceClient(url.removesuffix("/v1/reports"), token_file), folder)
        relay = CrowdRelay(deployment.metrics, key, forwarder, clock=lambda: now_ms[0] / 1000)
        with served_application(relay_application(relay, Settings(), Traffic())) as port:
            address = f"http://127.0.0.1:{port}"
            with HttpReporter("hidden", url, relay=address, key=key.hex()) as reporter:
                for person in range(PEOPLE):
                    ledger = Ledger(tmp_path / f"{person}.ledger", budget=3, period="20h")
                    reporter.report(1.0, epsilon=3, ledger=ledger, time=EPOCH / 1000)
                reporter.flush()
            assert folder.reports["hidden", "taken"] == PEOPLE
            assert deployment.counts() == {}
            now_ms[0] += 2 * deployment.metrics["hidden"].pane_ms
            wait_until(lambda: folder.reports["hidden", "delivered"] > 0, "the crowd has closed")
    deployment.count()
    assert deployment.counts() == {"accepted:hidden": PEOPLE, "duplicate:hidden": PEOPLE}
    content = deployment.reader().window("hidden").content
    assert isinstance(content, WindowStatistic)
    assert content.statistic[0] == PEOPLE
    assert content.statistic[1] > 80  # 105 are expected, 2.2 is a standard deviation
    assert deployment.verify().verified
