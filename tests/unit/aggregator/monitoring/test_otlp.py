"""What a collector gets by OTLP: what Prometheus would scrape, once each, and honest failures."""

import asyncio
import base64
import math
from collections.abc import Iterable, Iterator

import httpx
import pytest
import structlog
from prometheus_client import Metric as Family
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from redis import ConnectionError as RedisAway

from aggregator.config.settings import Otlp, Settings, load_settings
from aggregator.errors import SettingsError
from aggregator.features.reader import Reader
from aggregator.kafka.log_ends import LogEnds
from aggregator.monitoring import collector, metric_definitions
from aggregator.monitoring.families import Families
from aggregator.monitoring.otlp.sender import OtlpSender
from aggregator.monitoring.otlp.tracing import Tracing
from aggregator.monitoring.tracing_setup import configured_tracing, server_instance
from aggregator.storage.store import Store
from aggregator.web.application import application
from aggregator.web.operations import Service
from producers.gateway import Gateway
from tests.support.rows import row
from tests.support.running.broker import LATE, Broker
from tests.support.running.deployment import wait_until
from tests.support.running.otlp import Receiver, Series, attributes_of, in_prometheus, receiving
from tests.unit.aggregator.monitoring.test_collector import (
    HIGH,
    METRICS,
    count_heights,
    count_something,
    count_vectors,
)

