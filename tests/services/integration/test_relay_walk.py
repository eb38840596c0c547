"""From a device through a relay to the sums in Redis, exactly."""

from collections.abc import Callable
from pathlib import Path

import pytest

from aggregator.config.settings import Settings
from aggregator.reading.window import WindowStatistic
from aggregator.web.http.traffic import Traffic
from aggregator.web.relay_application import relay_application
from dither import HttpReporter, Ledger
from producers.gateway import Gateway
from producers.relay import forwarding, intake
from producers.relay.crowd_folder import CrowdFolder
from producers.relay.forwarding import Forwarder, ServiceClient
from producers.relay.intake import CrowdRelay
from tests.support.reports.crowds import KEY, key_file, public
from tests.support.reports.messages import EPOCH
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.gateway_server import serving
from tests.support.running.served_application import served_application

METRICS = """
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
    deployment, now_ms, key = defined(METRICS), [EPOCH], public(KEY)
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
