"""Whoever reads Redis at any moment: what was final never changes, and is what the log says."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import redis

from aggregator.errors import StateUnreadable
from aggregator.state.pane_keys import metric_key
from aggregator.state.partition import Partition
from aggregator.state.watermark import CONFIRMING_BATCHES
from aggregator.storage.store import Store
from tests.models.simulation.cluster import TOPIC, Cluster
from tests.models.simulation.ledger import Violation
from tests.models.simulation.traffic import FUTURE_MS, METRICS, ONE_EACH, Sent, heartbeat
from tests.support.redis_contents import contents

KEY = metric_key(ONE_EACH.name, ONE_EACH.revision)
LOOKS, HEARTBEATS = 0.15, 0.02
"""How likely somebody reads, and a partition gets heartbeats, after a step."""

Counts = dict[int, np.ndarray[Any, Any]]
"""Sums over partitions by the start of the pane."""


class Finality:
    """Reads now and then, and has partitions closed by heartbeats, whenever that is."""

    def __init__(self, seed: int, cluster: Cluster, client: redis.Redis) -> None:
        self.seen: dict[int, bytes] = {}
        self._rng = random.Random(seed)
        self._cluster, self._client = cluster, client
        self._store = Store(client, TOPIC)

    def step(self) -> None:
        """Do what falls due after a step of the schedule."""
        if self._rng.random() < HEARTBEATS and self._cluster.exists:
            self._close()
        if self._rng.random() < LOOKS:
            self.look()

    def _close(self) -> None:
        """Write heartbeats to a partition, for the time that another has come to."""
        logs = self._cluster.logs
        arrived = [log.messages[-1].sent.arrived for log in logs if log.messages]
        if arrived:
            time = self._rng.choice(arrived)
            log = self._rng.choice(logs)
            beats = [heartbeat(self._rng, time) for _ in range(CONFIRMING_BATCHES)]
            log.write(Sent(beat, max(time, *arrived), 0) for beat in beats)

    def look(self) -> None:
        """Read what is final, and compare it with what was before."""
        try:
            overview = self._store.overview()
            overview.require_readable()
        except (StateUnreadable, redis.RedisError):
            return
        closed = overview.closed(KEY)
        for start, total in self._sums().items():
            if start + ONE_EACH.pane_ms <= closed:
                told = total.tobytes()
                if self.seen.setdefault(start, told) != told:
                    raise Violation(f"the pane at {start} was final, and is another one now")

    def _sums(self) -> Counts:
        found: Counts = {}
        for key, value in contents(self._client, f"*}}:pane:{KEY}:*").items():
            own = found.setdefault(int(key.rpartition(b":")[2]), ONE_EACH.zero())
            own += np.frombuffer(value, "<i8")
        return found

    def check(self) -> None:
        """Compare what was final at some moment with a recount of the whole log."""
        if len(self._cluster.incarnations) > 1 or any(log.low for log in self._cluster.logs):
            return
        expected: Counts = {}
        for log in self._cluster.logs:
            for start, total in _recounted(log.messages):
                own = expected.setdefault(start, ONE_EACH.zero())
                own += total
        for start, told in self.seen.items():
            if start not in expected or expected[start].tobytes() != told:
                raise Violation(f"the pane at {start} was final without reports of the log")


def _recounted(messages: list[Any]) -> Iterator[tuple[int, Any]]:
    state = Partition(METRICS, FUTURE_MS)
    state.count(messages)
    for key, pane in state.panes.items():
        if key.grain == "pane" and key.metric == KEY:
            yield key.start, pane.statistic
