"""A worker that the consumer group gives nothing."""

from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from aggregator.config.settings import Settings
from aggregator.counting.assigned_partition import WorkerContext
from aggregator.counting.assignment import IDLE_CHECK_SECONDS, Assignment
from aggregator.counting.watchdog import Watchdog
from aggregator.errors import DitherError
from aggregator.storage.store import Store
from tests.support.clocks import Hands


class Consumer:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def subscribe(self, *_: Any, **__: Any) -> None:
        self.calls.append("subscribe")

    def unsubscribe(self) -> None:
        self.calls.append("unsubscribe")


def test_a_worker_without_partitions_that_nobody_has_joins_again_or_ends(store: Store) -> None:
    clock, consumer, unowned = Hands(), Consumer(), list[int]()
    made: Any = SimpleNamespace(
        consumer=consumer,
        inspector=None,
        topic_id=str,
        partitions=lambda: 6,
        unowned=lambda _: unowned,
    )
    context = WorkerContext(Settings(), store, "idle", made, Watchdog(0, 0), clock)
    assignment = Assignment(context, {})
    assignment.subscribe(lambda _: None)

    def wait() -> None:
        clock.now += IDLE_CHECK_SECONDS
        assignment.rejoin_if_idle()

    assignment.rejoin_if_idle()
    with capture_logs() as logs:
        wait()
        wait()
    assert [line["event"] for line in logs] == ["owns no partitions, all have owners"]
    assert consumer.calls == ["subscribe"]
    unowned += [2, 5]
    wait()
    assert consumer.calls == ["subscribe", "unsubscribe", "subscribe"]
    with pytest.raises(DitherError, match=r"\[2, 5\] have no owner"):
        wait()
