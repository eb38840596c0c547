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
    """A type of event on the estimates topic, published once per id.

    Attributes
    ----------
    name : str
        The CloudEvents attribute `type`.
    ids_key_name : str
        The name in Redis of the set of published ids.
    message : str
        The name in the AsyncAPI document.
    summary : str
        When it is published, in a sentence.
    key : str
        The contents of the Kafka message's key.
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
    """Group and help of its commands, by name; the command `x` is `x` in its module `x_command`."""

    def tables(self) -> Sequence[TableKind[Any, Any]]:
        """Return its kinds of tables in the definitions file."""
        return ()

    def plan(self, metric_class: type[Metric]) -> type[ReadingPlan[Any]] | None:
        """Return the plan for a class of metrics; None: another feature or the core has it."""
        return None

    def event_types(self) -> Sequence[EventType]:
        """Return its types of events."""
        return ()

    def due_events(self, publication: Publication) -> DueEvents | None:
        """Return a finder of due events, used while this process publishes."""
        return None

    def samples(self) -> type[Samples] | None:
        """Return its exported samples."""
        return None

    def routes(self) -> Sequence[Operation]:
        """Return its HTTP operations."""
        return ()


def features() -> tuple[Feature, ...]:
    """Return the features of the service, imported on first use: the core is below them."""
    registered: tuple[Feature, ...] = importlib.import_module("aggregator.features").FEATURES
    return registered
