"""Redis is backed up, lost and restored, with the commands of docs/versions.md."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support.paths import ROOT
from tests.support.reports.traffic import traffic
from tests.support.running.deployment import PATIENCE, Deployment, wait_until
from tests.support.running.placed_redis import PlacedRedis
from tests.support.running.redis_nodes import free_ports
from tests.support.running.servers import Kafka, program

BACK_UP, RESTORE = re.findall(
    r"^```bash\n(.*?)^```", (ROOT / "docs" / "versions.md").read_text(), re.MULTILINE | re.DOTALL
)


class Backed:
    """A deployment, on a Redis that can be lost."""

    def __init__(self, kafka: Kafka, redis: PlacedRedis, metrics_file: Path) -> None:
        assert redis.folder is not None
        self.redis, self.folder = redis, redis.folder
        self.deployment = Deployment(kafka, redis.url, metrics_file)

    def run(self, commands: str) -> None:
        """Run commands of the page in the data folder, on this server's port."""
        done = subprocess.run(
            [
                str(program("bash", "install it")),
                "-euo",
                "pipefail",
                "-c",
                commands.replace("6379", str(self.redis.port)),
            ],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def count(self, seed: int) -> None:
        self.deployment.produce(traffic(self.deployment, 40, seed=seed))
        self.deployment.wait_until_counted()

    def back_up(self) -> dict[int, int]:
        """Back up, and return up to where the backup has counted."""
        positions = {
            number: int(self.deployment.store.owner(number)["next"])
            for number in range(self.deployment.partitions)
        }
        self.run(BACK_UP)
        return positions

    def lose_and_restore(self) -> None:
        self.redis.kill()
        self.run(RESTORE)
        self.redis.start()


@pytest.fixture
def backed(apache_kafka: Kafka, metrics_file: Path, tmp_path: Path) -> Iterator[Backed]:
    server = Path(program("redis-server", "install Redis (Debian: redis-server)"))
    with PlacedRedis(tmp_path / "redis", free_ports(1)[0], server) as redis:
        made = Backed(apache_kafka, redis, metrics_file)
        with made.deployment.store:
            yield made


def test_a_redis_that_is_lost_and_restored_ends_with_the_sums_of_the_log(backed: Backed) -> None:
    deployment = backed.deployment
    with deployment.worker():
        backed.count(seed=1)
        positions = backed.back_up()
        backed.count(seed=2)
        counted, state = deployment.counts(), deployment.state()
        backed.lose_and_restore()
        deployment.wait_until_counted()
        assert deployment.counts() == counted
        assert deployment.state() == state
        backed.count(seed=3)
    assert all(0 < positions[number] < end for number, end in deployment.log_ends().items())
    verified = deployment.dither("verify")
    assert verified.returncode == 0, verified.stdout


@pytest.mark.slow
def test_a_backup_that_is_older_than_the_log_halts_and_says_what_is_missing(
    backed: Backed,
) -> None:
    deployment = backed.deployment
    with deployment.worker():
        backed.count(seed=1)
        positions = backed.back_up()
        backed.count(seed=2)
    lost = 5
    admin = AdminClient({"bootstrap.servers": deployment.kafka.bootstrap_servers})
    cut = [TopicPartition(deployment.topic, n, at + lost) for n, at in positions.items()]
    for done in admin.delete_records(cut).values():
        done.result(timeout=PATIENCE)
    backed.lose_and_restore()

    def reasons() -> list[str]:
        owners = map(deployment.store.owner, range(deployment.partitions))
        return [owner.get("halted", "") for owner in owners]

    with deployment.worker():
        wait_until(lambda: all(reasons()), "every partition halts")
        assert all(f"{lost} " in reason for reason in reasons()), reasons()
    for number, at in positions.items():
        assert int(deployment.store.owner(number)["next"]) == at
