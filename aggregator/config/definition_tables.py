"""Tables of a file of definitions that watch a metric: what they share, and how they are read."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, NoReturn, TypeVar, get_type_hints

import msgspec
from msgspec import structs

from estimators import DefinitionError, LocalMetric, Metric
from estimators.comparison.distributions import limit_indices
from estimators.durations import milliseconds
from estimators.errors import nearest, readable
from estimators.metrics.attributes import NO_VALUE, OTHER_VALUE
from estimators.metrics.validation import check_name
from estimators.shapes import Shape

Table = TypeVar("Table", bound=msgspec.Struct)
Definition = TypeVar("Definition", bound="Watch")
Where = Mapping[str, str | None]
"""Values of attributes by name; None for devices that did not say."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watch:
    """What comparisons and alarms have in common.

    Parameters
    ----------
    name : str
    metric : str
        The metric that is watched.
    start_ms : int
        Where it begins, in ms since the epoch.
    """

    added: ClassVar[tuple[str, ...]] = ()
    """Fields of later versions, which mean nothing where they are empty."""
    name: str
    metric: str
    start_ms: int

    @property
    def key(self) -> str:
        """Its name and 32 bits of what it means: one that was changed is another."""
        facts = dataclasses.asdict(self)
        for name in self.added:
            if not facts[name]:
                del facts[name]
        text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
        return f"{self.name}@{hashlib.sha256(text.encode()).hexdigest()[:8]}"


class Checks:
    """Checks the values of one table, and refuses them by their keys.

    Parameters
    ----------
    table : str
        As in a file: ``alarms.NAME``.
    given : mapping
        What stands there, with defaults.
    metrics : mapping of str to Metric
    """

    def __init__(self, table: str, given: Mapping[str, Any], metrics: Mapping[str, Metric]) -> None:
        self._table, self._given, self._metrics = table, given, metrics

    def refuse(self, key: str, expected: str) -> NoReturn:
        """Raise DefinitionError for a key."""
        raise DefinitionError(f"{self._table}.{key}", self._given.get(key), expected)

    def metric(self, key: str) -> LocalMetric:
        """Return the metric that a key names."""
        name = self._given[key]
        if name not in self._metrics:
            self.refuse(key, f"a metric: {nearest(name, self._metrics)}")
        found = self._metrics[name]
        if not isinstance(found, LocalMetric):
            self.refuse(key, "a metric with local privacy that is not searched for in rounds")
        return found

    def where(self, key: str, metric: LocalMetric) -> dict[str, str | None]:
        """Return the values of attributes that a key has, ``"none"`` as None."""
        values = self._given.get(key, {})
        self.attributes(key, list(values), metric)
        found: dict[str, str | None] = {}
        for name, value in values.items():
            assert metric.slicing is not None  # noqa: S101
            known = [*metric.slicing.attributes[name], OTHER_VALUE, NO_VALUE]
            if value not in known:
                self.refuse(key, f"for {name} {nearest(value, known)}")
            found[name] = None if value == NO_VALUE else value
        return found

    def attributes(self, key: str, names: Sequence[str], metric: LocalMetric) -> None:
        """Refuse names that are no attributes of a metric, or come twice.

        Parameters
        ----------
        key : str
            Where they stand.
        names : sequence of str
        metric : LocalMetric
        """
        if len(set(names)) < len(names):
            self.refuse(key, "each attribute once")
        known = [] if metric.slicing is None else [*metric.slicing.attributes]
        for name in names:
            if name not in known:
                there = nearest(name, known) if known else "none, because its definition has no by"
                self.refuse(key, f"attributes in `by` of metric {metric.name!r}: {there}")

    def categories(self, metric: LocalMetric) -> tuple[str, ...] | None:
        """Return the categories that are named, all of which the metric must have."""
        named = self._given.get("categories")
        if named is None:
            return None
        if not named:
            self.refuse("categories", "one category or more, or nothing: all")
        try:
            labels, _ = metric.domain.select(named)
        except ValueError as error:
            self.refuse("categories", str(error))
        return tuple(labels)

    def quantiles(self, metric: LocalMetric) -> tuple[str, ...] | None:
        """Return the names of the quantiles that are given, which a distribution has."""
        given = self._given.get("quantiles")
        if given is None:
            return None
        if metric.shape is not Shape.DISTRIBUTION:
            self.refuse("quantiles", f"none: metric {metric.name!r} is of kind {metric.kind!r}")
        if not given:
            self.refuse("quantiles", "one quantile or more, or nothing: those of the definition")
        try:
            return metric.domain.select(given)[0]
        except ValueError as error:
            self.refuse("quantiles", str(error))

    def below(self, metric: LocalMetric) -> tuple[float, ...]:
        """Return the edges of a distribution whose shares are watched; none of other kinds."""
        given = tuple(self._given["below"])
        if not given and metric.shape is Shape.DISTRIBUTION:
            self.refuse("below", "edges between bins, as in [250]: the shares below are watched")
        try:
            limit_indices((metric, metric), given, self._given.get("categories"), ratio=False)
        except ValueError as error:
            self.refuse("below", str(error).rpartition(": expected ")[2])
        return given

    def duration(self, key: str, unit_ms: int, unit: str) -> int:
        """Return a duration in ms, a multiple of a unit and above zero.

        Parameters
        ----------
        key : str
        unit_ms : int
        unit : str
            The unit in words.
        """
        try:
            found = milliseconds(self._given[key])
        except ValueError as error:
            self.refuse(key, str(error))
        if not found or found % unit_ms:
            self.refuse(key, f"a multiple of {unit}")
        return found

    def start(self, unit_ms: int, unit: str) -> int:
        """Return where it begins, in ms since the epoch."""
        found: Any = self._given["start"]
        expected = "a date and time with its offset, such as 2026-11-20T00:00:00Z"
        if isinstance(found, str):
            try:
                found = datetime.datetime.fromisoformat(found)
            except ValueError:
                self.refuse("start", expected)
        if not isinstance(found, datetime.datetime) or found.tzinfo is None:
            self.refuse("start", expected)
        moment = round(found.timestamp() * 1000)
        if moment < 0 or moment % unit_ms:
            self.refuse("start", f"a moment at which a stretch of {unit} begins")
        return moment


