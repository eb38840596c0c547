"""Workers that join and leave every second: partitions change hands all the time, sums do not."""

from __future__ import annotations

import random
import threading
import time

import pytest

from tests.services.faults.play import Devices, read, replayed
from tests.support.running.deployment import Deployment
from tests.support.running.fleet import Fleet
from tests.support.running.servers import Kafka

SEED = 5
SECONDS = 60.0


@pytest.mark.slow
def test_a_storm_of_rebalances_changes_no_byte(apache_kafka: Kafka, deployment: Deployment) -> None:
    rng = random.Random(SEED)
    fleet = Fleet(deployment.flags, deployment.metrics_file.with_name("workers.log"))
    devices, over = Devices(deployment, SEED), threading.Event()
    reporting = threading.Thread(target=devices.report, args=[over])
    reporting.start()
    try:
        fleet.keep(2)
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends:
            if len(fleet.processes) < 3 or rng.random() < 0.5:
                fleet.join()
            else:
                rng.choice([fleet.leave, fleet.kill])(rng.random())
            fleet.keep(1)
            threading.Event().wait(1.0)
        over.set()
        reporting.join()
        fleet.keep(1)
        deployment.wait_until_counted(180)
    finally:
        over.set()
        fleet.stop()
    logs = read(deployment)
    assert deployment.state() == replayed(deployment, logs)
    owners = sum(int(deployment.store.owner(n)["epoch"]) for n in deployment.store.partitions())
    assert owners > 10 * deployment.partitions, "partitions changed hands all the time"
    assert deployment.verify().verified
