"""The hub of live events: one reader for all followers.

While it has followers, the hub reads Redis once a second, and estimates each changed metric once.
It reads only metrics that somebody follows, and less often if that would take more than a small
share of a core. It keeps the latest event of each kind and metric: a client that returns with the
id of an event of this process gets all newer ones. Each client has a bounded queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import redis
import structlog

from aggregator.config.live_metrics import current
from aggregator.errors import StateUnreadable
from aggregator.reading import status
from aggregator.reading.reader import MetricReader
from aggregator.reading.status import ServiceStatus
from aggregator.reading.window import Window
from aggregator.storage.progress import TopicProgress
from aggregator.web.http.problem_responses import redis_failure
from aggregator.web.live import Follower, Live, LiveEvent, PolicyChange
from producers.gateway.clients import UNKNOWN_CLIENT, Client

log = structlog.get_logger()

PERIOD_SECONDS = 1.0
MAX_PROCESSOR_SHARE = 0.07
"""The most processor time for reads and estimates, as a share of a core. Encoding, and reads for
clients that join, are not included.
"""
CALM_SHARE, CALM_PERIODS = 0.01, 6
"""The hub uses at most this share of a core, if pauses of at most so many periods suffice for
it."""
METRICS_PER_READ = 32
"""How many metrics are read together; their events are sent before the next ones are read."""
QUEUE_EVENTS = 256
"""The longest queue of a client: half a minute of events of seven changing metrics."""
GATHER_SECONDS = 0.05
"""Clients that join within this time share one read."""
DUE_SHARE = 0.9
"""Events are due after this share of a period, because periods vary."""


class Hub:
    """Reads the state for all followers together.

    Parameters
    ----------
    reader : MetricReader
        Reads the sums in Redis.
    show : callable
        Returns the status of the service, given the progress of counting.
    period : float
        The least number of seconds between two reads.
    room : int
        The number of events that may wait for a client, besides a snapshot.
    """

    def __init__(
        self,
        reader: MetricReader,
        show: Callable[[TopicProgress], ServiceStatus],
        period: float = PERIOD_SECONDS,
        room: int = QUEUE_EVENTS,
    ) -> None:
        self.reader, self.show, self.period = reader, show, period
        self._room = room
        self.run = secrets.token_hex(4)
        self.followers: set[Follower] = set()
        self._joining: set[Follower] = set()
        self._latest: dict[tuple[str, str], LiveEvent] = {}
        self._versions: dict[str, str] = {}
        self._due: dict[tuple[str, str], float] = {}
        self._unreadable: list[str] = []
        self._number = 0
        self._busy_seconds = 0.0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._threads, self._encoding = anyio.CapacityLimiter(1), anyio.CapacityLimiter(1)

    def __len__(self) -> int:
        """Return the number of followers."""
        return len(self.followers) + len(self._joining)

    def count_streams(self, client: Client) -> int:
        """Return the number of a client's streams."""
        return sum(follower.client == client for follower in (*self.followers, *self._joining))

    @property
    def room(self) -> int:
        """How many events may wait for a client: a snapshot of all metrics and a reserve."""
        return self._room + 2 * len(self.reader.metrics) + 1

    @contextlib.contextmanager
    def follow(
        self,
        metrics: frozenset[str] | None,
        top: int,
        last_id: str,
        cut: Callable[[], None],
        client: Client = UNKNOWN_CLIENT,
    ) -> Iterator[Follower]:
        """Follow metrics from their current state, or from the events after a given one.

        `metrics`: names of metrics; None for all, including later ones; `top`: the most categories
        or coordinates that are shown; `last_id`: the id of the last event that the follower has
        received, or empty; `cut`: ends the follower's connection; `client`: the client that asks.
        """
        last_number = self._number_of(last_id)
        follower = Follower(metrics, top, last_number, self.room, cut, self._encoding, client)
        self._joining.add(follower)
        self.wake()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll(), name="hub")
        try:
            yield follower
        finally:
            self._joining.discard(follower)
            self.followers.discard(follower)

    def wake(self) -> None:
        """Read soon, because there is a new follower or something has changed."""
        self._wake.set()

    async def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def _number_of(self, last_id: str) -> int:
        """Return the number in an event's id if this process made the event; otherwise 0."""
        run, _, number = last_id.rpartition("-")
        is_own = run == self.run and number.isascii() and number.isdecimal() and len(number) < 19
        return int(number) if is_own else 0

    async def _poll(self) -> None:
        while len(self):
            self._wake.clear()
            self._busy_seconds = 0.0
            joined = set(self._joining)
            try:
                await self._read()
            except (redis.RedisError, StateUnreadable) as error:
                self._publish(
                    "status", "", status.unreachable(redis_failure(error), self.reader.metrics)
                )
            except Exception:
                log.exception("live estimates failed")
            self._admit_followers(joined & self._joining)
            await self._pause()

    async def _pause(self) -> None:
        """Wait for a period; longer after a costly read, shorter if a client joins."""
        calm_seconds = min(self._busy_seconds / CALM_SHARE, CALM_PERIODS * self.period)
        seconds = max(self.period, calm_seconds, self._busy_seconds / MAX_PROCESSOR_SHARE)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), seconds)
            await asyncio.sleep(GATHER_SECONDS)

    def _admit_followers(self, joined: set[Follower]) -> None:
        latest = sorted(self._latest.values(), key=lambda event: event.number)
        for follower in joined:
            self._joining.discard(follower)
            self.followers.add(follower)
            for event in latest:
                if event.number > follower.after:
                    follower.offer(event)

    async def _read(self) -> None:
        """Read the progress, and estimate the changed metrics that have followers."""
        overview = await self._in_thread(self.reader.store.overview)
        new_status = await self._in_thread(self.show, overview)
        metrics = current(self.reader.metrics)
        for key in [key for key in self._latest if key[1] and key[1] not in metrics]:
            del self._latest[key]  # the metric's definition was removed
            self._versions.pop(key[1], None)
        for name in metrics:
            policy = overview.policies.get(name, metrics[name].policies[0])
            self._publish("policy", name, PolicyChange(name, policy))
        if self._is_due("status", ""):
            missing = [*dict.fromkeys([*new_status.missing, *self._unreadable])]
            self._publish("status", "", msgspec.structs.replace(new_status, missing=missing))
        clients = (*self.followers, *self._joining)
        names = [name for name in metrics if any(client.follows(name) for client in clients)]
        unreadable: list[str] = []
        for begin in range(0, len(names), METRICS_PER_READ):
            group = names[begin : begin + METRICS_PER_READ]
            for name, live in await self._in_thread(self._estimate, overview, group, unreadable):
                self._publish("estimate", name, live)
        self._unreadable = unreadable

    def _estimate(
        self, overview: TopicProgress, names: Sequence[str], unreadable: list[str]
    ) -> list[tuple[str, Live]]:
        """Return the changed estimates; append to `unreadable` why some metrics cannot be read."""
        changed: list[Window] = []
        for name in names:
            with _isolated(name, unreadable):
                described = self.reader.describe(overview, name)
                if self._is_changed(described):
                    changed.append(described)
        estimates = []
        for described, total in zip(changed, self.reader.read_totals(changed), strict=True):
            name = described.metric.name
            with _isolated(name, unreadable):
                window = self.reader.read(described) if total is None else total
                estimates.append((name, Live.of(window, self.reader.cached_answer(window))))
                self._versions[name] = described.version
        return estimates

    def _is_changed(self, described: Window) -> bool:
        """Return whether a metric's estimate has changed, and is due or has a new policy."""
        name = described.metric.name
        last_event = self._latest.get(("estimate", name))
        is_same_policy = last_event and last_event.value.window.policy == described.policy
        is_new = self._versions.get(name) != described.version
        return is_new and (not is_same_policy or self._is_due("estimate", name))

    def _publish(self, kind: str, metric: str, value: Any) -> None:
        last_event = self._latest.get((kind, metric))
        if last_event is not None and kind != "estimate" and last_event.value == value:
            return
        self._number += 1
        self._due[kind, metric] = time.monotonic() + self.period * DUE_SHARE
        event = LiveEvent(self._number, self.run, kind, metric, value)
        self._latest[kind, metric] = event
        for follower in self.followers:
            follower.offer(event)

    def _is_due(self, kind: str, metric: str) -> bool:
        """Return whether a period has passed since a metric's last event of this kind."""
        return time.monotonic() >= self._due.get((kind, metric), 0.0)

    async def _in_thread(self, call: Callable[..., Any], *args: Any) -> Any:
        return await anyio.to_thread.run_sync(self._timed, call, *args, limiter=self._threads)

    def _timed(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call a function, and add up the processor time of its thread."""
        began = time.thread_time()
        try:
            return call(*args)
        finally:
            self._busy_seconds += time.thread_time() - began


@contextlib.contextmanager
def _isolated(name: str, unreadable: list[str]) -> Iterator[None]:
    """Log or record a metric's failure, so that other metrics continue; raise failures of Redis."""
    try:
        yield
    except redis.RedisError:
        raise
    except StateUnreadable as error:
        unreadable.append(str(error))
    except Exception:
        log.exception("a live estimate failed", metric=name)