def grain_ms(metric: LocalMetric, *, sliced: bool) -> tuple[int, str]:
    """Return the shortest stretch of which there are sums, in ms and in words."""
    if sliced and metric.slicing is not None:
        return metric.slicing.pane_ms, f"by_pane of metric {metric.name!r}"
    return metric.pane_ms, f"the pane of metric {metric.name!r}, {metric.pane}"


@dataclasses.dataclass(frozen=True)
class TableKind(Generic[Table, Definition]):
    """A kind of tables in a file of definitions, ``[KIND.NAME]``.

    Attributes
    ----------
    kind : str
    keys : struct
        The keys of a table, as TOML has them.
    define : callable
        Makes a definition of a name, a table and checks of its values.
    """

    kind: str
    keys: type[Table]
    define: Callable[[str, Table, Checks], Definition]

    def read(
        self, document: Mapping[str, Any], metrics: Mapping[str, Metric], source: str
    ) -> dict[str, Definition]:
        """Return the definitions of this kind in a file, by name.

        Parameters
        ----------
        document : mapping
            The file.
        metrics : mapping of str to Metric
            Those of the file.
        source : str
            The file's path, for messages.

        Raises
        ------
        DefinitionError
            With the file, the key, the value and what was expected.
        """
        tables = document.get(self.kind, {})
        if not isinstance(tables, dict):
            raise DefinitionError(self.kind, tables, f"tables [{self.kind}.NAME]", source)
        definitions = {}
        for name, given in tables.items():
            place = f"{self.kind}.{name}"
            try:
                check_name(name)
            except ValueError as error:
                raise DefinitionError(place, name, f"as its name {error}", source) from None
            try:
                table = _converted(self.keys, place, given)
                checks = Checks(place, structs.asdict(table), metrics)
                definitions[name] = self.define(name, table, checks)
            except DefinitionError as error:
                raise DefinitionError(error.key, error.value, error.expected, source) from None
        return definitions


def _converted(keys: type[Table], place: str, given: Any) -> Table:
    """Return a table with the types that its keys have."""
    if not isinstance(given, dict):
        raise DefinitionError(place, given, f"a table [{place}]")
    types = get_type_hints(keys)
    for key, value in given.items():
        if key not in types:
            raise DefinitionError(f"{place}.{key}", value, f"a known key: {nearest(key, types)}")
        try:
            msgspec.convert(value, types[key])
        except msgspec.ValidationError as error:
            raise DefinitionError(f"{place}.{key}", value, readable(error)) from None
    for field in structs.fields(keys):
        if field.required and field.name not in given:
            raise DefinitionError(f"{place}.{field.name}", None, "a value")
    return msgspec.convert(given, keys)
