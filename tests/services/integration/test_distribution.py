"""A distribution from the device through Kafka and Redis to every display of answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator import Reader
from estimators import DistributionEstimate, LocalMetric
from producers import Reporter
from tests.support.reports.messages import EPOCH
from tests.support.running.deployment import Deployment, as_json

METRICS = """
[metrics.latency]
description = "Time to first byte"
kind = "distribution"
range = [1, 1000]
bins = 64
scale = "log"
quantiles = [0.5, 0.9]
unit = "ms"
levels = [1, 4]
pane = "1h"
"""
SECONDS, DEVICES = EPOCH / 1000, 6000


@pytest.fixture
def metrics_file(tmp_path: Path) -> Path:
    file = tmp_path / "metrics.toml"
    file.write_text(METRICS)
    return file


def test_a_distribution_goes_all_the_way(deployment: Deployment) -> None:
    """Bounds at beta 10^-6, so that a false alarm has that probability."""
    latency: Any = deployment.metrics["latency"]
    assert isinstance(latency, LocalMetric)
    values = np.random.default_rng(1).lognormal(4, 1, DEVICES)
    epsilons = np.where(np.arange(DEVICES) % 2, 4.0, 1.0)
    config = {"bootstrap.servers": deployment.kafka.bootstrap_servers}
    with deployment.worker():
        with Reporter(latency, config, topic=deployment.topic) as reporter:
            reporter.report(values, epsilon=epsilons, time=SECONDS)
        deployment.wait_until_counted()
    assert deployment.counts() == {"accepted:latency": DEVICES}
    outcome = deployment.verify()
    assert outcome.verified, outcome.differences

    with Reader(deployment.store, deployment.metrics) as reader:
        found = reader.estimate("latency", beta=1e-6)
    assert isinstance(found, DistributionEstimate)
    truth = np.searchsorted(np.sort(values), found.edges) / DEVICES
    truth[-1] = 1.0
    assert ((found.cdf_lower <= truth) & (truth <= found.cdf_upper)).all()
    quantiles = np.quantile(values, [0.5, 0.9])
    assert (found.quantiles[:, 2] <= quantiles).all()
    assert (quantiles <= found.quantiles[:, 3]).all()
    assert (found.labels, found.bound) == (("0.5", "0.9"), "anytime")

    answer = as_json(deployment.dither("estimate", "latency", "--beta", "1e-6", "--json"))
    assert answer["quantiles"] == ["0.5", "0.9"]
    assert answer["value"] == found.quantiles[:, 1].tolist()
    assert answer["lower"] == found.quantiles[:, 2].tolist()
    assert answer["distribution"]["edges"] == found.edges.tolist()
    assert answer["distribution"]["unbiased"] == found.cdf.tolist()
    assert answer["distribution"]["value"] == found.shown.tolist()
    assert 0 < answer["influence"]["shift"] < 1

    shown = deployment.dither("estimate", "latency", "--quantile", "0.95", "--below", "250")
    assert shown.returncode == 0, shown.stderr
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert ["quantile", "value", "(ms)", "lower", "upper"] in lines
    assert "0.95" in [line[0] for line in lines if line]
    below = next(line for line in lines if line[:2] == ["250", "ms"])
    share = (values < 250).mean()
    assert float(below[3]) <= share <= float(below[4])

    refused = deployment.dither("estimate", "latency", "--category", "x")
    assert "expected numbers between 0 and 1" in refused.stderr


def test_simulated_devices_report_and_their_quantiles_are_the_truth(
    deployment: Deployment,
) -> None:
    command = ("produce", "latency", "--simulate", "uniform", "--devices", "500", "--json")
    with deployment.worker():
        done = deployment.dither(*command)
        assert done.returncode == 0, done.stderr
        deployment.wait_until_counted()
    truth = json.loads(done.stdout)["truth"]
    assert list(truth) == ["0.5", "0.9"]
    assert 400 < truth["0.5"] < 600 < truth["0.9"] < 1000
    assert deployment.counts() == {"accepted:latency": 500}
