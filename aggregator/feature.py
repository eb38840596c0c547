"""The protocol between the core of the service and its features.

A feature is one folder of `aggregator/features/` with all that the service does for it. The core
goes over the tuple of features, asks each for what it offers, and knows none by its name.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import msgspec

    from aggregator.config.definition_tables import TableKind
    from aggregator.monitoring.samples import Samples
    from aggregator.publishing.due_events import DueEvents, Publication
    from aggregator.reading.plans.base import Plan
    from aggregator.web.operations import Operation
    from estimators import Metric


@dataclasses.dataclass(frozen=True)
class EventType:
    """A type of event on the estimates topic that comes once for each id.

    Attributes
    ----------
    name : str
        The CloudEvents attribute `type`.
    data : struct
        What an event has.
    kept_as : str
        The name in Redis of the set of ids that were published.
    message : str
        The name in the AsyncAPI document.
    summary : str
        When it comes, in a sentence.
    key : str
        What the key of the Kafka message is made of.
    """

    name: str
    data: type[msgspec.Struct]
    kept_as: str
    message: str
    summary: str
    key: str


class Feature:
    """What a feature offers: hooks, of which it overrides those that it needs.

    Attributes
    ----------
    commands : mapping of str to (str, str)
        Group and help of its commands, by name. The command `NAME` is the attribute `NAME` of the
        module `NAME_command` of the feature's folder.
    """

    commands: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def tables(self) -> Sequence[TableKind[Any, Any]]:
        """Return its kinds of tables in the file of definitions."""
        return ()

    def plan(self, collected: type[Metric]) -> type[Plan[Any]] | None:
        """Return how metrics that are collected so are read, if this feature says it."""
        return None

    def event_types(self) -> Sequence[EventType]:
        """Return the types of events that it publishes."""
        return ()

    def due_events(self, publication: Publication) -> DueEvents | None:
        """Return what finds the events that are due, for as long as this process publishes."""
        return None

    def samples(self) -> type[Samples] | None:
        """Return what it exports to Prometheus."""
        return None

    def routes(self) -> Sequence[Operation]:
        """Return its operations over HTTP."""
        return ()


def features() -> tuple[Feature, ...]:
    """Return the features of the service, which are loaded when somebody asks for the first time.

    The core is below the features and cannot import them.
    """
    found: tuple[Feature, ...] = importlib.import_module("aggregator.features").FEATURES
    return found
