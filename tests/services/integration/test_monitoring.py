"""A real Prometheus scrapes a real Dither of 50 metrics; each query of Grafana returns data."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest

from aggregator.reading.reader import Reader
from aggregator.rounds.coordinator import Coordinator
from deploy.grafana.build import FOLDER
from estimators import Metric, SearchMetric, TrustedMetric
from producers.wire.batch import encode_batch
from tests.support.reports.messages import batch
from tests.support.running import http_client, servers
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.prometheus import RATE_INTERVAL, Prometheus, free_port, resolved, running
from tests.support.running.prometheus import SCRAPE_SECONDS as INTERVAL_SECONDS

MEANS, FREQUENCIES, VECTORS, OPEN = 26, 18, 2, 1
REPORTS = 400
SERIES = 2_000
SCRAPE_SECONDS = 1.0
"""A scrape of nothing new takes a tenth of that, on a machine that has nothing else to do."""
SHOWN = ("mean_00", "frequency_00", "vector_00", "open_00", "spread", "trusted", "searched")
NOTHING_WAITS = "dither_release_due_timestamp_seconds"
"""The one number that is not there while all is well."""

METRICS = "\n".join(
    [
        *(
            f'[metrics.mean_{i:02}]\nkind = "mean"\nmechanism = "laplace"\nrange = [0, 10]\n'
            f'levels = [0.5, 1, 2, 4]\npane = "1h"\nunit = "minutes"\n'
            f'description = "Delay of line {i}"'
            for i in range(MEANS)
        ),
        *(
            f'[metrics.frequency_{i:02}]\nkind = "frequency"\nmechanism = "rappor"\n'
            f'categories = {[f"category {c}" for c in range(30)]}\nlevels = [1, 4]\npane = "1h"'
            for i in range(FREQUENCIES)
        ),
        *(
            f'[metrics.vector_{i:02}]\nkind = "vector_mean"\nmechanism = "hemisphere"\n'
            f'dimension = 12\nradius = 2\nlevels = [4, 8]\npane = "1h"'
            for i in range(VECTORS)
        ),
        *(
            f'[metrics.open_{i:02}]\nkind = "frequency"\nmechanism = "count_sketch"\n'
            f'categories = "open"\nwatch = ["sun", "rain"]\noptions = {{ buckets = 1024 }}\n'
            f'levels = [4, 8]\npane = "1h"'
            for i in range(OPEN)
        ),
        '[metrics.spread]\nkind = "distribution"\nrange = [0, 10]\nbins = 16\nlevels = [4, 8]\n'
        'pane = "1h"',
        '[metrics.trusted]\nkind = "mean"\ntrust = "central"\nrange = [0, 10]\nlevels = [0.1, 4]\n'
        'pane = "1h"',
        '[metrics.searched]\nkind = "maximum"\nrange = [0, 64]\nlevels = [4]\nrounds = 4\n'
        "round_reports = 100",
    ]
)


class Watched(NamedTuple):
    """A deployment that was counted and scraped, and when all of that was known."""

    deployment: Deployment
    prometheus: Prometheus
    url: str
    ended: float


def answers(metric: Metric) -> Any:
    """Return what the devices would say, as many as there are reports."""
    if metric.kind in ("mean", "distribution"):
        return np.linspace(0, 6, REPORTS)
    if metric.kind == "vector_mean":
        return np.tile(np.arange(12) / 12, (REPORTS, 1))
    if metric.name.startswith("open"):
        return ["sun"] * (REPORTS // 2) + ["snow"] * (REPORTS // 2)
    return [i % 7 for i in range(REPORTS)]


def messages(metrics: dict[str, Metric], first: int) -> list[tuple[int, bytes | None]]:
    """Return a round of batches, with one that comes twice, one too early and one of no use."""
    found: list[bytes] = []
    now = int(1000 * time.time())
    private = [
        one
        for one in metrics.values()
        if not isinstance(one, TrustedMetric) and not isinstance(one, SearchMetric)
    ]
    for number, metric in enumerate(private):
        for epsilon in (metric.levels[0], metric.levels[-1]):
            seed = first + 2 * number + (epsilon == metric.levels[-1])
            made = batch(metric, answers(metric), epsilon, now, seed)
            found.append(made.SerializeToString())
    mean = metrics[SHOWN[0]]
    early = batch(mean, [5.0], 1, now + 86_400_000, first + 999)
    found += [found[0], early.SerializeToString(), b"\xff not a batch"]
    return [(0, payload) for payload in found]


def released_and_decided(deployment: Deployment) -> None:
    """Have a pane of the trusted metric released, and the first round of the search decided."""
    trusted, searched = (deployment.metrics[name] for name in ("trusted", "searched"))
    deployment.store.registry.set_policy("trusted", "adpm")
    hours_ago = int(1000 * time.time()) - 3 * 3_600_000
    payloads = [
        batch(trusted, [3.0] * 100, epsilon, hours_ago, seed).SerializeToString()
        for seed, epsilon in enumerate(trusted.levels)
    ]
    payloads.append(encode_batch(searched, [0] * 100, [0] * 100, 0, number=1))
    deployment.produce([(0, payload) for payload in payloads])
    reader = Reader(deployment.store, deployment.metrics)

    def is_done() -> bool:
        is_released = reader.estimate("trusted").status == "final"
        return is_released and reader.estimate("searched").reports == 100

    wait_until(is_done, "a release and a decision")


@contextlib.contextmanager
def coordinating(deployment: Deployment) -> Iterator[None]:
    coordinator = Coordinator(deployment.settings, Reader(deployment.store, deployment.metrics))
    coordinator.start()
    try:
        yield
    finally:
        coordinator.stop()


@contextlib.contextmanager
def served(deployment: Deployment) -> Iterator[str]:
    """Run `dither serve`; yield its address."""
    port = free_port()
    command = [sys.executable, "-m", "aggregator", "serve", "--port", str(port)]
    command += ["--set", "aggregate.idle=500ms"]
    with deployment.metrics_file.with_name("serve.log").open("wb") as log:
        process = subprocess.Popen([*command, *deployment.flags], stdout=log, stderr=log)

    def is_alive() -> bool:
        assert process.poll() is None, deployment.metrics_file.with_name("serve.log").read_text()
        with contextlib.suppress(httpx.TransportError):
            return http_client.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
        return False

    try:
        wait_until(is_alive, "dither serve answers")
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


def a_moment_with_everything(prometheus: Prometheus) -> float:
    """Return a time at which the latest scrape was in time and the rules had their rates."""
    parts = (
        'up{job="dither"} == 1',
        "dither_estimate",
        "dither_search_bisection_low",
        "dither_release_saturation",
        "metric:dither_reports_refused:ratio_rate5m > 0",
        "job:dither_messages:rate5m > 0",
        "category:dither_estimate_halfwidth:ratio",
        "job:dither_consumer_lag:seconds",
        f"rate(dither_http_request_duration_seconds_count[{RATE_INTERVAL}]) > 0",
    )
    everything = " and ".join(f"count({part}) > 0" for part in parts)
    moments = []

    def is_there() -> bool:
        # a scrape that was begun before that has ended, or marks its series as stale: it is known
        moments.append(time.time() - 2 * INTERVAL_SECONDS)
        return bool(prometheus.at(moments[-1], everything))

    wait_until(is_there, "everything is scraped and recorded")
    return moments[-1]


@pytest.fixture(scope="module")
def watched(
    kafka: servers.Kafka, redis_server: servers.Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Watched]:
    """Count a round, scrape, count another, and wait until Prometheus has its rates."""
    redis_server.clear()
    folder = tmp_path_factory.mktemp("monitoring")
    file = folder / "metrics.toml"
    file.write_text(METRICS)
    deployment = Deployment(kafka, redis_server.url, file)
    metrics = dict(deployment.metrics)
    rounds = [messages(metrics, first) for first in (10_000, 20_000)]
    deployment.produce(rounds[0])
    worker = deployment.start_worker()
    try:
        with (
            deployment.store,
            served(deployment) as address,
            coordinating(deployment),
            running(folder, address) as prometheus,
        ):
            deployment.wait_until_counted()
            wait_until(
                lambda: (
                    len(prometheus.now("dither_metric_info")) == len(metrics)
                    and bool(prometheus.now("dither_deadletters_total"))
                ),
                "the first scrape of what was counted",
            )
            deployment.produce(rounds[1])
            released_and_decided(deployment)
            deployment.wait_until_counted()
            ended = a_moment_with_everything(prometheus)
            yield Watched(deployment, prometheus, f"http://{address}", ended)
    finally:
        worker.terminate()
        worker.wait(60)


def test_promtool_remarks_on_two_labels_of_gauges_and_on_nothing_else(watched: Watched) -> None:
    promtool = servers.program("promtool", "install Prometheus (Debian: prometheus)")
    text = http_client.get(f"{watched.url}/metrics").text
    told = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    of_gauges = {
        f'{name}{end} non-{kind} metrics should not have "{label}" label'
        for name, kind, label in (
            ("dither_quantile", "summary", "quantile"),
            ("dither_share_below", "histogram", "le"),
        )
        for end in ("", "_lower", "_upper")
    }
    assert told.stdout == ""
    assert {*told.stderr.splitlines()} == of_gauges, "docs/distribution.md says why"


def test_fifty_metrics_and_two_thousand_series_are_scraped_quickly(watched: Watched) -> None:
    (target,) = watched.prometheus.get("/targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    assert len(watched.prometheus.at(watched.ended, "dither_metric_info")) == 50
    (scraped,) = watched.prometheus.at(watched.ended, 'scrape_samples_scraped{job="dither"}')
    assert scraped["values"][0] >= SERIES
    durations = 'scrape_duration_seconds{job="dither"}'
    (fastest,) = watched.prometheus.at(watched.ended, f"min_over_time({durations}[5m])")
    assert fastest["values"][0] < SCRAPE_SECONDS


def test_every_message_is_in_the_histograms_once_and_refused_ones_by_their_reason(
    watched: Watched,
) -> None:
    def each_is_in_once() -> bool:  # heartbeats may still have come since
        counts = watched.prometheus.now("dither_end_to_end_latency_seconds_count")
        messages = sum(watched.deployment.log_ends().values())
        return [one["values"] for one in counts] == [[messages]]

    wait_until(each_is_in_once, "every message is in the histogram once")
    dead = {
        one["labels"]["reason"]: one["values"][0]
        for one in watched.prometheus.at(watched.ended, "dither_deadletters_total")
    }
    assert dead == {"future": 2, "malformed": 2}
    (commits,) = watched.prometheus.at(watched.ended, "dither_commit_duration_seconds_count")
    assert commits["values"][0] >= 2
    (written,) = watched.prometheus.at(watched.ended, "dither_commit_bytes_total")
    assert written["values"][0] > 8 * sum(
        len(m.zero()) for m in watched.deployment.metrics.values()
    )
    assert watched.deployment.verify().verified, "what is measured is no part of the state"


def test_the_rules_are_evaluated_and_no_alert_is_due(watched: Watched) -> None:
    groups = watched.prometheus.get("/rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {(rule["health"], rule.get("lastError", "")) for rule in rules} == {("ok", "")}
    for rule in rules:
        if rule["type"] == "recording":
            assert watched.prometheus.at(watched.ended, rule["name"]), rule["name"]
    alerts = [rule for rule in rules if rule["type"] == "alerting"]
    assert not [rule["name"] for rule in alerts if rule["state"] == "firing"]


def variables_of(dashboard: dict[str, Any], prometheus: Prometheus) -> list[dict[str, str]]:
    """Return what a reader can choose, of metrics one of each kind."""
    chosen: list[dict[str, str]] = [{}]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            chosen = [
                {**before, variable["name"]: value}
                for before in chosen
                for value in prometheus.label_values(resolved(variable["definition"], before))
                or [""]
                if variable["name"] != "metric" or value in SHOWN
            ]
    return chosen


def asked(
    target: dict[str, Any], variables: dict[str, str], watched: Watched
) -> list[dict[str, Any]]:
    """Return a panel's series as Grafana would get them, those without a number left out."""
    expr = resolved(target["expr"], variables)
    if target["instant"]:
        found = watched.prometheus.at(watched.ended, expr)
    else:
        found = watched.prometheus.until(watched.ended, expr)
    return [one for one in found if not all(math.isnan(value) for value in one["values"])]


