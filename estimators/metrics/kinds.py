"""The kinds of metric: their domains, the shapes of their answers, and their ways of collecting."""

from __future__ import annotations

import dataclasses
import enum
import functools
from typing import Any

from estimators.errors import nearest
from estimators.metrics.bins import Bins
from estimators.metrics.categories import Categories
from estimators.metrics.domains import Ball, Domain, ValueRange
from estimators.plugin_registry import PluginRegistry
from estimators.shapes import Shape

KIND_GROUP = "dither.metrics"


class Way(enum.Enum):
    """A way of collecting reports."""

    LOCAL = "local"
    """Devices randomize their values."""
    TRUSTED = "trusted"
    """Devices send true values, of which only releases are shown."""
    SEARCH = "search"
    """Devices answer yes or no, in rounds."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of metric: the quantity that it estimates.

    Parameters
    ----------
    name : str
        The name in definitions.
    domain : type of Domain
        The domain of its values. The fields of the domain are the kind's keys in a definition.
    shape : Shape
        The shape of an answer.
    ways : frozenset of Way
        The possible ways of collecting, at most one for each `trust`.
    mechanism : str
        The default mechanism; empty if a definition must name one.
    """

    name: str
    domain: type[Domain]
    shape: Shape
    ways: frozenset[Way] = frozenset({Way.LOCAL})
    mechanism: str = ""

    @functools.cached_property
    def keys(self) -> dict[str, dataclasses.Field[Any]]:
        """The kind's keys in a definition: the fields of its domain."""
        fields = dataclasses.fields(self.domain)
        return {field.name: field for field in fields if field.init and field.name != "metric"}


LABEL_NAMES = ("categories", "coordinates")
"""What domains may call the labels in answers."""
_PRIVATE_OR_TRUSTED, _SEARCH_ONLY = frozenset({Way.LOCAL, Way.TRUSTED}), frozenset({Way.SEARCH})
_BUILT_IN = (
    Kind("mean", ValueRange, Shape.NUMBER, _PRIVATE_OR_TRUSTED, mechanism="auto"),
    Kind("vector_mean", Ball, Shape.NAMED_NUMBERS, mechanism="caps"),
    Kind("frequency", Categories, Shape.NAMED_NUMBERS, _PRIVATE_OR_TRUSTED, mechanism="auto"),
    Kind("distribution", Bins, Shape.DISTRIBUTION, mechanism="dyadic_hadamard"),
    Kind("minimum", ValueRange, Shape.SEARCH, _SEARCH_ONLY),
    Kind("maximum", ValueRange, Shape.SEARCH, _SEARCH_ONLY),
)


def _accept(name: str, kind: Any) -> Kind:
    if not isinstance(kind, Kind) or kind.name != name:
        raise ValueError(f"an estimators.metrics.kinds.Kind with the name {name!r}")
    if missing := sorted(kind.domain.__abstractmethods__):
        raise ValueError(f"a kind whose domain has {', '.join(missing)}")
    names_by_shape = {Shape.NAMED_NUMBERS: LABEL_NAMES, Shape.DISTRIBUTION: ("quantiles",)}
    names = names_by_shape.get(kind.shape, ("",))
    if kind.domain.names not in names:
        expected = " or ".join(map(repr, names))
        raise ValueError(f"a domain with names = {expected}, found {kind.domain.names!r}")
    return kind


KINDS: PluginRegistry[Kind] = PluginRegistry(
    KIND_GROUP, {kind.name: kind for kind in _BUILT_IN}, _accept
)
"""The kinds by name: those above, and those of entry points of the group :data:`KIND_GROUP`."""


def kind_named(name: str) -> Kind:
    """Return the kind with this name; raise ValueError if there is none."""
    if name not in KINDS:
        raise ValueError(nearest(name, KINDS))
    return KINDS[name]
