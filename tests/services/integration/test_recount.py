"""`dither recount` under a worker that runs."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from aggregator.cli.main import cli
from aggregator.counting import assignment
from aggregator.kafka.log_ends import KafkaLog, LogEnds
from tests.services.integration.test_broken_logs import cut
from tests.support.reports.messages import EPOCH, batch
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.servers import Kafka

HOUR = 3_600_000
PANES = 4_000


def filled(deployment: Deployment) -> None:
    """Produce thousands of panes into the first partition."""
    delay = deployment.metrics["delay"]
    deployment.produce(
        [(0, batch(delay, [1.0], 1, EPOCH + i * HOUR, i).SerializeToString()) for i in range(PANES)]
    )


def test_a_partition_is_counted_again_while_its_worker_runs(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assignment, "LOOK_AGAIN_SECONDS", 0.1)
    filled(deployment)
    with deployment.worker():
        deployment.wait_until_counted()
        first = deployment.store.owner(0)
        found = deployment.dither("recount", "0", "--yes")
        assert found.returncode == 0, found.stderr
        assert "keys deleted; workers count it again from offset 0" in found.stdout
        wait_until(
            lambda: deployment.store.owner(0).get("next") == first["next"], "it is counted again"
        )
        assert deployment.store.owner(0)["halted"] == ""
    assert deployment.verify().verified


def test_nothing_is_deleted_without_a_yes_or_where_the_log_has_lost_its_beginning(
    apache_kafka: Kafka, deployment: Deployment
) -> None:
    filled(deployment)
    with deployment.worker():
        deployment.wait_until_counted()
    before = deployment.store.client.dbsize()
    assert deployment.dither("recount", "0").returncode == 1, "nobody says yes"
    cut(deployment, {0: 5})
    refused = deployment.dither("recount", "0", "--yes")
    assert refused.returncode == 1
    assert "the offsets 0 to 4 are gone from the log, which begins at 5" in refused.stderr
    unknown = deployment.dither("recount", "17", "--yes")
    assert "has no partition 17: expected 0 to 5" in unknown.stderr
    assert deployment.store.client.dbsize() == before
    accepted = deployment.dither("recount", "0", "--yes", "--accept-loss")
    assert accepted.returncode == 0, accepted.stderr
    assert deployment.store.owner(0) == {}


def test_what_is_reported_and_counted_meanwhile_is_not_taken_for_lost(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    delay = deployment.metrics["delay"]
    deployment.produce([(0, batch(delay, [1.0], 1, EPOCH, 1).SerializeToString())])
    monkeypatch.setattr(assignment, "LOOK_AGAIN_SECONDS", 0.1)
    with deployment.worker():
        deployment.wait_until_counted()

        def ask(log: KafkaLog) -> LogEnds:
            ends = asked(log)
            deployment.produce([(0, batch(delay, [1.0], 1, EPOCH, 2).SerializeToString())])
            deployment.wait_until_counted()
            return ends

        asked = KafkaLog.ask
        monkeypatch.setattr(KafkaLog, "ask", ask)
        arguments = ["recount", "0", "--yes", *deployment.flags]
        found = CliRunner().invoke(cli, arguments)
        assert found.exit_code == 0, found.output
        wait_until(lambda: deployment.store.owner(0).get("next") == "2", "it is counted again")
    assert deployment.verify().verified
