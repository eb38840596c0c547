"""A collector gets a span of each commit, publish and round, and the estimates; no contents."""

import contextlib
import copy
import itertools
import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from aggregator.features.rounds.coordinator import Coordinator
from aggregator.monitoring.otlp import tracing as otlp_tracing
from aggregator.monitoring.otlp.tracing import Tracing
from aggregator.publishing.publisher import Publisher
from aggregator.tracing import MESSAGE_COUNT
from deploy.kafka.cluster import free_ports
from estimators import SearchMetric
from tests.services.integration.test_walk import export
from tests.support.events import on_topic, service, settings_of
from tests.support.paths import ROOT
from tests.support.reports.bad_batches import bad_batches
from tests.support.reports.messages import ARRIVAL, batch
from tests.support.reports.searching import METRICS, ROUNDS, devices, told
from tests.support.reports.traffic import COUNTRIES, traffic
from tests.support.running import http_client
from tests.support.running.deployment import PATIENCE, Deployment, in_a_thread, wait_until
from tests.support.running.go_programs import go_programs
from tests.support.running.otlp import Receiver, attributes_of, in_prometheus, receiving
from tests.support.running.processes import answering

Spans = list[dict[str, Any]]


@contextlib.contextmanager
def traced(deployment: Deployment) -> Iterator[tuple[Tracing, Receiver]]:
    """Have a tracer, and what gets its spans; afterwards all of them were sent."""
    with receiving() as receiver:
        settings = copy.deepcopy(deployment.settings)
        settings.otlp.endpoint, settings.otlp.traces = receiver.url, True
        tracing = Tracing(settings, "host:1")
        try:
            yield tracing, receiver
        finally:
            with patch.object(otlp_tracing, "STOP_SECONDS", PATIENCE):
                tracing.stop()


def traces(receiver: Receiver) -> list[tuple[dict[str, Any], Spans]]:
    """Return each trace's root and its children, in the order of their begin."""
    found: defaultdict[str, Spans] = defaultdict(list)
    for span in sorted(receiver.spans(), key=lambda one: int(one["startTimeUnixNano"])):
        found[span["traceId"]].append(span)
    made = []
    for spans in found.values():
        (root,) = (span for span in spans if "parentSpanId" not in span)
        children = [span for span in spans if span is not root]
        assert all(child["parentSpanId"] == root["spanId"] for child in children)
        made.append((root, children))
    return made


def total(spans: Spans, attribute: str) -> int:
    return sum(int(attributes_of(span).get(attribute, 0)) for span in spans)


def test_each_commit_is_a_span_with_its_steps_and_no_contents(deployment: Deployment) -> None:
    """So is one that fails, with the class of the error; an idle worker has no span."""
    good = traffic(deployment, 40)
    kinds = bad_batches(
        *(deployment.metrics[name] for name in ("delay", "carrier", "age")),
        noise_bytes=100,
        now_ms=time.time_ns() // 1_000_000,
    )
    bad = [made for made, _ in kinds.values()]
    client: Any = deployment.store.client
    with traced(deployment) as (tracing, receiver):
        with deployment.worker(tracer=tracing) as worker:
            wait_until(lambda: len(worker.owned) == deployment.partitions, "it owns all")
            owned = [*worker.owned.values()]
            wait_until(lambda: any(one.measured.commits for one in owned), "it commits")
            for messages in (good, [(0, made) for made in bad]):
                deployment.produce(messages)
                deployment.wait_until_counted()
        counts = deployment.counts()
        with deployment.worker(tracer=tracing) as worker:
            wait_until(lambda: len(worker.owned) == deployment.partitions, "it owns all")
            client.config_set("maxmemory", "1")
            try:
                deployment.produce(traffic(deployment, 42, seed=1)[-6:])
                wait_until(lambda: worker._backoff.is_waiting, "Redis takes nothing")
            finally:
                client.config_set("maxmemory", "0")
            deployment.wait_until_counted()
    everything = traces(receiver)
    failed = [root for root, _ in everything if root.get("status")]
    commits = [trace for trace in everything if trace[0] not in failed]
    roots = [root for root, _ in commits]
    assert failed
    for root in failed:
        assert root["status"] == {"code": "STATUS_CODE_ERROR"}
        assert attributes_of(root)["error.type"] == "OutOfMemoryError"
    assert {root["name"] for root in roots} == {"commit"}
    topics = {attributes_of(root)["messaging.destination.name"] for root in roots}
    assert topics == {deployment.topic}
    assert total([root for root, _ in everything], MESSAGE_COUNT) >= len(good) + len(bad) + 6
    assert total(roots, "dither.refused_messages") == len(bad)
    accepted = sum(count for key, count in counts.items() if key.startswith("accepted"))
    assert total(roots, "dither.reports") >= accepted
    partitions = set()
    for root, children in commits:
        assert {child["name"] for child in children} == {"fetch", "count", "check", "store"}
        stored = [child for child in children if child["name"] == "store"]
        fetched = [child for child in children if child["name"] == "fetch"]
        assert total(fetched, MESSAGE_COUNT) == total([root], MESSAGE_COUNT)
        for attribute in ("dither.reports", "dither.bytes_written"):
            assert total(stored, attribute) == total([root], attribute)
        partitions |= {attributes_of(one)["messaging.destination.partition.id"] for one in stored}
        in_turn = [one for one in children if one["name"] != "store"]
        for before, after in itertools.pairwise(in_turn):
            assert int(before["endTimeUnixNano"]) <= int(after["startTimeUnixNano"])
        for child in children:
            assert int(root["startTimeUnixNano"]) <= int(child["startTimeUnixNano"])
            assert int(child["endTimeUnixNano"]) <= int(root["endTimeUnixNano"])
    assert partitions == {str(number) for number in range(deployment.partitions)}
    text = json.dumps(receiver.received["/v1/traces"])
    for secret in (*COUNTRIES, "delay", "carrier", "age", "maxmemory"):
        assert f'"{secret}"' not in text
    events = {event["name"] for span in receiver.spans() for event in span.get("events", [])}
    assert "dead letters sent" in events


