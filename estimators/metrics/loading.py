"""Reads metric definitions from ``metrics.toml``."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NoReturn, get_type_hints, overload

import msgspec

from estimators import durations
from estimators.errors import DefinitionError, nearest, readable
from estimators.metrics.domains import Domain
from estimators.metrics.kinds import KINDS, Kind, Way
from estimators.metrics.local import LocalMetric
from estimators.metrics.metric import Metric
from estimators.metrics.search import SearchMetric
from estimators.metrics.trusted import TrustedMetric

METRIC_CLASSES: tuple[type[Metric], ...] = (LocalMetric, TrustedMetric, SearchMetric)
"""The class of metrics for each way of collecting; a definition's trust and kind determine it."""
TRUST_NAMES = ("local", "central")
DURATION_KEYS = ("pane", "lateness", "retention", "round_time", "by_pane", "by_retention")
FILE_TABLES = ("metrics", "attributes", "comparisons", "alarms")
"""The tables of a file; only the service reads the last two."""
FREE_CHOICES = (("mechanism", "auto"),)
"""Keys with a value by which a definition leaves the choice to its kind's domain."""
_NO_KEYS = ("name", "domain", "metric", "labels")
"""Fields of the classes that are not keys of a definition."""


@functools.cache
def _types(definition_class: type[Metric | Domain]) -> Mapping[str, Any]:
    """Return the definition keys of a class, and their types."""
    hints = get_type_hints(definition_class)
    keys = (field.name for field in dataclasses.fields(definition_class))
    return {key: hints[key] for key in keys if key not in _NO_KEYS}


_KEYED_CLASSES = (*METRIC_CLASSES, *(kind.domain for kind in KINDS.built_in.values()))
KEY_TYPES = {key: hint for each in _KEYED_CLASSES for key, hint in _types(each).items()} | {
    "trust": str
}
"""The keys of definitions and their types, without those of kinds from other distributions."""
_KEY_DEFAULTS = {
    field.name: field.default for each in METRIC_CLASSES for field in dataclasses.fields(each)
} | {"attributes": {}}


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is field.default_factory is dataclasses.MISSING


def metric_class(trust: str, kind: Kind) -> type[Metric] | None:
    """Return the class of metrics for this trust and kind; None if there is none."""
    return next((x for x in METRIC_CLASSES if x.trust == trust and x.way in kind.ways), None)


def load_metrics(path: str | Path) -> dict[str, Metric]:
    """Return the metrics of a TOML file, which has a table ``[metrics.NAME]`` for each.

    The table ``[attributes]`` has the declared values of each attribute of devices.

    Parameters
    ----------
    path : path
        The file. :class:`estimators.metrics.metric.Metric` and its subclasses describe the keys of
        a table.

    Returns
    -------
    dict of str to Metric
        The metrics by name, in the file's order.

    Raises
    ------
    DefinitionError
        If a definition is invalid; the error has the file, the key, the value and what was
        expected.
    FileNotFoundError
        If there is no such file.
    """
    return metrics_of(read_document(path), str(path))


