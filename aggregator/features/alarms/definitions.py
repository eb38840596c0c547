"""The alarms in the definitions file: what they watch, and their baselines."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import msgspec

from aggregator.config.definition_tables import Checks, TableKind, Watch, Where, grain_ms
from aggregator.config.live_metrics import table
from estimators import Metric
from estimators.alarms import check_watchable
from estimators.durations import milliseconds

MAX_ALARM_SERIES = 1_000
"""The most series of an alarm."""
_RATE_PATTERN = re.compile(r"(\d+(?:\.\d+)?)/(.+)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AlarmDefinition(Watch):
    """A table ``[alarms.NAME]``, for moves of a metric from its baseline.

    Parameters
    ----------
    every_ms : int
        The length of the alarm's panes, in ms: whole panes of the metric.
    false_alarms : float
        The allowed false alarms per pane, over all series; in the file, a text such as
        ``"1/365d"``.
    by : sequence of str
        Attributes of devices; the alarm has a series for each slice by them.
    where : mapping
        Values of attributes; the alarm uses only the reports of devices with these values.
    categories : sequence of str, optional
        The categories that have a series; by default all.
    below : sequence of float
        For a distribution: edges; the share of the users below each edge is a series.
    baseline_ms : int, optional
        The event time before the start from which the baseline is estimated.
    baseline_value : float, optional
        The stated baseline, in the metric's unit, which replaces an estimated baseline.
    direction : str
        ``"any"``, ``"up"`` or ``"down"``.
    least : float
        The largest ignored move, in the metric's unit.
    promise : str
        The text of `false_alarms` in the file.
    """

    added: ClassVar[tuple[str, ...]] = ("below",)
    every_ms: int
    false_alarms: float
    by: Sequence[str] = ()
    where: Where = dataclasses.field(default_factory=dict)
    categories: Sequence[str] | None = None
    below: Sequence[float] = ()
    baseline_ms: int | None = None
    baseline_value: float | None = None
    direction: str = "any"
    least: float = 0.0
    promise: str = ""

    @property
    def sliced(self) -> bool:
        """Whether the alarm uses slices of its metric."""
        return bool(self.by or self.where)


class AlarmTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The keys of ``[alarms.NAME]``, as TOML has them."""

    metric: str
    start: Any
    false_alarms: str
    every: str = "1d"
    by: list[str] = msgspec.field(default_factory=list)
    where: dict[str, str] = msgspec.field(default_factory=dict)
    categories: list[str] | None = None
    below: list[float] = msgspec.field(default_factory=list)
    baseline: str | None = None
    baseline_value: float | None = None
    direction: Literal["any", "up", "down"] = "any"
    least: float = 0.0


def define_alarm(name: str, table: AlarmTable, checks: Checks) -> AlarmDefinition:
    """Return the alarm that a table defines.

    `name`: the name of the alarm; `table`: the values of its table; `checks`: checks of this
    table's values. Raises DefinitionError if a value is not allowed; it names the key, the value
    and what was expected.
    """
    metric = checks.metric("metric")
    try:
        check_watchable(metric)
    except ValueError as error:
        checks.refuse("metric", f"one that can be watched; {error}")
    allowed_values = checks.attributes("by", table.by, metric)
    where = checks.where("where", metric)
    if repeated := where.keys() & {*table.by}:
        checks.refuse("where", f"{min(repeated)} in by or in where, not in both")
    grain = grain_ms(metric, sliced=bool(table.by or where))
    every_ms = checks.duration("every", *grain)
    if (table.baseline is None) == (table.baseline_value is None):
        checks.refuse("baseline", "a duration such as 28d, or a baseline_value instead")
    rate = _RATE_PATTERN.fullmatch(table.false_alarms)
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
    below = checks.below(metric)
    slices = math.prod(map(len, allowed_values.values()))
    series = slices * len(below or categories or metric.labels or "1")
    if series > MAX_ALARM_SERIES:
        checks.refuse("by", f"at most {MAX_ALARM_SERIES} series, not {series}: slices x categories")
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
        below=below,
        baseline_ms=None if table.baseline is None else checks.duration("baseline", *grain),
        baseline_value=table.baseline_value,
        direction=table.direction,
        least=table.least,
        promise=table.false_alarms,
    )


def alarms_of(metrics: Mapping[str, Metric]) -> Mapping[str, AlarmDefinition]:
    """Return the alarms of the current definitions, by name."""
    return table(metrics, "alarms")


TABLE_KINDS = (TableKind("alarms", AlarmTable, define_alarm),)