CHANGING = "dither_collection_duration_seconds"
"""How long a collection took: another one takes another time."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def settings_for(url: str) -> Settings:
    return Settings(otlp=Otlp(endpoint=url, interval="100ms"))


def sender_of(families: Iterable[Family], url: str) -> OtlpSender:
    return OtlpSender(settings_for(url), "host:8080", lambda: families)


def scraped(service: Service) -> dict[Series, float]:
    """Return what Prometheus scrapes, without empty labels and what is not a number."""
    text = generate_latest(service.exported).decode()
    return {
        (sample.name, frozenset((k, v) for k, v in sample.labels.items() if v)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not math.isnan(sample.value)
    }


def test_a_collector_gets_every_sample_that_prometheus_scrapes_under_the_names_of_the_docs(
    store: Store, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector, "MAX_CLOCK_JITTER_MS", 60_000)  # of a busy machine's clocks
    count_something(store)
    count_heights(store)
    count_vectors(store)
    service = Service(
        Reader(store, METRICS), settings_for(receiver.url), lambda: LogEnds({0: (0, HIGH)}, "")
    )
    service.traffic.count_answer("/v1/metrics", "GET", 200, 0.3)
    sender = OtlpSender(
        service.settings, server_instance(settings_for("")), service.exported.collect
    )
    assert sender.send() == "delivered"
    expected, found = scraped(service), in_prometheus(receiver.metrics())
    assert len(expected) > 100
    assert {name for name, _ in expected} == {name for name, _ in found}
    for series in expected:
        if series[0] != CHANGING:
            assert found.pop(series) == pytest.approx(expected[series], rel=1e-12), series
    assert {name for name, _ in found} == {CHANGING}
    named = {metric["name"]: metric for metric in receiver.metrics()}
    assert {"dither.estimate.lower", "dither.estimate", "dither.estimate.upper"} <= named.keys()
    points = named["dither.estimate"]["gauge"]["dataPoints"]
    assert {"metric": "carrier", "category": "AA"} in [attributes_of(point) for point in points]
    (resource,) = receiver.received["/v1/metrics"][0]["resourceMetrics"]
    about = attributes_of(resource["resource"])
    assert about["service.name"] == "dither"
    assert about["service.instance.id"].endswith(":8080")


def test_a_counters_start_is_its_first_export_or_where_it_decreased(receiver: Receiver) -> None:
    family = Family("dither_reports", "", "counter")
    sender = sender_of([family], receiver.url)
    for value in (5, 7, 7, 2, 3):
        family.samples.clear()
        family.add_sample("dither_reports_total", {"metric": "late"}, value)
        sender.send()
    points = [receiver.metrics(place)[0]["sum"]["dataPoints"][0] for place in range(5)]
    times = [point["timeUnixNano"] for point in points]
    assert [point["asInt"] for point in points] == ["5", "7", "7", "2", "3"]
    assert [point["startTimeUnixNano"] for point in points] == [*[times[0]] * 3, *[times[3]] * 2]
    told = receiver.metrics()[0]["sum"]
    assert told["aggregationTemporality"] == "AGGREGATION_TEMPORALITY_CUMULATIVE"
    assert told["isMonotonic"] is True


def test_what_is_unknown_is_left_out(receiver: Receiver) -> None:
    families = Families()
    families.put(metric_definitions.CONSUMER_LAG, math.nan, 0)
    families.put(metric_definitions.CONSUMER_LAG, 7, 1)
    families.put(metric_definitions.BOUNDED_ESTIMATE.lower, -math.inf, "late", "")
    sender_of(families.filled(), receiver.url).send()
    found = in_prometheus(receiver.metrics())
    assert found == {
        ("dither_consumer_lag", frozenset({("partition", "1")})): 7,
        ("dither_estimate_lower", frozenset({("metric", "late")})): -math.inf,
    }


def test_a_collector_that_takes_nothing_is_counted_and_logged_once(receiver: Receiver) -> None:
    sender = sender_of([], receiver.url)
    receiver.status = 403
    with structlog.testing.capture_logs() as logged:
        sender.start()
        wait_until(lambda: results(sender)["refused"] > 2, "it was refused several times")
        receiver.status = 200
        wait_until(lambda: results(sender)["delivered"] > 0, "it was delivered")
        sender.stop()
    assert results(sender)["unreadable"] == 0
    (line,) = logged
    assert line["event"] == "the collector did not take it"
    assert "403" in line["error"]


def results(sender: OtlpSender) -> dict[str, float]:
    (family,) = sender.collect()
    return {sample.labels["result"]: sample.value for sample in family.samples}


def test_nothing_is_sent_while_redis_is_away(receiver: Receiver) -> None:
    def collect() -> Iterable[Family]:
        raise RedisAway("refused")

    sender = OtlpSender(settings_for(receiver.url), "host:8080", collect)
    with structlog.testing.capture_logs() as logged:
        assert [sender.send(), sender.send()] == ["unreadable"] * 2
    assert receiver.received["/v1/metrics"] == []
    assert results(sender) == {"delivered": 0, "refused": 0, "unreadable": 2}
    assert [line["event"] for line in logged] == ["metrics are not sent: they cannot be read"]


def test_an_endpoint_that_is_none_is_refused_and_not_shown() -> None:
    none = "localhost:4318 http://user:secret@collector http://collector/v1/metrics http://c?k=s"
    for wrong in none.split():
        with row(wrong):
            with pytest.raises(SettingsError, match="expected a collector's address") as refused:
                load_settings(environ={"DITHER_OTLP_ENDPOINT": wrong})
            assert "secret" not in str(refused.value)
    for right in ("http://localhost:4318", "https://collector.example/otlp"):
        assert load_settings(environ={"DITHER_OTLP_ENDPOINT": right}).otlp.endpoint == right


def test_a_request_is_a_span_without_its_values(store: Store, receiver: Receiver) -> None:
    client, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    headers = {"traceparent": f"00-{client}-{parent}-01"}
    settings = settings_for(receiver.url)
    settings.otlp.traces, settings.serve.hosts = True, ["*"]
    broker = Broker()
    gateway = Gateway({"late": LATE}, broker.config, broker.topic())
    tracing = configured_tracing(settings, "server")
    app = application(Reader(store, {"late": LATE}), settings, gateway=gateway, tracing=tracing)

    async def ask() -> list[int]:
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as http,
        ):
            return [
                (await http.get("/v1/metrics/late?secret=1", headers=headers)).status_code,
                (await http.get("/v1/metrics/secret")).status_code,
                (await http.get("/secret")).status_code,
                (await http.request("SECRET", "/healthz")).status_code,
                (await http.post("/v1/reports", content=b"", headers=headers)).status_code,
            ]

    *answers, posted = asyncio.run(ask())
    assert posted >= 400
    spans = receiver.spans()
    assert "secret" not in str(receiver.received).lower()
    asked = "GET /v1/metrics/{name}"
    assert [span["name"] for span in spans] == [asked, asked, "GET", "_OTHER /healthz"]
    assert [attributes_of(span)["http.response.status_code"] for span in spans] == [
        str(status) for status in answers
    ]
    assert len(set(answers)) == 3
    assert spans[0]["parentSpanId"] == base64.b64encode(bytes.fromhex(parent)).decode()
    assert {span["kind"] for span in spans} == {"SPAN_KIND_SERVER"}
    assert "parentSpanId" not in spans[1]


def test_a_span_is_an_error_if_the_server_failed_or_gave_no_answer(receiver: Receiver) -> None:
    tracing = Tracing(settings_for(receiver.url), "server")
    for status in (404, 499, 500, 503, None):
        tracing.end_request(tracing.begin_request("GET", {}), "GET", "/metrics", status)
    tracing.stop()
    failed = [span.get("status") == {"code": "STATUS_CODE_ERROR"} for span in receiver.spans()]
    assert failed == [False, False, True, True, True]
