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
    from aggregator.reading.plans.base import ReadingPlan
    from aggregator.web.operations import Operation
    from estimators import Metric


@dataclasses.dataclass(frozen=True)
class EventType:
    """A type of event on the estimates topic; an event with an id is published once.

    Attributes
    ----------
    name : str
        The CloudEvents attribute `type`.
    ids_key_name : str
        The name of the set of published ids in Redis.
    message : str
        The name of the message in the AsyncAPI document.
    summary : str
        When such an event is published, in a sentence.
    key : str
        What the key of the Kafka message contains.
    """

    name: str
    data: type[msgspec.Struct]
    ids_key_name: str
    message: str
    summary: str
    key: str


class Feature:
    """The hooks of a feature; each feature overrides those that it needs."""

    commands: ClassVar[Mapping[str, tuple[str, str]]] = {}
    """Group and help of its commands by name; command `x` is the function `x` of `x_command`."""

    def tables(self) -> Sequence[TableKind[Any, Any]]:
        """Return the feature's kinds of tables in the definitions file."""
        return ()

    def plan(self, metric_class: type[Metric]) -> type[ReadingPlan[Any]] | None:
        """Return the reading plan for a class of metrics; None if this feature has no such plan."""
        return None

    def event_types(self) -> Sequence[EventType]:
        """Return the feature's types of events."""
        return ()

    def due_events(self, publication: Publication) -> DueEvents | None:
        """Return a finder of due events, used while this process publishes."""
        return None

    def samples(self) -> type[Samples] | None:
        """Return the class that makes the feature's exported samples."""
        return None

    def routes(self) -> Sequence[Operation]:
        """Return the feature's HTTP operations."""
        return ()


def features() -> tuple[Feature, ...]:
    """Return all features; they are imported on first use, as they depend on the core."""
    registered: tuple[Feature, ...] = importlib.import_module("aggregator.features").FEATURES
    return registered
