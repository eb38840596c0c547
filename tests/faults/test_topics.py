"""Logs that are not what they were: a topic made anew under its workers, and records deleted."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.integration.deployment import Deployment, wait_until
from tests.integration.test_counting import traffic
from tests.servers import Kafka


def made_anew(deployment: Deployment) -> None:
    """Delete the reports topic and create it again."""
    admin = AdminClient({"bootstrap.servers": deployment.kafka.bootstrap_servers})
    admin.delete_topics([deployment.topic])[deployment.topic].result(timeout=30)

    def created() -> bool:
        try:
            topic = NewTopic(deployment.topic, deployment.partitions, -1)
            admin.create_topics([topic])[deployment.topic].result(timeout=30)
        except Exception:
            return False
        return True

    wait_until(created, "the topic is there again")


def test_a_topic_that_is_made_anew_under_a_running_worker_stops_it_until_it_may_skip(
    apache_kafka: Kafka, deployment: Deployment
) -> None:
    deployment.produce(traffic(deployment, 40))
    halted = "created again"
    with deployment.worker() as worker:
        deployment.wait_until_counted()
        before = deployment.state()
        made_anew(deployment)
        deployment.produce(traffic(deployment, 80, seed=1))  # further than the old one went
        wait_until(
            lambda: (
                len(worker.owned) == deployment.partitions
                and all(halted in owned.halted for owned in worker.owned.values())
            ),
            "all partitions are halted",
        )
        wait_until(
            lambda: all(halted in deployment.store.owner(n).get("halted", "") for n in range(6)),
            "the reasons are stored",
        )
    assert deployment.state() == before
