"""Logs that are not what they were: a topic made anew under its workers, and records deleted."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from structlog.testing import capture_logs

from aggregator.config.settings import Settings
from aggregator.errors import BrokerUnreachable
from aggregator.kafka import topic_admin
from deploy.kafka import launcher
from deploy.kafka.cluster import KafkaCluster
from producers.wire.reports_pb2 import ReportBatch
from tests.support.reports.traffic import traffic
from tests.support.running.deployment import Deployment, wait_until
from tests.support.running.fleet import Fleet
from tests.support.running.servers import Kafka, missing

pytestmark = pytest.mark.more


def test_a_topic_that_is_made_anew_under_a_running_worker_stops_it_until_it_may_skip(
    apache_kafka: Kafka, deployment: Deployment
) -> None:
    numbers = range(deployment.partitions)
    first, second = traffic(deployment, 40), traffic(deployment, 80, seed=1)
    deployment.produce(first)
    halted = "created again"
    with deployment.worker() as worker:
        deployment.wait_until_counted()
        before = deployment.state()
        deployment.recreate_topic()
        deployment.produce(second)  # further than the old one went
        wait_until(
            lambda: (
                len(worker.owned) == deployment.partitions
                and all(halted in owned.halted for owned in worker.owned.values())
            ),
            "all partitions are halted",
        )
        wait_until(
            lambda: all(halted in deployment.store.owner(n).get("halted", "") for n in numbers),
            "the reasons are stored",
        )
        reason = worker.owned[0].halted
        assert len(set(re.findall(r"id (\S+), now (\S+)\)", reason)[0])) == 2, "both ids"
    assert deployment.state() == before
    waited = {n: int(deployment.store.owner(n).get("high", 0)) for n in numbers}

    deployment.settings.aggregate.on_gap = "skip"
    counted = {n: int(deployment.store.owner(n)["next"]) for n in numbers}
    ends = deployment.log_ends()
    with deployment.worker():
        wait_until(
            lambda: all(
                deployment.store.owner(n).get("halted") == ""
                and int(deployment.store.owner(n)["next"]) == ends[n]
                for n in numbers
            ),
            "the new log is counted from its beginning",
        )
    for n in numbers:
        assert int(deployment.store.owner(n)["gap"]) == max(0, waited[n] - counted[n])
    found = sum(
        count
        for name, count in deployment.counts().items()
        if name.partition(":")[0] in ("accepted", "late")
    )
    sent = [ReportBatch.FromString(payload) for _, payload in [*first, *second]]
    assert found == sum(len(one.levels) for one in sent), "each once"


def test_a_topic_that_was_made_anew_while_its_worker_hung_halts_it_though_the_offset_is_there(
    apache_kafka: Kafka, deployment: Deployment
) -> None:
    numbers = range(deployment.partitions)
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
            lambda: all(
                "created again" in deployment.store.owner(n).get("halted", "") for n in numbers
            ),
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


@pytest.mark.slow
def test_a_topics_id_is_told_soon_after_any_broker_has_died(tmp_path: Path) -> None:
    """Also after that one which a client took for the controller, and waits for."""
    if lacking := launcher.missing():
        missing("Apache Kafka", lacking)
    with KafkaCluster(tmp_path / "kafka", brokers=3) as cluster:
        settings = Settings(kafka={"bootstrap.servers": cluster.bootstrap_servers})
        topic_admin.ensure_topics(settings, settings.topics.reports)
        ask = topic_admin.TopicId(settings, settings.topics.reports)

        def answers() -> bool:
            with contextlib.suppress(BrokerUnreachable):
                return bool(ask())
            return False

        wait_until(answers, "the topic is there")
        for broker in range(1, 4):
            cluster.kill(broker)
            wait_until(answers, f"an answer without broker {broker}")
            cluster.restart(broker)
