"""Comparisons that a file of definitions has beside the metrics."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

import msgspec
import numpy as np

from aggregator.config.definition_tables import Checks, TableKind, Watch, Where, grain_ms
from aggregator.config.live_metrics import table
from estimators import LocalMetric, Metric, compare

REST: Final = "rest"
"""Instead of a second slice: all others."""
MOST_SPLIT = 1_000_000
LEAST_BETA, MOST_BETA = 1e-9, 0.999
_SPLIT = re.compile(r"(\d+(?:\.\d+)?):(\d+(?:\.\d+)?)")


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
        Only these; all by default. Of a distribution, quantiles.
    below : sequence of float
        Of a distribution: the shares below these edges instead of quantiles.
    """

    added: ClassVar[tuple[str, ...]] = ("below",)
    where: Where
    against: Where | str
    other: str | None = None
    of: str = "difference"
    split: float | None = None
    beta: float = 0.05
    independent: bool | None = None
    categories: Sequence[str] | None = None
    below: Sequence[float] = ()


class ComparisonTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
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
    quantiles: list[float] | None = None
    below: list[float] = []


def step_ms(*metrics: LocalMetric) -> int:
    """Return the shortest stretch of which there are sums of slices of several metrics, in ms."""
    return math.lcm(*(grain_ms(metric, sliced=True)[0] for metric in metrics))


def define_comparison(name: str, table: ComparisonTable, checks: Checks) -> ComparisonDefinition:
    """Return the comparison that a table defines.

    Parameters
    ----------
    name : str
    table : ComparisonTable
    checks : Checks
        Of this table's values.

    Raises
    ------
    DefinitionError
        With the key, the value and what was expected.
    """
    metric = checks.metric("metric")
    other = metric if table.other is None else checks.metric("other")
    where = checks.where("where", metric)
    is_rest = isinstance(table.against, str)
    if is_rest and table.against != REST:
        checks.refuse("against", "'rest', or a table with values of attributes")
    if is_rest and table.other is not None:
        checks.refuse("against", "a table with values of attributes: 'rest' is that of one metric")
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
        if not 1 / MOST_SPLIT <= split <= MOST_SPLIT:
            checks.refuse("split", f"a ratio from 1:{MOST_SPLIT} to {MOST_SPLIT}:1")
    if not LEAST_BETA <= table.beta <= MOST_BETA:
        checks.refuse(
            "beta", f"a probability between 0 and 1, from {LEAST_BETA:g} to {MOST_BETA:g}"
        )
    if table.other is None and table.independent is not None:
        checks.refuse("independent", "nothing, or another metric, too: other = NAME")
    if other.memoized:
        checks.refuse(
            "other", "a metric that is not memoized: its panes repeat each other's answers"
        )
    categories = checks.quantiles(metric) or checks.categories(metric)
    try:
        empty = compare(
            metric,
            metric.zero(),
            other.zero(),
            table.of,
            "anytime",
            other=None if other is metric else other,
            independent=table.independent,
            categories=categories,
            below=table.below,
        )
    except ValueError as error:
        first = str(error).split()[0]
        said = str(error).rpartition(": expected ")[2] if first == "below" else str(error)
        checks.refuse(first if first in ("of", "below") else "other", said)
    if not np.size(empty.value):
        checks.refuse("categories", "those to be compared: the vocabulary is open")
    _, grain = max(grain_ms(each, sliced=True) for each in (metric, other))
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
        below=tuple(table.below),
    )


COMPARISONS = TableKind("comparisons", ComparisonTable, define_comparison)


def comparisons_of(metrics: Mapping[str, Metric]) -> Mapping[str, ComparisonDefinition]:
    """Return the comparisons that the definitions of this moment have, by name."""
    return table(metrics, COMPARISONS.kind)
