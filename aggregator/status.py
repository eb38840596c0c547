"""What operations looks at: outcomes and rates of metrics, and how far partitions are counted."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from importlib.metadata import version

import msgspec

from aggregator.answers import Moment
from aggregator.keys import counted_keys
from aggregator.moments import iso
from aggregator.store import TORN, Overview
from aggregator.watermark import NEVER
from estimators import Metric

RATE_SECONDS = 15.0
"""Rates are over about so many seconds."""
STALE_SECONDS = 60.0
"""Over more than that a rate says nothing of now."""
SHORTEST_SECONDS = 0.5
READINGS = 40
COUNTED = ("accepted", "duplicate")
"""Outcomes of reports that are not in the dead-letter topic."""


class MetricStatus(msgspec.Struct, frozen=True):
    """A metric's reports by outcome; accepted ones a second, null until it was read twice.

    `event_time` is the latest that was counted (null for a minimum or maximum, whose answers are of
    no time), `updated` when the last report reached Kafka.
    """

    outcomes: dict[str, int]
    reports_per_second: float | None
    event_time: Moment | None
    updated: Moment | None


class PartitionStatus(msgspec.Struct, frozen=True):
    """How far a partition is counted: messages behind as of its last commit, and offsets lost.

    `reason` is why it is halted.
    """

    partition: int
    lag: int
    halted: bool
    reason: str
    gap: int
    epoch: int
    committed: Moment | None


class ServiceStatus(msgspec.Struct, frozen=True):
    """The whole deployment; `redis` is "ok", or why it does not answer."""

    metrics: dict[str, MetricStatus]
    partitions: list[PartitionStatus]
    deadletters: dict[str, int]
    redis: str
    version: str


class Rates:
    """Reports a second, from successive readings of what was accepted.

    Parameters
    ----------
    clock : callable
        Seconds that never go back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._readings: deque[tuple[float, Mapping[str, int]]] = deque(maxlen=READINGS)
        self._lock = threading.Lock()

    def note(self, accepted: Mapping[str, int]) -> dict[str, float]:
        """Add a reading of reports by metric; return the rates since the oldest recent one."""
        now = self._clock()
        with self._lock:
            if not self._readings or now - self._readings[-1][0] >= SHORTEST_SECONDS:
                self._readings.append((now, accepted))
            while len(self._readings) > 2 and now - self._readings[1][0] >= RATE_SECONDS:
                self._readings.popleft()
            if now - self._readings[0][0] > STALE_SECONDS:
                self._readings.popleft()
            then, before = self._readings[0]
        if now - then < SHORTEST_SECONDS:
            return {}
        return {
            name: max(0.0, (count - before.get(name, 0)) / (now - then))
            for name, count in accepted.items()
        }


def status(overview: Overview, metrics: Mapping[str, Metric], rates: Rates) -> ServiceStatus:
    """Return the status from what was read of all partitions."""
    outcomes: dict[str, Counter[str]] = {name: Counter() for name in metrics}
    deadletters: Counter[str] = Counter()
    for standing in overview.partitions.values():
        for key, count in standing.counts.items():
            outcome, _, name = key.partition(":")
            if name in outcomes:
                outcomes[name][outcome] += count
            if outcome not in COUNTED:
                deadletters[outcome] += count
    speeds = rates.note({name: found["accepted"] for name, found in outcomes.items()})
    return ServiceStatus(
        metrics={
            name: _metric(overview, metric, dict(outcomes[name]), speeds.get(name))
            for name, metric in metrics.items()
        },
        partitions=[
            *(_partition(number, one.owner) for number, one in overview.partitions.items()),
            *(
                PartitionStatus(number, 0, True, str(error), 0, 0, None)
                for number, error in overview.unreadable.items()
            ),
        ],
        deadletters=dict(deadletters),
        redis="ok",
        version=version("dither"),
    )


def unreachable(reason: str) -> ServiceStatus:
    """Return the status while Redis does not answer."""
    return ServiceStatus({}, [], {}, reason, version("dither"))


def _metric(
    overview: Overview, metric: Metric, outcomes: dict[str, int], speed: float | None
) -> MetricStatus:
    keys, standings = counted_keys(metric), overview.partitions.values()
    marks = [s.watermarks[key] for s in standings for key in keys if key in s.watermarks]
    times = [] if metric.has_rounds else [m.latest for m in marks if m.latest != NEVER]
    return MetricStatus(
        outcomes,
        speed,
        iso(max(times, default=None)),
        iso(max((mark.arrived for mark in marks), default=None)),
    )


def _partition(number: int, owner: Mapping[str, str]) -> PartitionStatus:
    done = int(owner.get("next", 0))
    updated = owner.get("updated")
    return PartitionStatus(
        partition=number,
        lag=max(0, int(owner.get("high", done)) - max(0, done)),
        halted=bool(owner.get("halted")) or done == TORN,
        reason=owner.get("halted", ""),
        gap=int(owner.get("gap", 0)),
        epoch=int(owner.get("epoch", 0)),
        committed=iso(None if updated is None else int(updated)),
    )
