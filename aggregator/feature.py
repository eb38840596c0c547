"""The hooks through which the core of the service uses the features of `aggregator/features/`."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import msgspec

    from aggregator.config.definition_tables import TableKind
    from aggregator.monitoring.samples import Samples
    from aggregator.publishing.due_events import DueEvents, Publication
    from aggregator.reading.plans.base import ReadingPlan
    from aggregator.web.operations import Operation
    from estimators import Metric

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class EventType:
    """A type of event on the estimates topic; no id is published twice.

    Attributes
    ----------
    name : str
        The CloudEvents attribute `type`.
    data : type
        The class of the events' data.
    message : str
        The name of the message in the AsyncAPI document.
    summary : str
        When such an event is published, in a sentence.
    key : str
        What the key of the Kafka message contains.
    ids_key_name : str
        Of a feature's events: the name of the set of published ids in Redis.
    """

    name: str
    data: type[msgspec.Struct]
    message: str
    summary: str
    key: str
    ids_key_name: str = ""


class Feature:
    """A feature: a folder of `aggregator/features/` in which some modules have hooks.

    A hook's module is imported when the core first uses the hook.

    Parameters
    ----------
    name : str
        The folder's name.
    *modules : str
        The modules of the folder that have hooks; a hook whose module is missing has a default.
    metric_class : str
        The name of the class of metrics that `plan.py` reads, if the folder has such a module.
    commands : mapping
        The group and the help text of each command, by name; command `x` is the function `x` of
        `x_command.py`.
    """

    def __init__(
        self,
        name: str,
        *modules: str,
        metric_class: str = "",
        commands: Mapping[str, tuple[str, str]] = MappingProxyType({}),
    ) -> None:
        self.name, self._modules = name, modules
        self._metric_class, self.commands = metric_class, commands

    def tables(self) -> Sequence[TableKind[Any, Any]]:
        """Return the kinds of tables in the definitions file: `TABLE_KINDS` of `definitions.py`."""
        return self._hook("definitions", "TABLE_KINDS", ())

    def plan(self, metric_class: type[Metric]) -> type[ReadingPlan[Any]] | None:
        """Return `READING_PLAN` of `plan.py` if it is for this class of metrics; else None.

        The module is not imported for other classes.
        """
        if self._metric_class not in {base.__name__ for base in metric_class.__mro__}:
            return None
        return self._hook("plan", "READING_PLAN", None)

    def event_types(self) -> Sequence[EventType]:
        """Return the types of events: `EVENT_TYPES` of `due_events.py`."""
        return self._hook("due_events", "EVENT_TYPES", ())

    def due_events(self, publication: Publication) -> DueEvents | None:
        """Return a finder of due events, made by `find_due_events` of `due_events.py`; or None."""
        find: Callable[[Publication], DueEvents] | None
        find = self._hook("due_events", "find_due_events", None)
        return None if find is None else find(publication)

    def samples(self) -> type[Samples] | None:
        """Return the class that makes exported samples: `SAMPLES_CLASS` of `samples.py`."""
        return self._hook("samples", "SAMPLES_CLASS", None)

    def routes(self) -> Sequence[Operation]:
        """Return the HTTP operations: `HTTP_OPERATIONS` of `routes.py`."""
        return self._hook("routes", "HTTP_OPERATIONS", ())

    def _hook(self, module: str, name: str, default: T) -> T:
        if module not in self._modules:
            return default
        imported = importlib.import_module(f"aggregator.features.{self.name}.{module}")
        hook: T = getattr(imported, name)
        return hook


def features() -> tuple[Feature, ...]:
    """Return all features; they are imported on first use, because they depend on the core."""
    registered: tuple[Feature, ...] = importlib.import_module("aggregator.features").FEATURES
    return registered