def read_document(path: str | Path) -> dict[str, Any]:
    """Return the content of a file of definitions, unchecked.

    Raises DefinitionError if the file is not TOML, and FileNotFoundError if it does not exist.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:  # not TOML or UTF-8; huge numbers; deep lists
        expected = "a file that parses as TOML, in UTF-8"
        if "declare ('attributes',) twice" in str(error):
            expected = "one table [attributes] for all metrics: add the other's lines to it"
        raise DefinitionError("TOML", str(error), expected, str(path)) from None


def metrics_of(document: dict[str, Any], source: str) -> dict[str, Metric]:
    """Return the metrics of a file of definitions, by name.

    `document`: from :func:`read_document`; `source`: the file, for messages. Raises
    DefinitionError, as :func:`load_metrics` does.
    """
    for key in document:
        if key not in FILE_TABLES:
            tables_expected = "[metrics.NAME], [attributes], [comparisons.NAME] and [alarms.NAME]"
            expected = f"only tables {tables_expected}: {nearest(key, FILE_TABLES)}"
            raise DefinitionError(key, document[key], expected, source)
    attributes = document.get("attributes", {})
    if not isinstance(attributes, dict):
        raise DefinitionError("attributes", attributes, "a table [attributes]", source)
    tables = document.get("metrics")
    if not isinstance(tables, dict) or not tables:
        raise DefinitionError("metrics", tables, "one table [metrics.NAME] or more", source)
    return {
        name: read_definition(name, _with_values(name, table, attributes, source), source)
        for name, table in tables.items()
    }


def _with_values(metric: str, table: Any, attributes: dict[str, Any], source: str) -> Any:
    """Return a metric's table with the declared values of its attributes.

    Raises DefinitionError if an attribute is not declared.
    """
    by = table.get("by") if isinstance(table, dict) else None
    if not isinstance(by, list) or "attributes" in table:
        return table
    for name in by:
        if name not in attributes:
            expected = f"names in the table [attributes]: {nearest(str(name), attributes)}"
            raise DefinitionError(f"{metric}.by", by, expected, source)
    return table | {"attributes": {name: attributes[name] for name in by}}


@overload
def define(
    *, name: str, kind: Literal["minimum", "maximum"], **definition: Any
) -> SearchMetric: ...


@overload
def define(*, name: str, trust: Literal["central"], **definition: Any) -> TrustedMetric: ...


@overload
def define(*, name: str, kind: Literal["distribution"], **definition: Any) -> LocalMetric: ...


@overload
def define(*, name: str, mechanism: str, **definition: Any) -> LocalMetric: ...


@overload
def define(*, name: str, **definition: Any) -> Metric: ...


def define(*, name: str, **definition: Any) -> Metric:
    """Make a metric from its definition, with the keys of ``metrics.toml``.

    Parameters
    ----------
    name : str
        The metric's name.
    **definition
        The keys of :class:`estimators.metrics.metric.Metric` and its subclasses, and those of the
        kind's domain: `trust` and `kind` determine the subclass.

    Raises
    ------
    DefinitionError
        If a key or value is invalid; the error has the key, the value and what was expected.

    Examples
    --------
    >>> late = define(name="late", kind="mean", mechanism="randomized_response",
    ...               range=(0, 1), levels=[0.5, 1, 2])
    >>> late.labels, late.pane_ms
    ((), 60000)

    A distribution with bins of equal width on a logarithmic scale, and frequent strings that nobody
    has to list (their code words have at most `last` bits):

    >>> wait = define(name="wait", kind="distribution", range=(1, 10_000), scale="log", unit="ms",
    ...               quantiles=[0.5, 0.95], levels=[1, 2, 4])
    >>> wait.labels, wait.mechanism
    (('0.5', '0.95'), 'dyadic_hadamard')
    >>> error = define(name="error", kind="frequency", categories="open", discover=True,
    ...                preset="text", levels=[2, 4], options={"last": 96})
    >>> error.mechanism
    'prefix_tree'
    """
    return read_definition(name, definition)


def read_definition(name: str, table: Any, source: str = "") -> Metric:
    """Return the metric that a table describes.

    `name`: the metric's name; `table`: its keys and values; `source`: the file, for messages.
    Raises DefinitionError, with the key, the value and what was expected.
    """
    try:
        return _metric(name, table)
    except DefinitionError as error:
        raise DefinitionError(error.key, error.value, error.expected, source) from None


def definition_of(metric: Metric) -> dict[str, Any]:
    """Return a metric's definition, with the keys of ``metrics.toml``, but without default values.

    >>> definition_of(define(name="pay", kind="mean", trust="central", range=(0, 9), levels=[1]))
    {'range': (0, 9), 'kind': 'mean', 'levels': [1], 'mechanism': 'true_value', 'options': {},
     'trust': 'central'}
    """
    table = {
        field.name: getattr(part, field.name)
        for part in (metric.domain, metric)
        for field in dataclasses.fields(part)
        if field.name not in _NO_KEYS
    }
    definition = {k: v for k, v in table.items() if v is not None and v != _KEY_DEFAULTS.get(k)}
    return definition if metric.trust == "local" else definition | {"trust": metric.trust}


def _metric(name: str, table: Any) -> Metric:
    if not isinstance(table, dict):
        raise DefinitionError(name, table, f"a table [metrics.{name}]")
    keys = {key: value for key, value in table.items() if value is not None}

    def refuse(key: str, expected: str) -> NoReturn:
        raise DefinitionError(f"{name}.{key}", keys.get(key), expected)

    kind = KINDS.get(keys["kind"]) if isinstance(keys.get("kind"), str) else None
    types = KEY_TYPES if kind is None else {**KEY_TYPES, **_types(kind.domain)}
    for key, value in keys.items():
        if key not in types:
            refuse(key, f"a known key: {nearest(key, types)}")
        try:
            msgspec.convert(value, types[key])
        except msgspec.ValidationError as error:
            refuse(key, durations.EXPECTED_DURATION if key in DURATION_KEYS else readable(error))
    if kind is None:
        expected_kind = (
            nearest(keys["kind"], KINDS) if "kind" in keys else f"one of {', '.join(KINDS)}"
        )
        refuse("kind", expected_kind)
    if (trust := keys.get("trust", "local")) not in TRUST_NAMES:
        refuse("trust", nearest(trust, TRUST_NAMES))
    if (build := metric_class(trust, kind)) is None:
        fitting = [name for name, other_kind in KINDS.usable() if metric_class(trust, other_kind)]
        refuse("kind", f"{' or '.join(fitting)} where trust is {trust}")
    if kind.mechanism and build.way is Way.LOCAL:
        keys = {"mechanism": kind.mechanism} | keys
    implied = kind.domain.implied(keys)
    chosen = {key: value for key, value in keys.items() if (key, value) not in FREE_CHOICES}
    keys = keys | implied | chosen
    fields = {field.name: field for field in dataclasses.fields(build)}
    for key, field in (fields | kind.keys).items():
        if key not in (*keys, *_NO_KEYS) and _is_required(field):
            expected = field.metadata.get("expected", "a value")
            refuse(key, expected(kind.name) if callable(expected) else expected)
    metric_keys: dict[str, Any] = {"name": name}
    values: dict[str, Any] = {}
    for key, value in keys.items():
        if key in kind.keys:
            values[key] = value
        elif key in fields:
            metric_keys[key] = value
        elif key in _KEY_DEFAULTS and value != _KEY_DEFAULTS[key]:
            refuse(key, f"no {key} for kind {kind.name!r} where trust is {trust}")
        elif key not in _KEY_DEFAULTS and key != "trust":
            refuse(key, f"no {key} for kind {kind.name!r}")
    return build(domain=kind.domain.of(name, values), **metric_keys)
