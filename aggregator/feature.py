"""The hooks through which the core of the service uses the features of `aggregator/features/`."""

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
    """A type of event on the estimates topic that is published once for each id.

    Attributes
    ----------
    name : str
        The CloudEvents attribute `type`.
    data : struct
        Its attribute `data`.
    kept_as : str
        The name in Redis of the set of published ids.
    message, summary : str
        The name in the AsyncAPI document, and a sentence on the event's cause.
    key : str
        Describes the key of the Kafka message.
    """

    name: str
    data: type[msgspec.Struct]
    kept_as: str
    message: str
    summary: str
    key: str


class Feature:
    """Hooks, of which a feature overrides those that it needs.

    Attributes
    ----------
    commands : mapping of str to (str, str)
        Group and help of its commands by name. The command `NAME` is the attribute `NAME` of the
        feature's module `NAME_command`.
    """

    commands: ClassVar[Mapping[str, tuple[str, str]]] = {}

    def tables(self) -> Sequence[TableKind[Any, Any]]:
        """Return its kinds of tables in the file of definitions."""
        return ()

    def plan(self, collected: type[Metric]) -> type[Plan[Any]] | None:
        """Return the plan for reading metrics of a class, if it belongs to this feature."""
        return None

    def event_types(self) -> Sequence[EventType]:
        """Return the types of its events."""
        return ()

    def due_events(self, publication: Publication) -> DueEvents | None:
        """Return the finder of due events while this process publishes."""
        return None

    def samples(self) -> type[Samples] | None:
        """Return its Prometheus metrics."""
        return None

    def routes(self) -> Sequence[Operation]:
        """Return its operations over HTTP."""
        return ()


def features() -> tuple[Feature, ...]:
    """Load the features of the service, which the core may not import."""
    loaded: tuple[Feature, ...] = importlib.import_module("aggregator.features").FEATURES
    return loaded
