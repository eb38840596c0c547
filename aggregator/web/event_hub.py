"""The hub of live events: one reader for all followers.

While it has followers, the hub reads Redis once a second, and estimates each changed metric once.
It reads only metrics that somebody follows, and less often if that would take more than a small
share of a core; no metric waits for another one's costly estimate. The hub keeps the latest event
of each kind and metric: a client that returns with the id of an event of this process gets all
newer ones. Each client has a bounded queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Sequence
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
from aggregator.web.live_followers import Follower, Live, LiveEvent, PolicyChange
from producers.gateway.rate_limits import UNKNOWN_CLIENT, Client

log = structlog.get_logger()

PERIOD_SECONDS = 1.0
MAX_PROCESSOR_SHARE = 0.07
"""The most processor time for metrics of equal cost, as a share of a core; at most twice as much if
their costs differ. Encoding is not included."""
CALM_SHARE, CALM_PERIODS = 0.01, 6
"""The hub uses at most this share of a core, if pauses of at most so many periods suffice for
it."""
QUICK_SECONDS = 0.1
"""An estimate of more processor time has a thread of its own, so that no other waits for it."""
METRICS_PER_READ = 32
"""How many metrics are read together."""
QUEUE_EVENTS = 256
"""The longest queue of a client: half a minute of events of seven changing metrics."""
GATHER_SECONDS = 0.05
"""Clients that join within this time share one read."""
DUE_SHARE = 0.9
"""Work is due after this share of its pause, because pauses vary."""
OVERVIEW_WORK = ""
"""The name of the work besides estimates: reading the progress, and finding changed metrics."""


class Turns:
    """When to estimate each metric again, by the processor time that its last estimate took.

    A metric pauses as if all changing metrics took as long as it does, but no longer than if it
    waited for the work of all. So a costly metric keeps no cheap one waiting.

    Parameters
    ----------
    period : float
        The shortest pause in seconds.
    clock : callable
        Returns monotonic seconds.
    """

    def __init__(self, period: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.period, self._clock = period, clock
        self._seconds: dict[str, float] = {}
        self._ended_at: dict[str, float] = {}
        self._changing: set[str] = set()

    def note(self, name: str, seconds: float) -> None:
        """Record that work has ended, and its processor time."""
        self._seconds[name], self._ended_at[name] = seconds, self._clock()
        self._changing.add(name)

    def rest(self, name: str) -> None:
        """Record that a metric does not change, or that nobody follows it."""
        self._changing.discard(name)

    def seconds(self, name: str) -> float:
        """Return the processor time of the last estimate; 0 if there was none."""
        return self._seconds.get(name, 0.0)

    def pause(self, work: float) -> float:
        """Return the pause in seconds after so many seconds of work."""
        calm = min(work / CALM_SHARE, CALM_PERIODS * self.period)
        return max(self.period, calm, work / MAX_PROCESSOR_SHARE)

    def is_due(self, name: str) -> bool:
        """Return whether the pause after the last estimate is over."""
        changing = self._changing.copy()
        work = min(len(changing) * self.seconds(name), sum(map(self.seconds, changing)))
        ended_at = self._ended_at.get(name, float("-inf"))
        return self._clock() >= ended_at + DUE_SHARE * self.pause(work)


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
        self.reader, self.show, self.turns = reader, show, Turns(period)
        self._room = room
        self.run = secrets.token_hex(4)
        self.followers: set[Follower] = set()
        self._joining: set[Follower] = set()
        self._latest: dict[tuple[str, str], LiveEvent] = {}
        self._versions: dict[str, str] = {}
        self._unreadable: dict[str, str] = {}
        self._number = 0
        self._work = 0.0
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop
        self._task: asyncio.Task[None] | None = None
        self._costly: asyncio.Task[None] | None = None
        self._encoding = anyio.CapacityLimiter(1)

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
            self._loop = asyncio.get_running_loop()
            self._task = self._loop.create_task(self._poll(), name="hub")
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
        for task in (self._task, self._costly):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    def _number_of(self, last_id: str) -> int:
        """Return the number in an event's id if this process made the event; otherwise 0."""
        run, _, number = last_id.rpartition("-")
        is_own = run == self.run and number.isascii() and number.isdecimal() and len(number) < 19
        return int(number) if is_own else 0

    async def _poll(self) -> None:
        while len(self):
            self._wake.clear()
            joined = set(self._joining)
            try:
                await self._read(joined)
            except (redis.RedisError, StateUnreadable) as error:
                failed = status.unreachable(redis_failure(error), self.reader.metrics)
                self._publish("status", "", failed)
            except Exception:
                log.exception("live estimates failed")
            self._admit_followers(joined)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self.turns.pause(self._work))
                await asyncio.sleep(GATHER_SECONDS)

    def _admit_followers(self, joined: set[Follower], pending: Collection[str] = ()) -> None:
        """Admit followers with the latest events, but for estimates of `pending` metrics."""
        latest = sorted(self._latest.values(), key=lambda event: event.number)
        for follower in joined & self._joining:
            self._joining.discard(follower)
            self.followers.add(follower)
            for event in latest:
                is_pending = event.kind == "estimate" and event.metric in pending
                if event.number > follower.after and not is_pending:
                    follower.offer(event)

    async def _read(self, joined: set[Follower]) -> None:
        """Read the progress, and estimate the changed metrics that have followers."""
        metrics = current(self.reader.metrics)
        for key in [key for key in self._latest if key[1] and key[1] not in metrics]:
            del self._latest[key]  # the metric's definition was removed
            self._versions.pop(key[1], None)
            self._unreadable.pop(key[1], None)
            self.turns.rest(key[1])
        clients = (*self.followers, *self._joining)
        names = [name for name in metrics if any(client.follows(name) for client in clients)]
        for name in metrics.keys() - names:
            self.turns.rest(name)
            self._unreadable.pop(name, None)
        is_due = self.turns.is_due(OVERVIEW_WORK)
        in_thread = anyio.to_thread.run_sync
        overview, new_status, changed = await in_thread(self._due_changes, names)
        for name in metrics:
            with self._isolated(name):
                self._publish("policy", name, PolicyChange(name, overview.policy(metrics[name])))
        if is_due:
            missing = [*dict.fromkeys([*new_status.missing, *self._unreadable.values()])]
            self._publish("status", "", msgspec.structs.replace(new_status, missing=missing))
        quick, costly = list[Window](), list[Window]()
        for window in changed:
            seconds = self.turns.seconds(window.metric.name)
            (quick if seconds <= QUICK_SECONDS else costly).append(window)
        if costly and (self._costly is None or self._costly.done()):
            self._costly = asyncio.create_task(self._estimate_costly(costly))
        self._admit_followers(joined, {window.metric.name for window in quick})
        for begin in range(0, len(quick), METRICS_PER_READ):
            group = quick[begin : begin + METRICS_PER_READ]
            self._work += await in_thread(self._estimate, group)

    async def _estimate_costly(self, windows: Sequence[Window]) -> None:
        with contextlib.suppress(redis.RedisError):  # which the next read tells
            await anyio.to_thread.run_sync(self._estimate, windows)

    def _due_changes(
        self, names: Sequence[str]
    ) -> tuple[TopicProgress, ServiceStatus, list[Window]]:
        """Return the progress, the status, and the changed metrics that are due, cheapest first."""
        began = time.thread_time()
        overview = self.reader.store.overview()
        new_status = self.show(overview)
        changed = []
        for name in names:
            with self._isolated(name):
                window = self.reader.describe(overview, name)
                if self._is_changed(window):
                    changed.append(window)
        self._work = time.thread_time() - began
        self.turns.note(OVERVIEW_WORK, self._work)
        return overview, new_status, sorted(changed, key=self._expected_cost)

    def _is_changed(self, window: Window) -> bool:
        """Return whether a metric's estimate has changed, and is due or has a new policy."""
        name = window.metric.name
        last_event = self._latest.get(("estimate", name))
        is_same_policy = last_event and last_event.value.window.policy == window.policy
        if is_same_policy and not self.turns.is_due(name):
            return False
        is_new = self._versions.get(name) != window.version
        if not is_new:
            self.turns.rest(name)
            self._unreadable.pop(name, None)
        return is_new

    def _expected_cost(self, window: Window) -> tuple[bool, float, int]:
        """Return a sort key: metrics of known cost come first, others by the size of their sums."""
        seconds = self.turns.seconds(window.metric.name)
        return not seconds, seconds, window.metric.zero().nbytes

    def _estimate(self, windows: Sequence[Window]) -> float:
        """Estimate metrics and publish their events; break off after a costly one.

        It runs in a thread. It returns the processor time, without that of the costly one.
        """
        began = time.thread_time()
        for window, total in zip(windows, self.reader.read_totals(windows), strict=True):
            live, estimate_began = None, time.thread_time()
            with self._isolated(window.metric.name):
                content = self.reader.read(window) if total is None else total
                live = Live.of(content, self.reader.cached_answer(content))
            seconds = time.thread_time() - estimate_began
            self._loop.call_soon_threadsafe(self._note_estimate, window, live, seconds)
            if seconds > QUICK_SECONDS:
                self._loop.call_soon_threadsafe(self.wake)
                began += seconds
                break
        return time.thread_time() - began

    def _note_estimate(self, window: Window, live: Live | None, seconds: float) -> None:
        name = window.metric.name
        self.turns.note(name, seconds)
        if live is not None:
            self._versions[name] = window.version
            self._unreadable.pop(name, None)
            self._publish("estimate", name, live)

    def _publish(self, kind: str, metric: str, value: Any) -> None:
        last_event = self._latest.get((kind, metric))
        if last_event is not None and kind != "estimate" and last_event.value == value:
            return
        self._number += 1
        event = LiveEvent(self._number, self.run, kind, metric, value)
        self._latest[kind, metric] = event
        for follower in self.followers:
            follower.offer(event)

    @contextlib.contextmanager
    def _isolated(self, name: str) -> Iterator[None]:
        """Log or record a metric's failure, so that others continue; raise failures of Redis."""
        try:
            yield
        except redis.RedisError:
            raise
        except StateUnreadable as error:
            self._unreadable[name] = str(error)
        except Exception:
            log.exception("a live estimate failed", metric=name)
