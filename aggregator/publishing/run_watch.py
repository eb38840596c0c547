"""Takes runs through final panes in turns: what they find is published, then where they stand."""

from __future__ import annotations

import abc
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import redis

from aggregator.errors import StateUnreadable
from aggregator.publishing.events import Event
from aggregator.publishing.published_log import PublishedLog
from aggregator.reading.reader import Reader
from aggregator.storage.lease import Lease
from aggregator.storage.progress import TopicProgress

TURN_SECONDS = 1.0
"""A run that has many panes to look at goes on in its next turn."""


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
    reader : Reader
    published : PublishedLog
        Knows which events there are already.
    lease : Lease
        Only its holder stores how runs stand.
    source : str
        The CloudEvents attribute `source` of the events.
    runs : sequence of Run
    """

    def __init__(
        self, reader: Reader, published: PublishedLog, lease: Lease, source: str, runs: Sequence[R]
    ) -> None:
        self._reader, self._published, self._lease = reader, published, lease
        self._source, self._runs = source, runs

    @abc.abstractmethod
    def found(
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
    def key(self, run: R) -> str:
        """Return the key of its state in Redis."""

    def committed(self, event: Event) -> None:
        """See an event that was published."""

    def turns(self, overview: TopicProgress, partitions: int) -> Iterator[list[Event]]:
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
        closed = self._reader.finality_watermarks(overview, partitions)
        failed: Exception | None = None
        for run in self._runs:
            before, events = run.position, list[Event]()
            deadline = time.monotonic() + TURN_SECONDS
            try:
                for found in self.found(run, overview, closed):
                    events += [one for one in found if not self._published.is_known(one)]
                    if time.monotonic() > deadline:
                        break
            except StateUnreadable as error:
                failed = failed or error
            except redis.RedisError:
                raise
            except Exception as error:  # within a pane: what is in memory may be half of a step
                failed = failed or error
                continue
            self._published.check()
            yield events
            if run.position != before:
                state: Any = msgspec.msgpack.encode(run.stored())
                self._lease.write([["SET", self.key(run), state]])
            for event in events:
                self.committed(event)
        if failed is not None:
            raise failed
