"""A topic's facts in Redis besides its sums: weights, rounds, definitions, workers."""

from __future__ import annotations

import time
from collections.abc import Sequence

from aggregator.storage import parsing
from aggregator.storage.commands import Commands
from aggregator.storage.redis_keys import (
    CHANGED_SUFFIX,
    changed_field,
    coordinator_key,
    deaths_key,
    definitions_key,
    expired_key,
    failed_searches_key,
    policies_key,
    publisher_key,
    rounds_key,
    stuck_key,
)
from estimators.weights import DEFAULT_POLICY

STUCK_MS = 60_000
"""The maximum age of a stuck worker's note; the worker of an older note has ended."""


class TopicRegistry:
    """The facts of a topic as a whole."""

    def __init__(self, commands: Commands, topic: str) -> None:
        self._commands, self._topic = commands, topic

    def policies(self) -> dict[str, str]:
        """Return the weight policies that were set, by metric name."""
        policies = self._commands.hash(policies_key(self._topic), parsing.texts)
        return {
            name: policy for name, policy in policies.items() if not name.endswith(CHANGED_SUFFIX)
        }

    def set_policy(self, metric: str, policy: str, now_ms: int | None = None) -> None:
        """Set a metric's weight policy, in force from the next read, and the time of its change.

        Parameters
        ----------
        metric : str
        policy : str
        now_ms : int, optional
            The time of the change, in ms since the epoch; now by default.
        """
        words: list[str | int] = [metric, policy]
        if self.policies().get(metric, DEFAULT_POLICY) != policy:
            now = time.time_ns() // 10**6 if now_ms is None else now_ms
            words += [changed_field(metric), now]
        self._commands.ask([("HSET", policies_key(self._topic), *words)])

    def rounds(self) -> dict[str, bytes]:
        """Return the last published rounds, by metric key."""
        return self._commands.hash(rounds_key(self._topic), parsing.names)

    def definitions(self) -> dict[str, bytes]:
        """Return all definitions by which anything was counted, by digest."""
        return self._commands.hash(definitions_key(self._topic), parsing.names)

    def store_definitions(self, digest: str, document: bytes) -> None:
        """Store definitions, before anything is counted by them."""
        self._commands.ask([("HSET", definitions_key(self._topic), digest, document.decode())])

    def publisher_status(self) -> tuple[bool, dict[str, int]]:
        """Return whether a publisher holds the lease, and the number of events by type.

        The types are ``final``, ``provisional``, ``alarm`` and ``decided``.
        """
        key = publisher_key(self._topic)
        reads = [("EXISTS", f"{key}:lease"), ("HGETALL", f"{key}:events")]
        held, events = self._commands.ask(reads)
        counts = parsing.counts(f"{key}:events", events)
        events_by_type = {name.rpartition(".")[2]: count for name, count in counts.items()}
        return bool(held), {"final": 0, "provisional": 0} | events_by_type

    def expired_panes(self, metrics: Sequence[str]) -> list[int]:
        """Return the number of panes of each metric that expired before their final event."""
        keys = [expired_key(publisher_key(self._topic), metric) for metric in metrics]
        return [int(number) for number in self._commands.ask([("ZCARD", key) for key in keys])]

    def failed_searches(self) -> dict[str, int]:
        """Return, by metric, the number of panes whose search failed and waits for a retry."""
        key = failed_searches_key(publisher_key(self._topic))
        return self._commands.hash(key, parsing.counts)

    def is_coordinator_running(self) -> bool:
        """Return whether a coordinator holds its lease."""
        (held,) = self._commands.ask([("EXISTS", f"{coordinator_key(self._topic)}:lease")])
        return bool(held)

    def worker_deaths(self) -> int:
        """Return the number of workers that died and were restarted."""
        key = deaths_key(self._topic)
        (deaths,) = self._commands.ask([("GET", key)])
        return parsing.integer(key, deaths or b"0", 0)

    def add_worker_death(self) -> None:
        """Count a worker that died."""
        self._commands.client.incr(deaths_key(self._topic))

    def stuck_workers(self, now_ms: int) -> dict[str, tuple[str, float]]:
        """Return the step of each stuck worker, and the seconds that it has been in the step."""
        stuck_workers = {}
        for worker, text in self._commands.hash(stuck_key(self._topic), parsing.texts).items():
            since_ms, _, remainder = text.partition(":")
            seconds, _, step = remainder.partition(":")
            if since_ms.isdecimal() and now_ms - int(since_ms) < STUCK_MS and seconds.isdecimal():
                stuck_workers[worker] = step, float(seconds)
        return stuck_workers

    def note_stuck(self, worker: str, step: str, seconds: float, now_ms: int) -> None:
        """Store how long a worker has been stuck in a step; 0 seconds delete its note.

        Parameters
        ----------
        worker, step : str
        seconds : float
        now_ms : int
            The time of the observation, in ms since the epoch.
        """
        key = stuck_key(self._topic)
        note = ("HSET", key, worker, f"{now_ms}:{seconds:.0f}:{step}")
        self._commands.ask([note if seconds else ("HDEL", key, worker), ("PEXPIRE", key, STUCK_MS)])
