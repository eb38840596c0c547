"""What finds events that are due: runs through final panes, and whatever else a feature has."""

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
"""A run that has many panes to look at goes on in its next turn."""


@dataclasses.dataclass(frozen=True)
class Publication:
    """The publication that a process leads.

    Attributes
    ----------
    reader : MetricReader
    published : PublishedLog
        Knows which events there are already.
    source : str
        The CloudEvents attribute `source` of the events.
    since_ms : int
        Panes that begin before are not published.
    """

    reader: MetricReader
    published: PublishedLog
    source: str
    since_ms: int


class DueEvents(Protocol):
    """Finds the events of one feature that are due.

    Attributes
    ----------
    comes_first : bool
        Whether its turn comes before every batch of final events, and not after it.
    """

    comes_first: bool

    def due_events(self, overview: TopicProgress, partitions: int) -> Iterator[list[Event]]:
        """Yield events that are due, in lists.

        Every list is to be published before the next one is asked for.

        Parameters
        ----------
        overview : TopicProgress
            As of now.
        partitions : int
            How many the reports topic has.
        """


class Run(Protocol):
    """What looks at final panes in order."""

    name: str

    @property
    def position(self) -> object:
        """Changes whenever its state does."""

    def stored(self) -> msgspec.Struct:
        """Return its state."""


R = TypeVar("R", bound=Run)


class RunWatch(abc.ABC, Generic[R]):
    """Runs of one kind, taken through the final panes of a deployment.

    Parameters
    ----------
    publication : Publication
    runs : sequence of Run
    """

    comes_first = False

    def __init__(self, publication: Publication, runs: Sequence[R]) -> None:
        self.publication, self._runs = publication, runs

    @abc.abstractmethod
    def events(
        self, run: R, overview: TopicProgress, closed: Mapping[str, int]
    ) -> Iterator[list[Event]]:
        """Yield the events of one pane after another.

        Parameters
        ----------
        run : Run
        overview : TopicProgress
            As of now.
        closed : mapping of str to int
            The event time in ms, by metric, up to which panes are final.
        """

    @abc.abstractmethod
    def state_key(self, run: R) -> str:
        """Return the key of its state in Redis."""

    def note_published(self, event: Event) -> None:
        """See an event that was published."""

    def due_events(self, overview: TopicProgress, partitions: int) -> Iterator[list[Event]]:
        """Yield the events of one run after another, some panes of each.

        Every list is to be published before the next one is asked for: only then is it stored how
        far the run has looked.

        Parameters
        ----------
        overview : TopicProgress
            As of now.
        partitions : int
            How many the reports topic has.

        Raises
        ------
        Exception
            Where a run fails, as for panes that cannot be read: after the other runs. It is then to
            be resumed from what is stored.
        """
        closed = self.publication.reader.finality_watermarks(overview, partitions)
        published = self.publication.published
        failed: Exception | None = None
        for run in self._runs:
            before, events = run.position, list[Event]()
            deadline = time.monotonic() + TURN_SECONDS
            try:
                for batch in self.events(run, overview, closed):
                    events += [event for event in batch if not published.is_known(event)]
                    if time.monotonic() > deadline:
                        break
            except StateUnreadable as error:
                failed = failed or error
            except redis.RedisError:
                raise
            except Exception as error:  # within a pane: what is in memory may be half of a step
                failed = failed or error
                continue
            published.check()
            yield events
            if run.position != before:
                state: Any = msgspec.msgpack.encode(run.stored())
                published.lease.write([["SET", self.state_key(run), state]])
            for event in events:
                self.note_published(event)
        if failed is not None:
            raise failed
