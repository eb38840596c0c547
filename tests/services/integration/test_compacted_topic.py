"""A reports topic that is compacted is refused: reports would be lost without a word."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource

from aggregator.kafka import compaction
from tests.support.reports.traffic import traffic
from tests.support.running.deployment import PATIENCE, Deployment, wait_until
from tests.support.running.servers import Kafka


def set_policy(deployment: Deployment, policy: str) -> None:
    admin = AdminClient({"bootstrap.servers": deployment.kafka.bootstrap_servers})
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(
        ConfigResource.Type.TOPIC, deployment.topic, incremental_configs=[entry]
    )
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(timeout=PATIENCE)


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_a_compacted_topic_is_refused_at_the_start_with_the_command_that_mends_it(
    apache_kafka: Kafka, deployment: Deployment, policy: str
) -> None:
    set_policy(deployment, policy)
    refused = deployment.dither("aggregate")
    assert refused.returncode != 0
    assert "Traceback" not in refused.stderr
    assert f"topic {deployment.topic!r} has cleanup.policy = {policy}" in refused.stderr
    assert "--add-config cleanup.policy=delete" in refused.stderr


def test_a_topic_that_is_compacted_later_halts_its_partitions(
    apache_kafka: Kafka, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "LOOK_SECONDS", 0.5)
    deployment.produce(traffic(deployment, 10))
    numbers = range(deployment.partitions)
    with deployment.worker():
        deployment.wait_until_counted()
        set_policy(deployment, "compact")
        wait_until(
            lambda: all(
                "cleanup.policy = compact" in deployment.store.owner(n).get("halted", "")
                for n in numbers
            ),
            "all partitions are halted",
        )
    set_policy(deployment, "delete")
    with deployment.worker():
        wait_until(
            lambda: not any(deployment.store.owner(n).get("halted", "") for n in numbers),
            "counting goes on",
        )
