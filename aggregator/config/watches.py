"""What is watched: comparisons and alarms, which the file of definitions has beside the metrics.

Devices do not need them, so they are read here and not with the metrics.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, NoReturn, Self, TypeVar, get_type_hints

import msgspec
from msgspec import structs

from estimators import DefinitionError, LocalMetric, Metric, compare, load_metrics
from estimators.alarms import check_watchable
from estimators.durations import milliseconds
from estimators.errors import nearest, readable
from estimators.metrics.attributes import NONE, OTHER
from estimators.metrics.validation import check_name

REST: Final = "rest"
"""Instead of a second slice: all others."""
Table = TypeVar("Table", bound=msgspec.Struct)
Definition = TypeVar("Definition", bound="Watch")
MOST_SERIES = 1_000
"""Of an alarm."""
_SPLIT = re.compile(r"(\d+(?:\.\d+)?):(\d+(?:\.\d+)?)")
_RATE = re.compile(r"(\d+(?:\.\d+)?)/(.+)")
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

    kind: ClassVar[str]
    name: str
    metric: str
    start_ms: int

    @property
    def key(self) -> str:
        """Its name and 32 bits of what it means: one that was changed is another."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True, separators=(",", ":"))
        return f"{self.name}@{hashlib.sha256(text.encode()).hexdigest()[:8]}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparisonDefinition(Watch):
    """A table ``[comparisons.NAME]``: two slices, or a slice and the rest, from a fixed start on.

    Parameters
    ----------
    where : mapping
        The slice of the first arm.
    against : mapping or "rest"
        That of the second one.
    other : str, optional
        The metric of the second arm; by default the same.
    of : str
        ``"difference"`` or ``"ratio"``.
    split : float, optional
        The planned ratio of reports, first arm to second; in the file a text such as ``"1:1"``.
    beta : float
        Failure probability of the bounds.
    independent : bool, optional
        See :func:`estimators.compare`.
    categories : sequence of str, optional
        Only these; all by default.
    """

    kind: ClassVar[str] = "comparisons"
    where: Where
    against: Where | str
    other: str | None = None
    of: str = "difference"
    split: float | None = None
    beta: float = 0.05
    independent: bool | None = None
    categories: Sequence[str] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlarmDefinition(Watch):
    """A table ``[alarms.NAME]``: says when a metric has moved from its baseline.

    Parameters
    ----------
    every_ms : int
        The length of a pane of the alarm, in ms: whole panes of the metric.
    false_alarms : float
        How many false alarms are allowed in a pane, over all series together; in the file a text
        such as ``"1/365d"``.
    by : sequence of str
        A series for each slice by these attributes of devices.
    where : mapping
        Only reports of devices with these values.
    categories : sequence of str, optional
        A series for each of these; by default for each that there is.
    baseline_ms : int, optional
        The baseline is estimated from so much event time before the start.
    baseline_value : float, optional
        Or it is this value, in the metric's unit.
    direction : str
        ``"any"``, ``"up"`` or ``"down"``.
    least : float
        A move of at most so much is none; in the metric's unit.
    promise : str
        `false_alarms` in words, as the file has it.
    """

    kind: ClassVar[str] = "alarms"
    every_ms: int
    false_alarms: float
    by: Sequence[str] = ()
    where: Where = dataclasses.field(default_factory=dict)
    categories: Sequence[str] | None = None
    baseline_ms: int | None = None
    baseline_value: float | None = None
    direction: str = "any"
    least: float = 0.0
    promise: str = ""

    @property
    def sliced(self) -> bool:
        """Whether it needs slices of its metric."""
        return bool(self.by or self.where)


