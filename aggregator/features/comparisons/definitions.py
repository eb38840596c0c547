"""The comparisons in the definitions file: what is compared against what."""

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
from estimators.comparison.distributions import snapped_limits

REST_SLICE: Final = "rest"
"""The value of `against` if the second slice is all other reports."""
MAX_SPLIT = 1_000_000
MIN_BETA, MAX_BETA = 1e-9, 0.999
_SPLIT_PATTERN = re.compile(r"(\d+(?:\.\d+)?):(\d+(?:\.\d+)?)")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ComparisonDefinition(Watch):
    """A table ``[comparisons.NAME]``: two slices, or a slice and the rest, from a fixed start.

    Parameters
    ----------
    where : mapping
        The slice of the first arm.
    against : mapping or "rest"
        The slice of the second arm.
    other : str, optional
        The metric of the second arm; by default that of the first.
    of : str
        ``"difference"`` or ``"ratio"``.
    split : float, optional
        The planned ratio of reports, first arm to second; in the file a text such as ``"1:1"``.
    beta : float
        Failure probability of the bounds.
    independent : bool, optional
        Whether no device reports to both metrics; see :func:`estimators.compare`.
    categories : sequence of str, optional
        The compared categories, by default all; for a distribution, quantiles.
    below : sequence of float
        For a distribution: edges; the shares below them are compared instead of quantiles.
    title : str
        The title that the dashboard shows instead of the arms.
    """

    added: ClassVar[tuple[str, ...]] = ("below",)
    texts: ClassVar[tuple[str, ...]] = ("title",)
    where: Where
    against: Where | str
    other: str | None = None
    of: str = "difference"
    split: float | None = None
    beta: float = 0.05
    independent: bool | None = None
    categories: Sequence[str] | None = None
    below: Sequence[float] = ()
    title: str = ""

    @property
    def metric_names(self) -> tuple[str, str]:
        """The metrics of both arms."""
        return self.metric, self.other or self.metric


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
    title: str = ""


def step_ms(*metrics: LocalMetric) -> int:
    """Return the shortest common pane of several metrics' slices, in ms."""
    return math.lcm(*(grain_ms(metric, sliced=True)[0] for metric in metrics))


def define_comparison(name: str, table: ComparisonTable, checks: Checks) -> ComparisonDefinition:
    """Return the comparison that a table defines.

    `name`: the name of the comparison; `table`: the values of its table; `checks`: checks of this
    table's values. Raises DefinitionError if a value is not allowed; it names the key, the value
    and what was expected.
    """
    metric = checks.metric("metric")
    metric_b = metric if table.other is None else checks.metric("other")
    where = checks.where("where", metric)
    is_rest = isinstance(table.against, str)
    if is_rest and table.against != REST_SLICE:
        checks.refuse("against", "'rest', or a table with values of attributes")
    if is_rest and table.other is not None:
        checks.refuse("against", "a table with values of attributes: 'rest' is that of one metric")
    if not where:
        checks.refuse("where", "a value of one attribute or more: the slice of the first arm")
    against = where if is_rest else checks.where("against", metric_b)
    if metric_b is metric and not is_rest:
        common = where.keys() & against.keys()
        if not any(where[attribute] != against[attribute] for attribute in common):
            checks.refuse("against", "another value of an attribute in where, or 'rest'")
    split = None
    if table.split is not None:
        split_match = _SPLIT_PATTERN.fullmatch(table.split)
        if split_match is None or not all(float(part) > 0 for part in split_match.groups()):
            checks.refuse("split", "two numbers above zero, as in 1:1")
        split = float(split_match[1]) / float(split_match[2])
        if not 1 / MAX_SPLIT <= split <= MAX_SPLIT:
            checks.refuse("split", f"a ratio from 1:{MAX_SPLIT} to {MAX_SPLIT}:1")
    if not MIN_BETA <= table.beta <= MAX_BETA:
        checks.refuse("beta", f"a probability between 0 and 1, from {MIN_BETA:g} to {MAX_BETA:g}")
    if table.other is None and table.independent is not None:
        checks.refuse("independent", "nothing, or another metric, too: other = NAME")
    if metric_b.memoized:
        checks.refuse(
            "other", "a metric that is not memoized: its panes repeat each other's answers"
        )
    categories = checks.quantiles(metric) or checks.categories(metric)
    below = snapped_limits(metric, table.below)
    try:
        empty = compare(
            metric,
            metric.zero(),
            metric_b.zero(),
            table.of,
            "anytime",
            other=None if metric_b is metric else metric_b,
            independent=table.independent,
            categories=categories,
            below=below,
        )
    except ValueError as error:
        detail, _, expected = str(error).rpartition(": expected ")
        if (key := str(error).split()[0]) in ("of", "below"):
            checks.refuse(key, expected)
        checks.refuse("other", expected + f" ({detail})" * bool(detail))
    if not np.size(empty.value):
        checks.refuse("categories", "those to be compared: the vocabulary is open")
    _, grain = max(grain_ms(arm_metric, sliced=True) for arm_metric in (metric, metric_b))
    return ComparisonDefinition(
        name=name,
        metric=table.metric,
        start_ms=checks.start(step_ms(metric, metric_b), grain),
        where=where,
        against=REST_SLICE if is_rest else against,
        other=table.other,
        of=table.of,
        split=split,
        beta=table.beta,
        independent=table.independent,
        categories=categories,
        below=below,
        title=table.title,
    )


def comparisons_of(metrics: Mapping[str, Metric]) -> Mapping[str, ComparisonDefinition]:
    """Return the comparisons of the current definitions, by name."""
    return table(metrics, "comparisons")


TABLE_KINDS = (TableKind("comparisons", ComparisonTable, define_comparison),)
