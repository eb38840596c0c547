"""Redis is backed up, lost and restored, with the commands of docs/versions.md."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from deploy.kafka.cluster import free_ports
from tests.support.paths import ROOT
from tests.support.reports.traffic import traffic
from tests.support.running.deployment import PATIENCE, Deployment, wait_until
from tests.support.running.placed_redis import PlacedRedis
from tests.support.running.servers import Kafka, program

BACK_UP, RESTORE = re.findall(
    r"^```bash\n(.*?)^```", (ROOT / "docs" / "versions.md").read_text(), re.MULTILINE | re.DOTALL
)


@pytest.mark.more
def test_a_redis_that_is_lost_and_restored_ends_with_the_sums_of_the_log_or_says_what_is_missing(
    apache_kafka: Kafka, metrics_file: Path, tmp_path: Path
) -> None:
    program("redis-server", "install Redis (Debian: redis-server)")

    def run(commands: str) -> None:
        """Run commands of the page in the data folder, on this server's port."""
        bash = str(program("bash", "install it"))
        done = subprocess.run(
            [bash, "-euo", "pipefail", "-c", commands.replace("6379", str(redis.port))],
            cwd=tmp_path / "redis",
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def lose_and_restore() -> None:
        redis.kill()
        run(RESTORE)
        redis.start()

    with PlacedRedis(tmp_path / "redis", free_ports(1)[0]) as redis:
        deployment = Deployment(apache_kafka, redis.url, metrics_file)
        with deployment.store:
            with deployment.worker():
                deployment.produce(traffic(deployment, 40, seed=1))
                deployment.wait_until_counted()
                positions = [int(one) for one in deployment.owners("next")]
                run(BACK_UP)
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
