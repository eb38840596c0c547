"""A log and a state that an earlier version wrote are read, verified and counted on from.

`tests/vectors/written_before.json` has both, as the commit before the modules moved into rooms
left them: every kind of metric, copies, late and malformed messages, two partitions.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from aggregator.reading.reader import Reader
from tests.support.paths import ROOT
from tests.support.reports.messages import EPOCH, batch
from tests.support.running.deployment import PATIENCE, Deployment
from tests.support.running.servers import Kafka

WRITTEN = ROOT / "tests" / "vectors" / "written_before.json"
HOUR = 3_600_000


def raw(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def restore_log(deployment: Deployment, messages: list[tuple[int, str, str, int]]) -> None:
    producer = Producer({"bootstrap.servers": deployment.kafka.bootstrap_servers})
    for partition, value, key, timestamp in messages:
        producer.produce(
            deployment.topic, raw(value), raw(key), partition=partition, timestamp=timestamp
        )
    assert producer.flush(PATIENCE) == 0
    producer.close()


def restore_state(deployment: Deployment, keys: dict[str, tuple[str, Any]]) -> None:
    client: Any = deployment.store.client
    for name, (kind, value) in keys.items():
        key = name.replace("TOPIC", deployment.topic)
        if kind == "string":
            client.set(key, raw(value))
        elif kind == "hash":
            client.hset(key, mapping={raw(field): raw(text) for field, text in value.items()})
        elif kind == "set":
            client.sadd(key, *map(raw, value))
        else:
            client.zadd(key, {raw(member): score for member, score in value})


def test_a_state_of_an_earlier_version_is_verified_and_counted_on(
    apache_kafka: Kafka, redis_url: str, tmp_path: Path
) -> None:
    written = json.loads(WRITTEN.read_text())
    file = tmp_path / "metrics.toml"
    file.write_text(written["metrics"])
    deployment = Deployment(apache_kafka, redis_url, file, partitions=2)
    deployment.settings.topics.managed = False  # this topic has another id
    owner = written["keys"]["{dither:TOPIC:0}:owner"][1]
    group = raw(owner[base64.b64encode(b"group").decode()]) or b""
    deployment.settings.aggregate.group = group.decode()
    with deployment.store:
        restore_log(deployment, written["log"])
        restore_state(deployment, written["keys"])
        before = deployment.verify()
        assert before.verified, before.differences
        assert before.messages == len(written["log"])
        counted, state = deployment.counts(), deployment.state()
        with deployment.worker():
            deployment.wait_until_counted()
        assert deployment.state() == state

        delay = deployment.metrics["delay"]
        late = [batch(delay, [5.0] * 10, 1, EPOCH + 40 * HOUR, 10**6 + i) for i in range(20)]
        deployment.produce([(i % 2, one.SerializeToString()) for i, one in enumerate(late)])
        with deployment.worker():
            deployment.wait_until_counted()
        after = deployment.verify()
        assert after.verified, after.differences
        assert deployment.counts() == {
            **counted,
            "accepted:delay": counted["accepted:delay"] + 200,
        }
        found = Reader(deployment.store, deployment.metrics).estimate("delay")
        assert found.reports == counted["accepted:delay"] + 200