def test_what_is_released_does_not_wait(watched: Watched) -> None:
    released = watched.prometheus.at(watched.ended, "dither_release_timestamp_seconds")
    assert [one["labels"]["metric"] for one in released] == ["trusted"]
    assert watched.prometheus.at(watched.ended, NOTHING_WAITS) == []


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.json")), ids=lambda file: file.stem)
def test_every_query_of_grafana_returns_data(watched: Watched, file: Path) -> None:
    dashboard = json.loads(file.read_text())
    choices = variables_of(dashboard, watched.prometheus)
    assert {choice["job"] for choice in choices} == {"dither"}
    if file.stem == "metric":
        assert {choice["metric"] for choice in choices} == set(SHOWN)
        first = {choice["metric"]: choice for choice in reversed(choices)}
        choices = list(first.values())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            found = [series for choice in choices for series in asked(target, choice, watched)]
            assert found or NOTHING_WAITS in target["expr"], f"{panel['title']}: {target['expr']}"
            if target.get("format") == "table":
                shown = panel["transformations"][1]["options"]["indexByName"]
                assert all(one["labels"].keys() <= shown.keys() for one in found)


@pytest.mark.parametrize("metric", sorted({*SHOWN} - {"spread"}))
def test_a_band_has_one_series_for_each_edge_and_the_estimate_between_them(
    watched: Watched, metric: str
) -> None:
    dashboard = json.loads((FOLDER / "metric.json").read_text())
    choice = next(
        one for one in variables_of(dashboard, watched.prometheus) if one["metric"] == metric
    )
    (panel,) = (p for p in dashboard["panels"] if p["title"] == "$metric $category")
    edges = {}
    for target in panel["targets"]:
        (series,) = asked(target, choice, watched)
        edges[target["legendFormat"]] = series["values"][-1]
    assert edges["lower"] < edges["estimate"] < edges["upper"]
