"""Reads the tables in a file of definitions that watch a metric, such as alarms."""

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
from estimators.comparison.distributions import limit_indices, snapped_limits
from estimators.durations import milliseconds
from estimators.errors import nearest, readable
from estimators.metrics.attributes import NO_VALUE, OTHER_VALUE
from estimators.metrics.validation import check_name
from estimators.shapes import Shape

Table = TypeVar("Table", bound=msgspec.Struct)
Definition = TypeVar("Definition", bound="Watch")
Where = Mapping[str, str | None]
"""Values of attributes by name; None for devices that did not send one."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Watch:
    """The fields that comparisons and alarms share.

    `metric` is watched from `start_ms` on, in ms since the epoch.
    """

    added: ClassVar[tuple[str, ...]] = ()
    """The fields that were added later; while they are empty, the key does not depend on them."""
    texts: ClassVar[tuple[str, ...]] = ()
    """The fields with texts for readers, which may change at any time: not part of the key."""
    name: str
    metric: str
    start_ms: int

    @property
    def metric_names(self) -> tuple[str, ...]:
        """The names of the watched metrics."""
        return (self.metric,)

    @property
    def sliced(self) -> bool:
        """Whether slices of the metrics are watched."""
        return True

    @property
    def key(self) -> str:
        """The name and a 32-bit hash of the definition."""
        facts = dataclasses.asdict(self)
        for name in (*self.added, *self.texts):
            if name in self.texts or not facts[name]:
                del facts[name]
        return self.hashed(json.dumps(facts, sort_keys=True, separators=(",", ":")))

    def hashed(self, text: str) -> str:
        """Return the name with a 32-bit hash of a text."""
        return f"{self.name}@{hashlib.sha256(text.encode()).hexdigest()[:8]}"


class Checks:
    """Checks the values of one table; the error about an invalid value names its key.

    Parameters
    ----------
    table : str
        The name of the table in the file: ``alarms.NAME``.
    table_values : mapping
        The values of the table's keys, with defaults.
    metrics : mapping of str to Metric
        The metrics by name.
    """

    def __init__(
        self, table: str, table_values: Mapping[str, Any], metrics: Mapping[str, Metric]
    ) -> None:
        self._table, self._values, self._metrics = table, table_values, metrics

    def refuse(self, key: str, expected: str) -> NoReturn:
        """Raise DefinitionError about a key's value; `expected`: which values are valid."""
        raise DefinitionError(f"{self._table}.{key}", self._values.get(key), expected)

    def metric(self, key: str) -> LocalMetric:
        """Return the metric that a key names; refuse all but local metrics without rounds."""
        name = self._values[key]
        if name not in self._metrics:
            self.refuse(key, f"a metric: {nearest(name, self._metrics)}")
        named_metric = self._metrics[name]
        if not isinstance(named_metric, LocalMetric):
            self.refuse(key, "a metric with local privacy that is not searched for in rounds")
        return named_metric

    def where(self, key: str, metric: LocalMetric) -> dict[str, str | None]:
        """Return the values that a key requires, by attribute; the word ``none`` becomes None."""
        values = self._values.get(key, {})
        allowed_values = self.attributes(key, list(values), metric)
        for name, value in values.items():
            if value not in allowed_values[name]:
                self.refuse(key, f"for {name} {nearest(value, allowed_values[name])}")
        return {name: None if value == NO_VALUE else value for name, value in values.items()}

    def attributes(
        self, key: str, names: Sequence[str], metric: LocalMetric
    ) -> dict[str, list[str]]:
        """Return the allowed values of attributes, by name.

        Refuse names that are no attributes of the metric, or occur twice. `key`: the key of the
        table, for errors; `names`: the names of attributes; `metric`: the metric.
        """
        if len(set(names)) < len(names):
            self.refuse(key, "each attribute once")
        declared = {} if metric.slicing is None else metric.slicing.attributes
        allowed = "none, because its definition has no by"
        for name in names:
            if name not in declared:
                allowed = nearest(name, [*declared]) if declared else allowed
                self.refuse(key, f"attributes in `by` of metric {metric.name!r}: {allowed}")
        return {name: [*declared[name], OTHER_VALUE, NO_VALUE] for name in names}

    def categories(self, metric: LocalMetric) -> tuple[str, ...] | None:
        """Return the listed categories; None without a list.

        Refuse categories that the metric lacks.
        """
        selected = self._select("categories", metric, "one category or more, or nothing: all")
        if selected is None:
            return None
        labels, keys = selected
        if keys is not None and keys.dtype == object:
            self.refuse("categories", "categories alone: a share among is asked by name")
        return tuple(labels)

    def quantiles(self, metric: LocalMetric) -> tuple[str, ...] | None:
        """Return the names of the listed quantiles; None without a list.

        Refuse quantiles of any kind of metric but a distribution.
        """
        if self._values.get("quantiles") is not None and metric.shape is not Shape.DISTRIBUTION:
            self.refuse("quantiles", f"none: metric {metric.name!r} is of kind {metric.kind!r}")
        expected = "one quantile or more, or nothing: those of the definition"
        selected = self._select("quantiles", metric, expected)
        return None if selected is None else selected[0]

    def _select(self, key: str, metric: LocalMetric, expected: str) -> tuple[Any, Any] | None:
        """Return the labels and keys of the numbers that a list names; None without a list."""
        listed_names = self._values.get(key)
        if listed_names is None:
            return None
        if not listed_names:
            self.refuse(key, expected)
        try:
            return metric.domain.select(listed_names)
        except ValueError as error:
            self.refuse(key, str(error))

    def below(self, metric: LocalMetric) -> tuple[float, ...]:
        """Return the edges of a distribution below which the shares are watched."""
        edges = snapped_limits(metric, self._values["below"])
        if not edges and metric.shape is Shape.DISTRIBUTION:
            self.refuse("below", "edges between bins, as in [250]: the shares below are watched")
        try:
            limit_indices((metric, metric), edges, self._values.get("categories"), ratio=False)
        except ValueError as error:
            self.refuse("below", str(error).rpartition(": expected ")[2])
        return edges

    def duration(self, key: str, unit_ms: int, unit: str) -> int:
        """Return a key's duration in ms; refuse it unless it is a positive multiple of a unit.

        `key`: the key of the table; `unit_ms`: the unit in ms; `unit`: the unit in words.
        """
        try:
            duration_ms = milliseconds(self._values[key])
        except ValueError as error:
            self.refuse(key, str(error))
        if not duration_ms or duration_ms % unit_ms:
            self.refuse(key, f"a multiple of {unit}")
        return duration_ms

    def start(self, unit_ms: int, unit: str) -> int:
        """Return the table's start in ms since the epoch; refuse it unless a unit begins then.

        `unit_ms`: the unit in ms; `unit`: the unit in words.
        """
        start: Any = self._values["start"]
        expected = "a date and time with its offset, such as 2026-11-20T00:00:00Z"
        if isinstance(start, str):
            try:
                start = datetime.datetime.fromisoformat(start)
            except ValueError:
                self.refuse("start", expected)
        if not isinstance(start, datetime.datetime) or start.tzinfo is None:
            self.refuse("start", expected)
        moment = round(start.timestamp() * 1000)
        if moment < 0 or moment % unit_ms:
            self.refuse("start", f"a moment at which a stretch of {unit} begins")
        return moment


