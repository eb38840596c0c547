"""Clocks that jump by days change nothing but what is measured with them."""

import dataclasses
import itertools
import time
from collections.abc import Iterator

import pytest

from aggregator.clock import Clock
from aggregator.storage.store import Store
from tests.services.faults.play import read, replay
from tests.support.reports.messages import DAY
from tests.support.reports.traffic import traffic
from tests.support.running.deployment import Deployment
from tests.support.running.servers import Kafka

JUMPS = [0, 5 * DAY, -5 * DAY, DAY, -DAY]
"""Milliseconds; within the retention of every metric here."""


@dataclasses.dataclass
class JumpingClock(Clock):
    """A machine's clock that is set anew whenever somebody looks at it."""

    jumps: Iterator[int] = dataclasses.field(default_factory=lambda: itertools.cycle(JUMPS))

    def now_ms(self) -> int:
        return super().now_ms() + next(self.jumps)


def produce_with_jumps(deployment: Deployment, messages: list[tuple[int, bytes]]) -> None:
    """Send messages whose Kafka timestamps are those of a clock that jumps."""
    now = int(1000 * time.time())
    times = [now + JUMPS[i // 7 % len(JUMPS)] for i in range(len(messages))]
    deployment.produce(messages, timestamp=times)


@pytest.fixture
def lenient(apache_kafka: Kafka, deployment: Deployment) -> Deployment:
    """A deployment whose topic takes timestamps of any day."""
    deployment.topic = apache_kafka.topic(
        6, message_timestamp_after_max_ms=10 * DAY, message_timestamp_before_max_ms=10 * DAY
    )
    deployment.settings.topics.reports = deployment.topic
    deployment.store = Store(deployment.store.client, deployment.topic)
    return deployment


def test_timestamps_and_a_workers_clock_that_jump_change_no_byte(lenient: Deployment) -> None:
    deployment = lenient
    produce_with_jumps(deployment, traffic(deployment, 60))
    with deployment.worker("jumping", JumpingClock()):
        deployment.wait_until_counted()
        produce_with_jumps(deployment, traffic(deployment, 60, seed=1))
        deployment.wait_until_counted()
    state = deployment.state()
    assert state == replay(deployment, read(deployment)).state
    outcome = deployment.verify()
    assert outcome.verified, outcome.differences
    assert outcome.messages == 360
