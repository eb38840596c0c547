"""A log and a state that an earlier version wrote are read, verified and counted on from.

`tests/vectors/written_before.json` has both, as the commit before the modules moved into rooms
left them: every kind of metric, copies, late and malformed messages, two partitions.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from tests.support.paths import ROOT
from tests.support.reports.messages import EPOCH, batch
from tests.support.running.deployment import Deployment
from tests.support.running.servers import Kafka

WRITTEN = ROOT / "tests" / "vectors" / "written_before.json"
HOUR = 3_600_000


def raw(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


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
    apache_kafka: Kafka, defined: Callable[..., Deployment]
) -> None:
    written = json.loads(WRITTEN.read_text())
    deployment = defined(written["metrics"], 2)
    deployment.settings.topics.managed = False  # this topic has another id
    owner = written["keys"]["{dither:TOPIC:0}:owner"][1]
    group = raw(owner[base64.b64encode(b"group").decode()]) or b""
    deployment.settings.aggregate.group = group.decode()
    log = [(partition, raw(value)) for partition, value, _, _ in written["log"]]
    keys, times = [raw(key) for _, _, key, _ in written["log"]], [at for *_, at in written["log"]]
    deployment.produce(log, key=keys, timestamp=times)
    restore_state(deployment, written["keys"])
    before = deployment.verify()
    assert before.verified, before.differences
    assert before.messages == len(written["log"])
    counted, state = deployment.counts(), deployment.state()
    deployment.count()
    assert deployment.state() == state

    delay = deployment.metrics["delay"]
    late = [batch(delay, [5.0] * 10, 1, EPOCH + 40 * HOUR, 10**6 + i) for i in range(20)]
    deployment.count([(i % 2, one.SerializeToString()) for i, one in enumerate(late)])
    after = deployment.verify()
    assert after.verified, after.differences
    assert deployment.counts() == {**counted, "accepted:delay": counted["accepted:delay"] + 200}
    found = deployment.reader().estimate("delay")
    assert found.reports == counted["accepted:delay"] + 200
