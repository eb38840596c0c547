"""Live events, encoded once, and the followers' bounded queues."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import structlog
from sse_starlette import ServerSentEvent

from aggregator.reading.serialization import answer
from aggregator.reading.window import Window
from estimators import Estimate
from producers.gateway.rate_limits import UNKNOWN_CLIENT, Client

log = structlog.get_logger()

RETRY_MS = 2_000
MAX_CATEGORIES = 1_000
GATHER_SECONDS = 0.05
"""Events within this time are sent in one piece."""
MAX_EVENTS_TOGETHER = 32
"""The most events that are sent in one piece."""
MAX_CACHED_ENCODINGS = 4
"""How many encodings of an event are cached; most clients ask for equally many categories."""


class PolicyChange(msgspec.Struct, frozen=True):
    """The weight policy of a metric, in force from now on."""

    metric: str
    policy: str


@dataclasses.dataclass(frozen=True)
class Live:
    """An estimate, for clients that ask for different numbers of categories.

    It may wait for slow clients, so it keeps only the largest categories, and no sums except those
    of the round of a search.
    """

    window: Window
    estimate: Estimate
    labels: int

    @classmethod
    def of(cls, window: Window, estimate: Estimate) -> Live:
        """Return an estimate with its largest categories only."""
        return cls(window.bare(), estimate.top(MAX_CATEGORIES), len(estimate.labels))

    def data(self, top: int) -> Any:
        """Return the answer with the `top` largest categories."""
        shown = answer(self.window, self.estimate, top)
        return msgspec.structs.replace(shown, left_out=max(0, self.labels - top))


@dataclasses.dataclass(eq=False)
class LiveEvent:
    """An event, encoded once for all clients with the same number of categories."""

    number: int
    run: str
    kind: str
    metric: str
    value: Any
    _encoded: dict[int, bytes] = dataclasses.field(default_factory=dict)

    def cached_encoding(self, top: int) -> bytes | None:
        """Return the event's bytes with the `top` largest categories; None if not cached."""
        return self._encoded.get(self._key(top))

    def encode(self, top: int) -> bytes:
        """Return the event's bytes with the `top` largest categories."""
        cached = self.cached_encoding(top)
        if cached is not None:
            return cached
        value = self.value.data(top) if isinstance(self.value, Live) else self.value
        payload = msgspec.json.encode(value).decode()
        event = ServerSentEvent(payload, event=self.kind, id=f"{self.run}-{self.number}", sep="\n")
        encoded = event.encode()
        if len(self._encoded) < MAX_CACHED_ENCODINGS:
            self._encoded[self._key(top)] = encoded
        return encoded

    def _key(self, top: int) -> int:
        return top if isinstance(self.value, Live) else 0


@dataclasses.dataclass(eq=False)
class Follower:
    """The events that a client follows, and the queue of those that wait for it.

    Parameters
    ----------
    metrics : frozenset of str, optional
        The metrics that the client follows; None for all, including later ones.
    top : int
        The most categories or coordinates of an answer.
    after : int
        The number of the last event that the client has received.
    room : int
        The number of events that may wait.
    cut : callable
        Ends the connection if more events wait.
    encoding : CapacityLimiter
        The limit on threads that encode events, which takes milliseconds.
    client : Client
        The client that follows.
    """

    metrics: frozenset[str] | None
    top: int
    after: int
    room: int
    cut: Callable[[], None]
    encoding: anyio.CapacityLimiter
    client: Client = UNKNOWN_CLIENT
    is_cut: bool = dataclasses.field(default=False, init=False)

    def __post_init__(self) -> None:
        self.queue: asyncio.Queue[LiveEvent | None] = asyncio.Queue(self.room)

    def follows(self, metric: str) -> bool:
        """Return whether the client follows a metric."""
        return self.metrics is None or metric in self.metrics

    def offer(self, event: LiveEvent) -> None:
        """Queue an event if the client follows it; cut the client off if its queue is full."""
        if self.is_cut or (event.metric and not self.follows(event.metric)):
            return
        try:
            self.queue.put_nowait(event)
        except asyncio.QueueFull:
            log.warning("client cut off", events=self.queue.qsize())
            self.end()
            self.cut()

    def end(self) -> None:
        """Drop the waiting events, and end the client's stream."""
        self.is_cut = True
        while not self.queue.empty():
            self.queue.get_nowait()
        self.queue.put_nowait(None)

    async def frames(self) -> AsyncIterator[bytes]:
        """Yield the waiting events as bytes, several at a time, until :meth:`end`."""
        yield f"retry: {RETRY_MS}\n\n".encode()
        while True:
            waiting = [await self.queue.get()]
            await asyncio.sleep(GATHER_SECONDS)
            while len(waiting) < MAX_EVENTS_TOGETHER and not self.queue.empty():
                waiting.append(self.queue.get_nowait())
            if self.is_cut:
                return
            events = [event for event in waiting if event is not None]
            if all(event.cached_encoding(self.top) is not None for event in events):
                yield self._encode(events)
            else:
                yield await anyio.to_thread.run_sync(self._encode, events, limiter=self.encoding)

    def _encode(self, events: Sequence[LiveEvent]) -> bytes:
        return b"".join(event.encode(self.top) for event in events)
