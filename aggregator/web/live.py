"""Live events: each event is encoded once, and each client has a bounded queue."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import structlog
from sse_starlette import ServerSentEvent

from aggregator.reading.serialization import answer
from aggregator.reading.windows import Window
from estimators import Estimate
from producers.gateway.clients import UNKNOWN_CLIENT, Client

log = structlog.get_logger()

RETRY_MS = 2_000
MOST_CATEGORIES = 1_000
"""Kept of an answer for the clients."""
KEPT_ENCODINGS = 4
"""Of an event: most clients ask for the same number of categories."""


class PolicyChange(msgspec.Struct, frozen=True):
    """The weights that are in force for a metric from now on."""

    metric: str
    policy: str


@dataclasses.dataclass(frozen=True)
class Live:
    """An estimate, shown to each client with as many categories as it likes.

    It keeps the largest categories alone, and not the sums: it may wait for slow clients. Those of
    a search's round, two numbers a level, say how many have answered.
    """

    window: Window
    found: Estimate
    labels: int

    @classmethod
    def of(cls, window: Window, found: Estimate) -> Live:
        """Return what is kept of an estimate."""
        return cls(window.bare(), found.top(MOST_CATEGORIES), len(found.labels))

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

    def known(self, top: int) -> bytes | None:
        """Return the event as it goes over the wire, if that is known."""
        return self._encoded.get(self._key(top))

    def encoded(self, top: int) -> bytes:
        """Return the event as it goes over the wire."""
        known = self.known(top)
        if known is not None:
            return known
        value = self.value.data(top) if isinstance(self.value, Live) else self.value
        data = msgspec.json.encode(value).decode()
        event = ServerSentEvent(data, event=self.kind, id=f"{self.run}-{self.number}", sep="\n")
        encoded = event.encode()
        if len(self._encoded) < KEPT_ENCODINGS:
            self._encoded[self._key(top)] = encoded
        return encoded

    def _key(self, top: int) -> int:
        return top if isinstance(self.value, Live) else 0


@dataclasses.dataclass(eq=False)
class Follower:
    """A client: what it follows, and what it has not been sent yet.

    Parameters
    ----------
    metrics : frozenset of str, optional
        None: all, also those that are defined later.
    top : int
        Categories or coordinates of an answer.
    after : int
        Number of the last event that it has seen.
    room : int
        Events that may wait; with more it is cut off.
    cut : callable
        Ends its connection.
    encoding : CapacityLimiter
        Of the threads that encode events: it takes milliseconds, and each client may ask for
        another number of categories.
    client : Client
        Who it is.
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
        self.queue: asyncio.Queue[Event | None] = asyncio.Queue(self.room)

    def follows(self, metric: str) -> bool:
        """Return whether it follows a metric."""
        return self.metrics is None or metric in self.metrics

    def offer(self, event: Event) -> None:
        """Queue an event that is followed; cut the client off if it is too far behind."""
        if self.is_cut or (event.metric and not self.follows(event.metric)):
            return
        try:
            self.queue.put_nowait(event)
        except asyncio.QueueFull:
            log.warning("client cut off", events=self.queue.qsize())
            self.end()
            self.cut()

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
            known = event.known(self.top)
            if known is None:
                encode = anyio.to_thread.run_sync
                known = await encode(event.encoded, self.top, limiter=self.encoding)
            yield known
