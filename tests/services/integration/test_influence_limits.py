"""A limit per key holds over workers that come and go, and the log proves it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np

from producers import Reporter
from tests.support.reports.messages import EPOCH
from tests.support.running.deployment import Deployment

METRICS = """
[metrics.late]
kind = "mean"
mechanism = "randomized_response"
range = [0, 1]
levels = [1]
pane = "1h"
max_batch_reports = 20
max_key_reports = 100
"""


def report(deployment: Deployment, key: bytes, batches: int, size: int = 20) -> None:
    """Report in batches of a size, under one key."""
    metric = dataclasses.replace(deployment.metrics["late"], max_batch_reports=None)
    servers = {"bootstrap.servers": deployment.kafka.bootstrap_servers}
    options = {"topic": deployment.topic, "batch_reports": size}
    with Reporter(metric, servers, key=key, **options) as reporter:  # type: ignore[arg-type]
        reporter.report(np.ones(batches * size), epsilon=1, time=EPOCH / 1000)


def test_who_floods_adds_no_more_than_the_limit_whichever_worker_counts(
    deployment_of: Callable[[Path], Deployment], tmp_path: Path
) -> None:
    file = tmp_path / "limited.toml"
    file.write_text(METRICS)
    deployment = deployment_of(file)
    with deployment.store:
        report(deployment, b"flood", batches=3)
        with deployment.worker("one"):
            deployment.wait_until_counted()
        report(deployment, b"flood", batches=50)
        report(deployment, b"honest", batches=4)
        report(deployment, b"large", batches=1, size=21)
        with deployment.worker("two"):
            deployment.wait_until_counted()
        assert deployment.counts() == {
            "accepted:late": 100 + 80,
            "over_limit:late": 48 * 20,
            "too_many_reports:late": 21,
        }
        letters = deployment.dead(49)
        reasons = [letter["headers"]["__connect.errors.exception.class.name"] for letter in letters]
        assert sorted(reasons) == [b"over_limit"] * 48 + [b"too_many_reports"]
        outcome = deployment.verify()
        assert outcome.verified, outcome.differences
