"""A collector gets a span of each commit, publish and round, with numbers and without contents."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import signal
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aggregator.monitoring.otlp.tracing import Tracing
from aggregator.publishing.publisher import Publisher
from aggregator.rounds.coordinator import Coordinator
from aggregator.storage.connection import connect
from aggregator.tracing.commit_trace import MESSAGES, MOST_STEPS, REPORTS, CommitTrace
from estimators import SearchMetric
from tests.support.events import on_topic, reader_of, settings_of
from tests.support.reports.bad_batches import bad_batches
from tests.support.reports.messages import ARRIVAL, batch
from tests.support.reports.searching import METRICS, ROUNDS, devices, told
from tests.support.reports.traffic import COUNTRIES, traffic
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.otlp import Receiver, attributes_of, receiving
from tests.support.running.prometheus import free_port
from tests.support.running.servers import Kafka

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


def test_each_commit_is_a_span_with_fetch_count_and_store_and_no_contents(
    deployment: Deployment,
) -> None:
    delay, carrier, age = (deployment.metrics[name] for name in ("delay", "carrier", "age"))
    good = traffic(deployment, 40)
    now_ms = time.time_ns() // 1_000_000
    kinds = bad_batches(delay, carrier, age, noise_bytes=100, now_ms=now_ms)
    bad = [made for made, _ in kinds.values()]
    with traced(deployment) as (tracing, receiver):
        with deployment.worker(tracer=tracing):
            deployment.produce(good)
            deployment.wait_until_counted()
            deployment.produce([(0, made) for made in bad])
            deployment.wait_until_counted()
        counts = deployment.counts()
    commits = traces(receiver)
    assert len(commits) >= 2
    roots = [root for root, _ in commits]
    assert {root["name"] for root in roots} == {"commit"}
    assert {attributes_of(root)["messaging.destination.name"] for root in roots} == {
        deployment.topic
    }
    assert total(roots, MESSAGES) == len(good) + len(bad)
    assert total(roots, "dither.refused_messages") == len(bad)
    assert total(roots, "dither.bytes_written") > 0
    assert total(roots, "dither.reports") >= sum(
        count for key, count in counts.items() if key.startswith("accepted")
    )
    for root, children in commits:
        names = [child["name"] for child in children]
        assert set(names) == {"fetch", "count", "check", "store"}
        stored = [child for child in children if child["name"] == "store"]
        for attribute in ("dither.reports", "dither.bytes_written"):
            assert total(stored, attribute) == total([root], attribute)
        assert total([child for child in children if child["name"] == "fetch"], MESSAGES) == total(
            [root], MESSAGES
        )
        in_turn = [one for one in children if one["name"] != "store"]
        for before, after in itertools.pairwise(in_turn):
            assert int(before["endTimeUnixNano"]) <= int(after["startTimeUnixNano"])
        for child in children:
            assert int(root["startTimeUnixNano"]) <= int(child["startTimeUnixNano"])
            assert int(child["endTimeUnixNano"]) <= int(root["endTimeUnixNano"])
    partitions = {
        attributes_of(child)["messaging.destination.partition.id"]
        for _, children in commits
        for child in children
        if child["name"] == "store"
    }
    assert partitions == {str(number) for number in range(deployment.partitions)}
    text = json.dumps(receiver.received["/v1/traces"])
    for secret in (*COUNTRIES, "delay", "carrier", "age"):
        assert f'"{secret}"' not in text
    events = {event["name"] for span in receiver.spans() for event in span.get("events", [])}
    assert events == {"dead letters sent"}


def test_a_worker_without_messages_has_no_spans(deployment: Deployment) -> None:
    with traced(deployment) as (tracing, receiver), deployment.worker(tracer=tracing) as worker:
        wait_until(lambda: len(worker.owned) == deployment.partitions, "it owns all")
        committed = [owned.measured.commits for owned in worker.owned.values()]
        wait_until(
            lambda: [one.measured.commits for one in worker.owned.values()] != committed,
            "it commits",
        )
    assert receiver.spans() == []


def test_a_commit_that_fails_is_a_span_with_the_class_of_the_error(
    deployment: Deployment,
) -> None:
    client: Any = connect(deployment.redis_url)
    with (
        client,
        traced(deployment) as (tracing, receiver),
        deployment.worker(tracer=tracing) as worker,
    ):
        wait_until(lambda: len(worker.owned) == deployment.partitions, "it owns all")
        client.config_set("maxmemory", "1")
        try:
            deployment.produce(traffic(deployment, 2))
            wait_until(lambda: worker._backoff.is_waiting, "Redis takes nothing")
        finally:
            client.config_set("maxmemory", "0")
        deployment.wait_until_counted()
    failed = [root for root, _ in traces(receiver) if root.get("status")]
    assert failed
    for root in failed:
        assert root["status"] == {"code": "STATUS_CODE_ERROR"}
        assert attributes_of(root)["error.type"] == "OutOfMemoryError"
    assert "maxmemory" not in json.dumps(receiver.received["/v1/traces"])


def test_a_worker_process_sends_its_last_spans_before_it_ends(deployment: Deployment) -> None:
    with receiving() as receiver:
        flags = [f"otlp.endpoint={receiver.url}", "otlp.traces=true"]
        process = deployment.start_worker(*(word for one in flags for word in ("--set", one)))
        deployment.produce(traffic(deployment, 5))
        deployment.wait_until_counted()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert total([root for root, _ in traces(receiver)], MESSAGES) == 15
    (resource, *_) = receiver.received["/v1/traces"][0]["resourceSpans"]
    assert attributes_of(resource["resource"])["service.instance.id"].endswith(f":{process.pid}")


def test_a_worker_counts_and_ends_in_time_where_no_collector_is(deployment: Deployment) -> None:
    flags = [f"otlp.endpoint=http://127.0.0.1:{free_port()}", "otlp.traces=true"]
    process = deployment.start_worker(*(word for one in flags for word in ("--set", one)))
    deployment.produce(traffic(deployment, 5))
    deployment.wait_until_counted()
    process.send_signal(signal.SIGTERM)
    assert process.wait(25) == 0, "a supervisor would kill it after 30 s"
    assert deployment.verify().verified


def test_a_commit_of_many_polls_has_few_children_and_whole_sums(deployment: Deployment) -> None:
    with traced(deployment) as (tracing, receiver):
        trace = CommitTrace(tracing, "reports")
        for _ in range(MOST_STEPS):
            trace.fetched(trace.begin("fetch"), 3)
            with trace.step("count", has_work=True):
                pass
        with trace.committing(), trace.step("store", has_work=True, partition=0) as store:
            trace.add(store, {REPORTS: 7})
        with trace.committing():
            trace.begin("fetch")  # an idle interval
    ((root, children),) = traces(receiver)
    assert len(children) == MOST_STEPS
    assert (total([root], MESSAGES), total([root], REPORTS)) == (3 * MOST_STEPS, 7)


@pytest.mark.parametrize(("share", "expected"), [("0", 0), ("1", 3)])
def test_traces_are_sampled_as_wholes(
    share: str, expected: int, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", share)
    with traced(deployment) as (tracing, receiver):
        for _ in range(3):
            with tracing.span("commit") as commit, tracing.span("store", None, commit):
                pass
    assert len(traces(receiver)) == expected
    assert len(receiver.spans()) == 2 * expected


def test_rounds_and_publishes_are_spans(
    apache_kafka: Kafka, redis_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "metrics.toml"
    file.write_text(METRICS)
    deployment = Deployment(apache_kafka, redis_url, file)
    metric = SearchMetric.require(deployment.metrics["longest"])
    delays = batch(deployment.metrics["delay"], [1.0] * 50, 1, ARRIVAL).SerializeToString()
    with deployment.store, traced(deployment) as (tracing, receiver):
        reader = reader_of(deployment)
        coordinator = Coordinator(deployment.settings, reader, tracer=tracing)
        publisher = Publisher(settings_of(deployment), reader, tracing)
        with deployment.worker(), devices(deployment, metric):
            deployment.produce([(0, delays)])
            for leader in (coordinator, publisher):
                leader.start()
            wait_until(lambda: reader.estimate("longest").status == "final", "it is found")
            wait_until(lambda: len(on_topic(deployment)) > 0, "a total is published")
            for leader in (coordinator, publisher):
                leader.stop()
        opened = {number: one.pop().opened_ms for number, one in told(deployment).items()}
    by_name: defaultdict[str, Spans] = defaultdict(list)
    for span in receiver.spans():
        by_name[span["name"]].append(span)
    assert set(by_name) == {"round", "publish"}
    assert total(by_name["publish"], MESSAGES) == len(on_topic(deployment))
    rounds = by_name["round"]
    assert len(rounds) == ROUNDS
    for span in rounds:
        about = attributes_of(span)
        assert set(about) == {"dither.metric", "dither.round", "dither.answers"}
        assert int(about["dither.answers"]) >= 200
        assert int(span["startTimeUnixNano"]) == opened[int(about["dither.round"]) - 1] * 1_000_000
        assert [event["name"] for event in span["events"]] == ["closed", "stored", "published"]


def test_a_collector_that_never_answers_does_not_hold_up_a_process_that_ends(
    deployment: Deployment,
) -> None:
    settings = copy.deepcopy(deployment.settings)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings.otlp.endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        tracing = Tracing(settings, "host:1")
        tracing.begin("commit").end()
        tracing.stop()
        left = [thread.name for thread in threading.enumerate() if thread.daemon]
    assert "otlp spans" in left  # it still waits, alone