@pytest.mark.more
@pytest.mark.usefixtures("apache_kafka")
def test_rounds_and_publishes_are_spans(defined: Callable[..., Deployment]) -> None:
    deployment = defined(METRICS)
    metric = SearchMetric.require(deployment.metrics["longest"])
    delays = batch(deployment.metrics["delay"], [1.0] * 50, 1, ARRIVAL).SerializeToString()
    with traced(deployment) as (tracing, receiver):
        reader = deployment.reader()
        coordinator = Coordinator(deployment.settings, reader, tracer=tracing)
        publisher = Publisher(settings_of(deployment), reader, tracing)
        with deployment.worker(), devices(deployment, metric):
            deployment.produce([(0, delays)])
            with (
                in_a_thread(coordinator.run, coordinator.stop),
                in_a_thread(publisher.run, publisher.stop),
            ):
                wait_until(lambda: reader.estimate("longest").status == "final", "it is found")
                wait_until(lambda: len(on_topic(deployment)) > 0, "a total is published")
        opened = {number: one.pop().opened_ms for number, one in told(deployment).items()}
    by_name: defaultdict[str, Spans] = defaultdict(list)
    for span in receiver.spans():
        by_name[span["name"]].append(span)
    assert set(by_name) == {"round", "publish"}
    assert total(by_name["publish"], MESSAGE_COUNT) == len(on_topic(deployment))
    rounds = by_name["round"]
    assert len(rounds) == ROUNDS
    for span in rounds:
        about = attributes_of(span)
        assert set(about) == {"dither.metric", "dither.round", "dither.answers"}
        assert int(about["dither.answers"]) >= 200
        assert int(span["startTimeUnixNano"]) == opened[int(about["dither.round"]) - 1] * 1_000_000
        assert [event["name"] for event in span["events"]] == ["closed", "stored", "published"]


SOURCE = ROOT / "tests" / "support" / "collector"
BUILD_SECONDS = 560
CONFIG = """\
receivers:
  otlp:
    protocols:
      http:
        endpoint: {address}
exporters:
  otlp_http:
    endpoint: {target}
    encoding: json
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    metrics: {{receivers: [otlp], exporters: [otlp_http]}}
    traces: {{receivers: [otlp], exporters: [otlp_http]}}
"""


def built() -> Path:
    """Return the Collector's program; the test is skipped where it cannot be built."""
    (program,) = go_programs(SOURCE, ["otelcol"], "the OpenTelemetry Collector")
    return program


@contextlib.contextmanager
def collecting(program: Path, folder: Path, target: str) -> Iterator[str]:
    """Run a Collector that passes everything on to `target`; yield its address for OTLP."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    config = folder / "collector.yaml"
    config.write_text(CONFIG.format(address=address, target=target))
    command = [str(program), "--config", f"file:{config}"]
    asked = f"http://{address}/v1/metrics"
    with answering(command, folder / "collector.log", lambda: http_client.status(asked) == 405):
        yield f"http://{address}"


EXPORTS = 400
PAGES = """
[metrics]
page = {kind = "frequency", mechanism = "grr", categories = ["home", "help"], levels = [4], \
pane = "1h"}
"""


@pytest.mark.slow
@pytest.mark.timeout(BUILD_SECONDS + 120)
def test_a_collector_gets_estimates(defined: Callable[..., Deployment], tmp_path: Path) -> None:
    program, deployment = built(), defined(PAGES)
    with (
        receiving() as receiver,
        collecting(program, tmp_path, receiver.url) as collector,
        service(
            deployment,
            f"--set=otlp.endpoint={collector}",
            "--set=otlp.traces=true",
            settings=["otlp.interval=300ms"],
        ) as url,
    ):
        export(url, tmp_path / "queue", EXPORTS)
        deployment.wait_until_counted()
        reports = "dither_reports_total", frozenset({("metric", "page"), ("outcome", "accepted")})
        wait_until(
            lambda: (
                bool(receiver.received["/v1/metrics"])
                and in_prometheus(receiver.metrics()).get(reports) == EXPORTS
            ),
            "the Collector has passed on everything that was counted",
        )
        estimate = deployment.reader().estimate("page")
    found = in_prometheus(receiver.metrics())
    for place, category in enumerate(estimate.labels):
        labels = frozenset({("metric", "page"), ("category", category)})
        for name, numbers in (
            ("dither_estimate", estimate.shown),
            ("dither_estimate_lower", estimate.lower),
            ("dither_estimate_upper", estimate.upper),
        ):
            assert found[name, labels] == pytest.approx(np.atleast_1d(numbers)[place])
    (resource,) = receiver.received["/v1/metrics"][-1]["resourceMetrics"]
    assert attributes_of(resource["resource"])["service.name"] == "dither"
    wanted = {"GET /healthz", "GET /v1/metrics/{name}", "commit", "fetch", "count", "store"}
    assert wanted <= {span["name"] for span in receiver.spans()}
    assert not [span for span in receiver.spans() if "reports" in span["name"]]
