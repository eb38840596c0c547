"""Reading metric definitions from ``metrics.toml``."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from estimators import durations
from estimators.errors import DefinitionError, nearest, readable
from estimators.extremes.search import KINDS as EXTREMES
from estimators.mechanisms import MECHANISMS
from estimators.metrics.domains import KINDS
from estimators.metrics.metric import Metric
from estimators.metrics.validation import DURATIONS

_FIELDS = {field.name: field for field in dataclasses.fields(Metric)}
_REQUIRED = ("kind", "levels")


def load_metrics(path: str | Path) -> dict[str, Metric]:
    """Read the metrics of a TOML file: a table ``[metrics.NAME]`` for each.

    Parameters
    ----------
    path : path
        See :class:`estimators.metrics.metric.Metric` for the keys of a table.

    Returns
    -------
    dict of str to Metric
        In the file's order.

    Raises
    ------
    DefinitionError
        Naming the file, the key, the value found and what was expected.
    FileNotFoundError
        If there is no such file.
    """
    source = str(path)
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DefinitionError("TOML", str(error), "a file that parses as TOML", source) from None
    for key in document:
        if key != "metrics":
            raise DefinitionError(key, document[key], "only tables [metrics.NAME]", source)
    tables = document.get("metrics")
    if not isinstance(tables, dict) or not tables:
        raise DefinitionError("metrics", tables, "one table [metrics.NAME] or more", source)
    return {name: read_definition(name, table, source) for name, table in tables.items()}


def define(*, name: str, **definition: Any) -> Metric:
    """Make a metric from its definition, as a table of ``metrics.toml`` has it.

    Parameters
    ----------
    name : str
    **definition
        The keys of :class:`estimators.metrics.metric.Metric`.

    Raises
    ------
    DefinitionError
        Naming the key, the value found and what was expected.

    Examples
    --------
    >>> late = define(name="late", kind="mean", mechanism="randomized_response",
    ...               range=(0, 1), levels=[0.5, 1, 2])
    >>> late.labels, late.pane_ms
    ((), 60000)
    """
    return read_definition(name, definition)


def read_definition(name: str, table: Any, source: str = "") -> Metric:
    """Make a metric from its table in a file.

    Parameters
    ----------
    name : str
    table : mapping
    source : str
        The file, for messages.

    Raises
    ------
    DefinitionError
        Naming the key, the value found and what was expected.
    """
    if not isinstance(table, dict):
        raise DefinitionError(name, table, f"a table [metrics.{name}]", source)
    for key in table:
        if key not in _FIELDS or key == "name":
            known = set(_FIELDS) - {"name"}
            raise DefinitionError(
                f"{name}.{key}", table[key], f"a known key: {nearest(key, known)}", source
            )
    chosen = table.get("trust") in (None, "local") and table.get("kind") not in EXTREMES
    for key in (*_REQUIRED, "mechanism") if chosen else _REQUIRED:
        if key not in table:
            raise DefinitionError(f"{name}.{key}", None, _wanted(key, table), source)
    types = get_type_hints(Metric)
    for key, value in table.items():
        try:
            msgspec.convert(value, types[key])
        except msgspec.ValidationError as error:
            expected = durations.EXPECTED if key in DURATIONS else readable(error)
            raise DefinitionError(f"{name}.{key}", value, expected, source) from None
    try:
        return Metric(name=name, **table)
    except DefinitionError as error:
        raise DefinitionError(error.key, error.value, error.expected, source) from None


def _wanted(key: str, table: Mapping[str, Any]) -> str:
    """Return what a key that is missing has to be, to follow "expected"."""
    if key == "kind":
        return f"one of {', '.join(KINDS)}"
    if key == "levels":
        return "epsilons on offer, as in levels = [0.5, 1, 2]"
    fitting = [name for name, one in MECHANISMS.items() if table["kind"] in one.kinds]
    return f"one of {', '.join(fitting or MECHANISMS)}"
