"""The attack of `dither audit` on a Kafka that is somebody else's."""

from __future__ import annotations

from aggregator.kafka import clients
from tests.support.running.deployment import Deployment, as_json


def test_the_attack_runs_in_a_topic_of_its_own_and_leaves_none(deployment: Deployment) -> None:
    command = ("audit", "delay", "--attack", "--reports", "20000", "--confidence", "0.999999")
    told = deployment.dither(*command, "--json")
    if not deployment.kafka.is_real:
        assert told.returncode == 1
        assert "leave out --kafka" in told.stderr
        return
    found = as_json(told)
    assert [row["holds"] for row in found["attacks"]] == [True] * 3
    assert all(row["reports"] == 20_000 for row in found["attacks"])
    assert all(row["at_least"] > 0 for row in found["attacks"])
    assert deployment.log_ends() == dict.fromkeys(range(deployment.partitions), 0)
    listed = clients.admin(deployment.settings).list_topics(timeout=30).topics
    assert not [name for name in listed if name.startswith("dither.audit.")]
