"""Finders of due events: the features' protocol, and runs through final panes."""

from __future__ import annotations

import abc
import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import redis

from aggregator.errors import StateUnreadable
from aggregator.publishing.events import Event
from aggregator.publishing.published_log import PublishedLog
from aggregator.reading.reader import MetricReader
from aggregator.storage.progress import TopicProgress

TURN_SECONDS = 1.0
"""A run that takes longer continues with its next panes in the next turn."""


@dataclasses.dataclass(frozen=True)
class Publication:
    """The objects that every finder of due events gets."""

    reader: MetricReader
    published: PublishedLog
    source: str
    """The CloudEvents attribute `source` of the events."""
    since_ms: int
    """The start of the first published pane."""


class DueEvents(Protocol):
    """Finds the due events of one feature.

    Attributes
    ----------
    comes_first : bool
        Whether the feature's events are published before each batch of final events, not after it.
    """

    comes_first: bool

    def due_events(self, overview: TopicProgress, partitions: int) -> Iterator[list[Event]]:
        """Yield lists of due events; the caller publishes a list before it takes the next."""


class Run(Protocol):
    """A procedure that takes the final panes in order and keeps a state, such as an alarm."""

    name: str

    @property
    def position(self) -> object:
        """A value that differs whenever the run's state has changed."""

    def stored(self) -> msgspec.Struct:
        """Return the run's state in its stored form."""


R = TypeVar("R", bound=Run)


class RunWatch(abc.ABC, Generic[R]):
    """Feeds the final panes of a deployment to runs of one kind."""

    comes_first = False

    def __init__(self, publication: Publication, runs: Sequence[R]) -> None:
        self.publication, self._runs = publication, runs

    @abc.abstractmethod
    def events(
        self, run: R, overview: TopicProgress, closed: Mapping[str, int]
    ) -> Iterator[list[Event]]:
        """Yield the due events of a run, pane by pane.

        `run`: the run; `overview`: the progress of counting; `closed`: the event time in ms up to
        which panes are final, by metric.
        """

    @abc.abstractmethod
    def state_key(self, run: R) -> str:
        """Return the Redis key of a run's state."""

    def note_published(self, event: Event) -> None:
        """Do what must follow the publication of an event of these runs: by default, nothing."""

    def due_events(self, overview: TopicProgress, partitions: int) -> Iterator[list[Event]]:
        """Yield the due events run by run; a run may take only some of its panes in a turn.

        The caller publishes each list before it takes the next: only then is the run's state
        stored.

        Raises
        ------
        Exception
            The first failure of a run, raised after the events of the other runs (a RedisError at
            once); the failed run continues from its stored state.
        """
        closed = self.publication.reader.finality_watermarks(overview, partitions)
        published = self.publication.published
        first_error: Exception | None = None
        for run in self._runs:
            start_position, events = run.position, list[Event]()
            deadline = time.monotonic() + TURN_SECONDS
            try:
                for batch in self.events(run, overview, closed):
                    events += [event for event in batch if not published.is_known(event)]
                    if time.monotonic() > deadline:
                        break
            except StateUnreadable as error:
                first_error = first_error or error
            except redis.RedisError:
                raise
            except Exception as error:  # it may leave the run's state in memory inconsistent
                first_error = first_error or error
                continue
            published.verify_intact()
            yield events
            if run.position != start_position:
                state: Any = msgspec.msgpack.encode(run.stored())
                published.lease.write([["SET", self.state_key(run), state]])
            for event in events:
                self.note_published(event)
        if first_error is not None:
            raise first_error
