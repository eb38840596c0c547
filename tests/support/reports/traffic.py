"""Reports of all kinds, for the services' tests."""

import numpy as np

from producers.wire.reports_pb2 import Attribute
from tests.support.reports.messages import EPOCH, batch
from tests.support.running.deployment import Deployment

HOUR = 3_600_000
COUNTRIES = ("DE", "FR", "GB")
"""The countries of the devices; the last one is not declared."""


def traffic(deployment: Deployment, batches: int, seed: int = 0) -> list[tuple[int, bytes]]:
    """Return batches of all metrics for all partitions, with event times of hour after hour."""
    delay, carrier, age = (deployment.metrics[name] for name in ("delay", "carrier", "age"))
    rng = np.random.default_rng(seed)
    found = []
    for i in range(batches):
        time, size, number = EPOCH + i * HOUR // 4, int(rng.integers(1, 40)), seed * 10**6 + 3 * i
        asked = [
            batch(
                delay,
                list(rng.uniform(-60, 180, size)),
                1.5,
                time,
                number,
                attributes=[Attribute(name="country", value=COUNTRIES[i % 3])],
            ),
            batch(carrier, list(rng.integers(0, 5, size)), 4, time, number + 1),
            batch(age, list(rng.uniform(0, 100, size)), 2, time, number + 2),
        ]
        found += [
            (int(rng.integers(0, deployment.partitions)), one.SerializeToString()) for one in asked
        ]
    return found