class Definitions(dict[str, Metric]):
    """The metrics of a file by name, and what is watched of them.

    Attributes
    ----------
    comparisons : mapping of str to ComparisonDefinition
    alarms : mapping of str to AlarmDefinition
    """

    def __init__(
        self,
        metrics: Mapping[str, Metric],
        comparisons: Mapping[str, ComparisonDefinition] | None = None,
        alarms: Mapping[str, AlarmDefinition] | None = None,
    ) -> None:
        super().__init__(metrics)
        self.comparisons = comparisons or {}
        self.alarms = alarms or {}

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file of definitions.

        Parameters
        ----------
        path : path

        Raises
        ------
        DefinitionError
            With the file, the key, the value found and what was expected.
        FileNotFoundError
            If there is no such file.
        """
        metrics = load_metrics(path)
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        comparisons = _tables(_Comparison, _comparison, document, metrics, str(path))
        return cls(metrics, comparisons, _tables(_Alarm, _alarm, document, metrics, str(path)))

    def is_same(self, other: Definitions) -> bool:
        """Return whether another file's definitions say the same."""
        return (
            self == other and self.comparisons == other.comparisons and self.alarms == other.alarms
        )


class _Comparison(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The keys of ``[comparisons.NAME]``, as TOML has them."""

    metric: str
    where: dict[str, str]
    against: dict[str, str] | str
    start: Any
    other: str | None = None
    of: Literal["difference", "ratio"] = "difference"
    split: str | None = None
    beta: float = 0.05
    independent: bool | None = None
    categories: list[str] | None = None


class _Alarm(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The keys of ``[alarms.NAME]``, as TOML has them."""

    metric: str
    start: Any
    false_alarms: str
    every: str = "1d"
    by: list[str] = msgspec.field(default_factory=list)
    where: dict[str, str] = msgspec.field(default_factory=dict)
    categories: list[str] | None = None
    baseline: str | None = None
    baseline_value: float | None = None
    direction: Literal["any", "up", "down"] = "any"
    least: float = 0.0
    then: Literal["same"] = "same"


class _Checks:
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
        """Raise the error for a key."""
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
            known = [*metric.slicing.attributes[name], OTHER, NONE]
            if value not in known:
                self.refuse(key, f"for {name} {nearest(value, known)}")
            found[name] = None if value == NONE else value
        return found

    def attributes(self, key: str, names: Sequence[str], metric: LocalMetric) -> None:
        """Refuse names that are no attributes of a metric, or come twice."""
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
        try:
            labels, _ = metric.domain.select(named)
        except ValueError as error:
            self.refuse("categories", str(error))
        return tuple(labels)

    def duration(self, key: str, unit_ms: int, unit: str) -> int:
        """Return a duration in ms, a multiple of a unit and above zero."""
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


def _grain(metric: LocalMetric, *, sliced: bool) -> tuple[int, str]:
    """Return the shortest stretch of which there are sums, in ms and in words."""
    if sliced and metric.slicing is not None:
        return metric.slicing.pane_ms, f"by_pane of metric {metric.name!r}"
    return metric.pane_ms, f"the pane of metric {metric.name!r}, {metric.pane}"


def step_ms(*metrics: LocalMetric) -> int:
    """Return the shortest stretch of which there are sums of slices of several metrics, in ms."""
    return math.lcm(*(_grain(metric, sliced=True)[0] for metric in metrics))


def _comparison(name: str, table: _Comparison, checks: _Checks) -> ComparisonDefinition:
    metric = checks.metric("metric")
    other = metric if table.other is None else checks.metric("other")
    where = checks.where("where", metric)
    is_rest = isinstance(table.against, str)
    if is_rest and table.against != REST:
        checks.refuse("against", "'rest', or a table with values of attributes")
    if not where:
        checks.refuse("where", "a value of one attribute or more: the slice of the first arm")
    against = where if is_rest else checks.where("against", other)
    if other is metric and not is_rest:
        apart = (where[one] != against[one] for one in where.keys() & against.keys())
        if not any(apart):
            checks.refuse("against", "another value of an attribute in where, or 'rest'")
    split = None
    if table.split is not None:
        parts = _SPLIT.fullmatch(table.split)
        if parts is None or not all(float(part) > 0 for part in parts.groups()):
            checks.refuse("split", "two numbers above zero, as in 1:1")
        split = float(parts[1]) / float(parts[2])
    if not 0 < table.beta < 1:
        checks.refuse("beta", "a probability between 0 and 1")
    if other.memoized:
        checks.refuse(
            "other", "a metric that is not memoized: its panes repeat each other's answers"
        )
    categories = checks.categories(metric)
    try:
        compare(
            metric,
            metric.zero(),
            other.zero(),
            table.of,
            "anytime",
            other=None if other is metric else other,
            independent=table.independent,
            categories=categories,
        )
    except ValueError as error:
        checks.refuse("of" if str(error).startswith("of ") else "other", str(error))
    _, grain = max(_grain(each, sliced=True) for each in (metric, other))
    return ComparisonDefinition(
        name=name,
        metric=table.metric,
        start_ms=checks.start(step_ms(metric, other), grain),
        where=where,
        against=REST if is_rest else against,
        other=table.other,
        of=table.of,
        split=split,
        beta=table.beta,
        independent=table.independent,
        categories=categories,
    )


def _alarm(name: str, table: _Alarm, checks: _Checks) -> AlarmDefinition:
    metric = checks.metric("metric")
    try:
        check_watchable(metric)
    except ValueError as error:
        checks.refuse("metric", f"one that can be watched; {error}")
    checks.attributes("by", table.by, metric)
    where = checks.where("where", metric)
    if both := where.keys() & {*table.by}:
        checks.refuse("where", f"{min(both)} in by or in where, not in both")
    grain = _grain(metric, sliced=bool(table.by or where))
    every_ms = checks.duration("every", *grain)
    if (table.baseline is None) == (table.baseline_value is None):
        checks.refuse("baseline", "a duration such as 28d, or a baseline_value instead")
    rate = _RATE.fullmatch(table.false_alarms)
    try:
        allowed, stretch_ms = (0.0, 0) if rate is None else (float(rate[1]), milliseconds(rate[2]))
    except ValueError:
        allowed, stretch_ms = 0.0, 0
    if not allowed or not stretch_ms:
        checks.refuse("false_alarms", "a number in a duration, as in 1/365d")
    rate_a_pane = allowed * every_ms / stretch_ms
    if rate_a_pane >= 1:
        checks.refuse("false_alarms", f"less than one in {table.every}, the length of a pane")
    if not 0 <= table.least < float("inf"):
        checks.refuse("least", "a move of 0 or more")
    categories = checks.categories(metric)
    series = len(categories or metric.labels or "1")
    for attribute in table.by:
        assert metric.slicing is not None  # noqa: S101
        series *= len(metric.slicing.words(attribute))
    if series > MOST_SERIES:
        checks.refuse("by", f"at most {MOST_SERIES} series, not {series}: slices x categories")
    if table.baseline_value is not None:
        low, high = metric.domain.ends
        if not low <= table.baseline_value <= high:
            checks.refuse("baseline_value", f"a value from {low:g} to {high:g}")
    return AlarmDefinition(
        name=name,
        metric=table.metric,
        start_ms=checks.start(*grain),
        every_ms=every_ms,
        false_alarms=rate_a_pane,
        by=tuple(table.by),
        where=where,
        categories=categories,
        baseline_ms=None if table.baseline is None else checks.duration("baseline", *grain),
        baseline_value=table.baseline_value,
        direction=table.direction,
        least=table.least,
        promise=table.false_alarms,
    )


def _tables(
    keys: type[Table],
    build: Callable[[str, Table, _Checks], Definition],
    document: Mapping[str, Any],
    metrics: Mapping[str, Metric],
    source: str,
) -> dict[str, Definition]:
    """Return the definitions of one kind in a file."""
    kind = get_type_hints(build)["return"].kind
    tables = document.get(kind, {})
    if not isinstance(tables, dict):
        raise DefinitionError(kind, tables, f"tables [{kind}.NAME]", source)
    found = {}
    for name, given in tables.items():
        place = f"{kind}.{name}"
        try:
            check_name(name)
        except ValueError as error:
            raise DefinitionError(place, name, f"as its name {error}", source) from None
        try:
            table = _converted(keys, place, given)
            found[name] = build(name, table, _Checks(place, structs.asdict(table), metrics))
        except DefinitionError as error:
            raise DefinitionError(error.key, error.value, error.expected, source) from None
    return found


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
