"""A crowd from a relay's post to the sums in Redis."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aggregator.reading.window import WindowStatistic
from producers.gateway import Gateway
from producers.gateway.crowds import CROWD_TYPE
from tests.support.reports.crowds import crowd, key_file, label_of, mixed, sealed
from tests.support.reports.messages import EPOCH
from tests.support.running import http_client
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.gateway_server import serving

METRICS = """
[metrics]
hidden = {kind = "mean", mechanism = "randomized_response", range = [0, 1], levels = [3], \
pane = "1d", lateness = "2d", crowd = {minimum = 100, wait = "12h"}}
"""


def test_a_crowd_that_is_posted_twice_is_counted_once_and_exactly(
    defined: Callable[[str], Deployment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: a random batch id; an id without the index of its batch."""
    monkeypatch.setattr("producers.gateway.crowds.MAX_BATCH_BYTES", 120)
    deployment, values = defined(METRICS), mixed(zeros=70, ones=80)
    metric = deployment.metrics["hidden"]
    label = label_of(metric, EPOCH)
    body = crowd(sealed(values, label), label)
    config = {"bootstrap.servers": deployment.kafka.bootstrap_servers}
    gateway = Gateway(
        deployment.metrics, config, deployment.topic, crowd_keys=str(key_file(tmp_path))
    )
    with serving(gateway) as url:
        wait_until(lambda: not gateway._sender.obstacle, "Kafka answers")
        for _ in range(2):
            answer = http_client.post(
                url.replace("reports", "crowds"), content=body, headers={"Content-Type": CROWD_TYPE}
            )
            assert answer.status_code == 202, answer.text
    deployment.count()
    assert deployment.counts() == {"accepted:hidden": 150, "duplicate:hidden": 150}
    direct = metric.zero()
    metric.accumulate(direct, [0] * len(values), list(values))
    content = deployment.reader().window("hidden").content
    assert isinstance(content, WindowStatistic)
    assert (content.statistic == direct).all()
    assert deployment.verify().verified
