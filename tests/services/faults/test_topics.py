"""A topic that is made anew, or deleted, under its workers."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient
from structlog.testing import capture_logs

from tests.support.reports.traffic import traffic
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.fleet import Fleet
from tests.support.running.servers import Kafka

pytestmark = pytest.mark.more


def test_a_topic_that_was_made_anew_while_its_worker_hung_halts_it_though_the_offset_is_there(
    apache_kafka: Kafka, deployment: Deployment
) -> None:
    deployment.produce(traffic(deployment, 20))
    log = deployment.metrics_file.with_name("workers.log")
    patient = ["--set", "kafka.session.timeout.ms=40000"]  # no rebalance tells it
    fleet = Fleet([*deployment.flags, *patient], log)
    try:
        fleet.join()
        deployment.wait_until_counted()
        with fleet.frozen(0):
            deployment.recreate_topic()
            deployment.produce(traffic(deployment, 80, seed=1))
        wait_until(
            lambda: all("created again" in why for why in deployment.owners("halted")),
            "all partitions are halted",
        )
    finally:
        fleet.stop()


def test_a_topic_that_was_deleted_under_a_running_worker_is_said_to_be_gone(
    apache_kafka: Kafka, deployment: Deployment
) -> None:
    admin = AdminClient({"bootstrap.servers": deployment.kafka.bootstrap_servers})
    deployment.produce(traffic(deployment, 20))
    with deployment.worker(), capture_logs() as told:
        deployment.wait_until_counted()
        admin.delete_topics([deployment.topic])[deployment.topic].result(timeout=30)

        def reasons() -> list[str]:
            return [str(entry["error"]) for entry in told if entry["event"] == "waiting"]

        wait_until(lambda: any("is gone" in why for why in reasons()), "it is told")
        assert not any("no Kafka broker answers" in why for why in reasons())
        assert f"topic {deployment.topic!r} is gone" in reasons()[-1]
