"""Runs over final panes, such as those of alarms: their names, and their states in Redis."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

import msgspec

from aggregator.config.definition_tables import Watch
from aggregator.errors import StateUnreadable
from aggregator.lazy_log import LazyLog
from aggregator.reading.reader import MetricReader
from aggregator.state.pane_keys import metric_key
from aggregator.storage.progress import TopicProgress
from aggregator.storage.redis_keys import publisher_key
from producers.wire.decoding import decode_msgpack

D = TypeVar("D", bound=Watch)
S = TypeVar("S", bound=msgspec.Struct)


class Run(abc.ABC, Generic[D, S]):
    """Takes the final panes of a definition's metrics in order, and keeps a state in Redis.

    Parameters
    ----------
    stored : struct, optional
        The state to resume; by default the run starts anew.

    Attributes
    ----------
    name : str
        The definition's name with a 32-bit hash of the definitions that the state depends on.
    """

    kind: ClassVar[str]
    """What the definition defines: ``alarm`` or ``comparison``."""
    noun: ClassVar[str]
    """The kind with its article."""
    state_class: ClassVar[type[Any]]
    published: ClassVar[tuple[str, str]]
    """The level and the text of the log line about a published event."""

    def __init__(self, reader: MetricReader, definition: D, stored: S | None = None) -> None:
        self.reader, self.definition = reader, definition
        self.state_key = self.key_of(reader, definition)
        self.name = self.state_key.rpartition(":")[2]

    @classmethod
    def resumed(cls, reader: MetricReader, definition: D) -> Self:
        """Return a run that resumes the state in Redis, if there is one."""
        return cls(reader, definition, cls.read_state(reader, definition))

    @classmethod
    def key_of(cls, reader: MetricReader, definition: D) -> str:
        """Return the Redis key of the state of a definition's run."""
        metrics = [reader.metric(name) for name in definition.metric_names]
        keys = [metric_key(metric.name, metric.revision) for metric in metrics]
        slicings = [metric.slicing if definition.sliced else None for metric in metrics]
        keys += ["" if slicing is None else slicing.key for slicing in slicings]
        name = definition.hashed(" ".join((definition.key, *keys)))
        return f"{publisher_key(reader.store.topic)}:{cls.kind}:{name}"

    @classmethod
    def read_state(cls, reader: MetricReader, definition: D) -> S | None:
        """Return the state in Redis; None if it is missing or unusable.

        A run without a state computes it again from the panes, and replaces the unusable one.
        """
        key = cls.key_of(reader, definition)
        try:
            (state,) = reader.store.ask([("GET", key)])
            return None if state is None else decode_msgpack(state, cls.state_class)
        except (ValueError, StateUnreadable) as error:
            about = {cls.kind: key.rpartition(":")[2], "error": str(error)}
            LazyLog(f"dither.{cls.kind}s").warning(f"state of {cls.noun} is unreadable", **about)
            return None

    @abc.abstractmethod
    def due(
        self, overview: TopicProgress, closed: Mapping[str, int]
    ) -> Iterator[Sequence[msgspec.Struct]]:
        """Process the next final panes, and yield the data of the events of each pane.

        Panes up to `closed` (event time in ms, by metric) are final. The iteration stops at a pane
        that changed while it was read; the next call continues there.
        """

    @abc.abstractmethod
    def event_key(self, data: Any) -> str:
        """Return the id and key of an event, given its data."""

    @property
    @abc.abstractmethod
    def position(self) -> object:
        """A value that changes whenever the run's state does."""

    @abc.abstractmethod
    def stored(self) -> S:
        """Return the run's state in its stored form."""
