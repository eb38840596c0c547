"""A state of Redis from before is counted on: an earlier version's, and one from a backup.

`tests/vectors/written_before.json` has a log and a state, as the commit before the modules moved
into rooms left them: every kind of metric, copies, late and malformed messages, two partitions.
"""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.kafka.cluster import free_ports
from tests.support.paths import ROOT
from tests.support.reports.messages import EPOCH, batch
from tests.support.reports.traffic import traffic
from tests.support.running.deployment import PATIENCE, Deployment, wait_until
from tests.support.running.placed_redis import PlacedRedis
from tests.support.running.processes import run
from tests.support.running.servers import Kafka, program

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
    assert deployment.reader().estimate("delay").reports == counted["accepted:delay"] + 200


BACK_UP, RESTORE = re.findall(
    r"^```bash\n(.*?)^```", (ROOT / "docs" / "versions.md").read_text(), re.MULTILINE | re.DOTALL
)


@pytest.mark.more
def test_a_redis_that_is_lost_and_restored_ends_with_the_sums_of_the_log_or_says_what_is_missing(
    apache_kafka: Kafka, metrics_file: Path, tmp_path: Path
) -> None:
    program("redis-server", "install Redis (Debian: redis-server)")

    def run_commands(commands: str) -> None:
        """Run commands of the page in the data folder, on this server's port."""
        words = ["bash", "-euo", "pipefail", "-c", commands.replace("6379", str(redis.port))]
        run(words, cwd=tmp_path / "redis", timeout=PATIENCE)

    def lose_and_restore() -> None:
        redis.kill()
        run_commands(RESTORE)
        redis.start()

    with PlacedRedis(tmp_path / "redis", free_ports(1)[0]) as redis:
        deployment = Deployment(apache_kafka, redis.url, metrics_file)
        with deployment.store:
            with deployment.worker():
                deployment.produce(traffic(deployment, 40, seed=1))
                deployment.wait_until_counted()
                positions = [int(one) for one in deployment.owners("next")]
                run_commands(BACK_UP)
                deployment.produce(traffic(deployment, 40, seed=2))
                deployment.wait_until_counted()
                state = deployment.state()
                lose_and_restore()
                wait_until(lambda: deployment.state() == state, "it has counted on")
            ends = deployment.log_ends()
            assert all(0 < positions[number] < end for number, end in ends.items())
            verified = deployment.dither("verify")
            assert verified.returncode == 0, verified.stdout
            deployment.cut({number: at + 5 for number, at in enumerate(positions)})
            lose_and_restore()
            with deployment.worker():
                wait_until(lambda: all(deployment.owners("halted")), "every partition halts")
            assert all("5 " in reason for reason in deployment.owners("halted"))
            assert [int(one) for one in deployment.owners("next")] == positions