def grain_ms(metric: LocalMetric, *, sliced: bool) -> tuple[int, str]:
    """Return the shortest interval for which a metric has sums: in ms, and in words.

    `sliced`: whether sums of the metric's slices are needed.
    """
    if sliced and metric.slicing is not None:
        return metric.slicing.pane_ms, f"by_pane of metric {metric.name!r}"
    return metric.pane_ms, f"the pane of metric {metric.name!r}, {metric.pane}"


@dataclasses.dataclass(frozen=True)
class TableKind(Generic[Table, Definition]):
    """A kind of tables in a file of definitions, ``[KIND.NAME]``.

    Attributes
    ----------
    kind : str
        The word before the dot, such as ``alarms``.
    keys : struct
        The keys of a table in TOML.
    define : callable
        Makes a definition, given its name, its table and the checks of the table's values.
    """

    kind: str
    keys: type[Table]
    define: Callable[[str, Table, Checks], Definition]

    def read(
        self, document: Mapping[str, Any], metrics: Mapping[str, Metric], source: str
    ) -> dict[str, Definition]:
        """Return the definitions of this kind in a file, by name.

        `document`: the content of the file; `metrics`: the metrics by name; `source`: the file's
        path, for errors. Raises DefinitionError if a definition is invalid.
        """
        tables = document.get(self.kind, {})
        if not isinstance(tables, dict):
            raise DefinitionError(self.kind, tables, f"tables [{self.kind}.NAME]", source)
        definitions = {}
        for name, table_values in tables.items():
            table_name = f"{self.kind}.{name}"
            try:
                check_name(name)
            except ValueError as error:
                raise DefinitionError(table_name, name, f"as its name {error}", source) from None
            try:
                table = _converted(self.keys, table_name, table_values)
                checks = Checks(table_name, structs.asdict(table), metrics)
                definitions[name] = self.define(name, table, checks)
            except DefinitionError as error:
                raise DefinitionError(error.key, error.value, error.expected, source) from None
        return definitions


def _converted(keys: type[Table], table_name: str, table_values: Any) -> Table:
    """Return a table converted to the types of its keys; refuse invalid or missing keys."""
    if not isinstance(table_values, dict):
        raise DefinitionError(table_name, table_values, f"a table [{table_name}]")
    types = get_type_hints(keys)
    for key, value in table_values.items():
        if key not in types:
            expected = f"a known key: {nearest(key, types)}"
            raise DefinitionError(f"{table_name}.{key}", value, expected)
        try:
            msgspec.convert(value, types[key])
        except msgspec.ValidationError as error:
            raise DefinitionError(f"{table_name}.{key}", value, readable(error)) from None
    for field in structs.fields(keys):
        if field.required and field.name not in table_values:
            raise DefinitionError(f"{table_name}.{field.name}", None, "a value")
    return msgspec.convert(table_values, keys)
