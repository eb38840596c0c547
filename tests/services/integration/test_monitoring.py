"""A real Prometheus scrapes a real Dither: its rules have their figures, and no alert is due."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from estimators import SearchMetric, TrustedMetric
from producers.wire.batch import encode_batch
from tests.support.events import coordinating, service
from tests.support.reports.messages import batch
from tests.support.running import http_client, servers
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.prometheus import RATE_INTERVAL, SCRAPE_SECONDS, Prometheus, running

pytestmark = pytest.mark.more
REPORTS = 400
METRICS = """
[metrics]
mean = {kind = "mean", mechanism = "laplace", range = [0, 10], levels = [0.5, 4], pane = "1h"}
spread = {kind = "distribution", range = [0, 10], bins = 16, levels = [4, 8], pane = "1h"}
share = {kind = "frequency", mechanism = "rappor", categories = 8, levels = [1, 4], pane = "1h"}
trusted = {kind = "mean", trust = "central", range = [0, 10], levels = [0.1, 4], pane = "1h"}
searched = {kind = "maximum", range = [0, 64], levels = [4], rounds = 4, round_reports = 100}
"""


def messages(deployment: Deployment, first: int) -> list[tuple[int, bytes]]:
    """Return a round of batches, with one that comes twice, one too early and one of no use."""
    now, found = int(1000 * time.time()), list[bytes]()
    answers = [i % 7 for i in range(REPORTS)]
    for number, metric in enumerate(deployment.metrics.values()):
        if not isinstance(metric, TrustedMetric | SearchMetric):
            for level, epsilon in enumerate(metric.levels):
                one = batch(metric, answers, epsilon, now, first + 2 * number + level)
                found.append(one.SerializeToString())
    early = batch(deployment.metrics["mean"], [5.0], 4, now + 86_400_000, first + 999)
    found += [found[0], early.SerializeToString(), b"\xff not a batch"]
    return [(0, payload) for payload in found]


def release_and_decide(deployment: Deployment) -> None:
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
    reader = deployment.reader()
    wait_until(lambda: reader.estimate("trusted").status == "final", "a release")
    wait_until(lambda: reader.estimate("searched").reports == 100, "a decision")


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
        moments.append(time.time() - 2 * SCRAPE_SECONDS)
        return bool(prometheus.at(moments[-1], everything))

    wait_until(is_there, "everything is scraped and recorded")
    return moments[-1]


def test_promtool_agrees_without_alert(defined: Callable[..., Deployment], tmp_path: Path) -> None:
    """After a round is counted and scraped, and another one, so that there are rates."""
    deployment = defined(METRICS)
    promtool = servers.program("promtool", "install Prometheus (Debian: prometheus)")
    deployment.produce(messages(deployment, 10_000))
    with (
        service(deployment) as url,
        coordinating(deployment),
        running(tmp_path, url.removeprefix("http://")) as prometheus,
    ):
        deployment.wait_until_counted()
        wait_until(
            lambda: (
                len(prometheus.now("dither_metric_info")) == len(deployment.metrics)
                and bool(prometheus.now("dither_deadletters_total"))
            ),
            "the first scrape of what was counted",
        )
        deployment.produce(messages(deployment, 20_000))
        release_and_decide(deployment)
        deployment.wait_until_counted()
        ended = a_moment_with_everything(prometheus)
        text = http_client.get(f"{url}/metrics").text

        def last_scrape() -> tuple[str, str]:
            (target,) = prometheus.get("/targets")["activeTargets"]
            return target["health"], target["lastError"]

        wait_until(lambda: last_scrape() == ("up", ""), "the last scrape was in time")
        groups = prometheus.get("/rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        recorded = {rule["name"]: prometheus.at(ended, rule["name"]) for rule in rules}
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
    for rule in rules:
        assert (rule["health"], rule.get("lastError", "")) == ("ok", ""), rule["name"]
        assert rule["type"] == "alerting" or recorded[rule["name"]], rule["name"]
        assert rule.get("state") != "firing", rule["name"]
