"""The hub of live events: one reader for all who follow.

Once a second, while anybody follows, Redis is read in a few round trips, and each metric that has
changed is estimated once, however many clients there are. An event supersedes the earlier ones of
its kind and metric, so the latest of each is all that is kept: whoever comes back with the id of
any event of this process gets what is newer, and nothing is kept per client but a bounded queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import redis
import structlog
from sse_starlette import ServerSentEvent

from aggregator import status
from aggregator.answers import answer
from aggregator.reader import Frame, Reader, Window
from aggregator.status import Rates
from aggregator.store import Overview
from estimators import Estimate
from estimators.weights import DEFAULT_POLICY

log = structlog.get_logger()

PERIOD_SECONDS = 1.0
QUEUE_EVENTS = 256
"""How far a client may fall behind: more than half a minute for seven metrics that change."""
RETRY_MS = 2_000
MOST_CATEGORIES = 1_000
"""Kept of an answer for the clients."""
GATHER_SECONDS = 0.05
"""Who joins within it is served by one reading."""
EARLY = 0.9
"""Of a period: readings are not exactly as far apart."""
KEPT_ENCODINGS = 4
"""Of an event: most clients ask for the same number of categories."""


class PolicyChange(msgspec.Struct, frozen=True):
    """The weights that are in force for a metric from now on."""

    metric: str
    policy: str


@dataclasses.dataclass(frozen=True)
class Live:
    """An estimate, shown to each client with as many categories as it likes.

    It keeps the largest categories alone, and not the sums: it may wait for slow clients.
    """

    window: Window
    found: Estimate
    labels: int

    @classmethod
    def of(cls, window: Window, found: Estimate) -> Live:
        """Return what is kept of an estimate."""
        bare = dataclasses.replace(window, statistic=window.statistic[:0])
        return cls(bare, found.top(MOST_CATEGORIES), len(found.labels))

    def data(self, top: int) -> Any:
        """Return the answer."""
        shown = answer(self.window, self.found, top)
        return msgspec.structs.replace(shown, left_out=max(0, self.labels - top))


@dataclasses.dataclass(eq=False)
class Event:
    """Something that happened, encoded once for all clients that see it alike."""

    number: int
    run: str
    kind: str
    metric: str
    value: Any
    _encoded: dict[int, bytes] = dataclasses.field(default_factory=dict)

    def encoded(self, top: int) -> bytes:
        """Return the event as it goes over the wire."""
        key = top if isinstance(self.value, Live) else 0
        known = self._encoded.get(key)
        if known is not None:
            return known
        value = self.value.data(top) if isinstance(self.value, Live) else self.value
        data = msgspec.json.encode(value).decode()
        event = ServerSentEvent(data, event=self.kind, id=f"{self.run}-{self.number}", sep="\n")
        encoded = event.encode()
        if len(self._encoded) < KEPT_ENCODINGS:
            self._encoded[key] = encoded
        return encoded


class Follower:
    """A client: what it follows, and what it has not been sent yet.

    Parameters
    ----------
    metrics : frozenset of str
    top : int
        Categories or coordinates of an answer.
    after : int
        Number of the last event that it has seen.
    room : int
        Events that may wait; with more it is cut off.
    cut : callable
        Ends its connection.
    """

    def __init__(
        self, metrics: frozenset[str], top: int, after: int, room: int, cut: Callable[[], None]
    ) -> None:
        self.metrics, self.top, self.after = metrics, top, after
        self.queue: asyncio.Queue[Event | None] = asyncio.Queue(room)
        self.is_cut = False
        self._cut = cut

    def offer(self, event: Event) -> None:
        """Queue an event that is followed; cut the client off if it is too far behind."""
        if self.is_cut or (event.metric and event.metric not in self.metrics):
            return
        try:
            self.queue.put_nowait(event)
        except asyncio.QueueFull:
            log.warning("client cut off", events=self.queue.qsize())
            self.end()
            self._cut()

    def end(self) -> None:
        """Send nothing more."""
        self.is_cut = True
        while not self.queue.empty():
            self.queue.get_nowait()
        self.queue.put_nowait(None)

    async def frames(self) -> AsyncIterator[bytes]:
        """Yield events as bytes, until the end."""
        yield f"retry: {RETRY_MS}\n\n".encode()
        while (event := await self.queue.get()) is not None:
            yield event.encoded(self.top)


class Hub:
    """Reads for all followers at once.

    Parameters
    ----------
    reader : Reader
    rates : Rates
        Told of every reading.
    period : float
        Seconds between two readings.
    room : int
        Events that may wait for a client, beside a snapshot.
    """

    def __init__(
        self,
        reader: Reader,
        rates: Rates,
        period: float = PERIOD_SECONDS,
        room: int = QUEUE_EVENTS,
    ) -> None:
        self.reader, self.rates, self.period = reader, rates, period
        self.room = room + 2 * len(reader.metrics) + 1
        self.run = secrets.token_hex(4)
        self.followers: set[Follower] = set()
        self._joining: set[Follower] = set()
        self._latest: dict[tuple[str, str], Event] = {}
        self._versions: dict[str, str] = {}
        self._due: dict[tuple[str, str], float] = {}
        self._number = 0
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._threads = anyio.CapacityLimiter(1)

    def __len__(self) -> int:
        """Return how many follow."""
        return len(self.followers) + len(self._joining)

    @contextlib.contextmanager
    def follow(
        self, metrics: frozenset[str], top: int, last_id: str, cut: Callable[[], None]
    ) -> Iterator[Follower]:
        """Follow metrics, from what is known now or what is newer than an event that was seen."""
        follower = Follower(metrics, top, self._seen(last_id), self.room, cut)
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
        """Read soon: somebody joined, or changed something."""
        self._wake.set()

    async def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def _seen(self, last_id: str) -> int:
        """Return the number in an id; 0, before everything, if it is none of this process."""
        run, _, number = last_id.rpartition("-")
        known = run == self.run and number.isascii() and number.isdecimal() and len(number) < 19
        return int(number) if known else 0

    async def _poll(self) -> None:
        while len(self):
            self._wake.clear()
            joined = set(self._joining)
            try:
                await self._look()
            except redis.RedisError as error:
                self._publish("status", "", status.unreachable(f"Redis does not answer: {error}"))
            except Exception:
                log.exception("live estimates failed")
            self._welcome(joined & self._joining)
            await self._pause()

    async def _pause(self) -> None:
        """Wait for the next reading: a period, or less if somebody joins meanwhile."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), self.period)
            await asyncio.sleep(GATHER_SECONDS)

    def _welcome(self, joined: set[Follower]) -> None:
        latest = sorted(self._latest.values(), key=lambda event: event.number)
        for follower in joined:
            self._joining.discard(follower)
            self.followers.add(follower)
            for event in latest:
                if event.number > follower.after:
                    follower.offer(event)

    async def _look(self) -> None:
        """Read how far everything is counted; estimate what has changed and is followed."""
        overview = await self._in_thread(self.reader.store.overview)
        found = status.status(overview, self.reader.metrics, self.rates)
        for name in self.reader.metrics:
            policy = overview.policies.get(name, DEFAULT_POLICY)
            self._publish("policy", name, PolicyChange(name, policy))
        if self._is_due("status", ""):
            self._publish("status", "", found)
        followed = frozenset[str]().union(*(f.metrics for f in (*self.followers, *self._joining)))
        for name in self.reader.metrics:
            if name not in followed:
                continue
            try:
                live = await self._in_thread(self._estimate, overview, name)
            except redis.RedisError:
                raise
            except Exception:
                log.exception("a live estimate failed", metric=name)
                continue
            if live is not None:
                self._publish("estimate", name, live)

    def _estimate(self, overview: Overview, name: str) -> Live | None:
        frame: Frame = self.reader.frame(overview, name)
        known = self._latest.get(("estimate", name))
        same = known is not None and known.value.window.policy == frame.policy
        if self._versions.get(name) == frame.version or (
            same and not self._is_due("estimate", name)
        ):
            return None
        window = frame.filled(self.reader.sum(frame))
        live = Live.of(window, self.reader.answer(window))
        self._versions[name] = frame.version
        return live

    def _publish(self, kind: str, metric: str, value: Any) -> None:
        known = self._latest.get((kind, metric))
        if known is not None and kind != "estimate" and known.value == value:
            return
        self._number += 1
        self._due[kind, metric] = time.monotonic() + self.period * EARLY
        event = Event(self._number, self.run, kind, metric, value)
        self._latest[kind, metric] = event
        for follower in self.followers:
            follower.offer(event)

    def _is_due(self, kind: str, metric: str) -> bool:
        """Whether a period has passed since the last event of its kind."""
        return time.monotonic() >= self._due.get((kind, metric), 0.0)

    async def _in_thread(self, call: Callable[..., Any], *args: Any) -> Any:
        return await anyio.to_thread.run_sync(call, *args, limiter=self._threads)
