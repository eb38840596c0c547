"""The query and the answer of a comparison of two arms."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aggregator.features.comparisons.definitions import REST_SLICE
from aggregator.reading.frames.frame import Frame
from aggregator.reading.frames.pictures import Intervals, LabelledInterval, Picture, Pictured
from aggregator.reading.grouping import Slice, slice_name
from aggregator.reading.query import Length, Query, QueryOptions, Start, Time
from aggregator.reading.window import Window
from aggregator.timestamps import iso
from estimators import Comparison, Estimate
from estimators.distribution import share_names
from estimators.estimate import Floats
from estimators.rounding import certainty

COMPARISON_FIELDS = ("of", "split", "other", "independent", "below", "each")
"""The fields of :class:`CompareQuery` other than the arms."""
COMPARISON_COLUMNS = (
    *("comparison", "of", "unit", "label", "value", "lower", "upper", "p_value", "decided"),
    *(
        f"{arm}_{field}"
        for arm in "ab"
        for field in ("metric", "slice", "start", "end", "reports", "value", "lower", "upper")
    ),
    *("status", "beta", "bound", "target", "covers", "policy", "law"),
)


class CompareOptions(QueryOptions, total=False):
    """The options of :meth:`aggregator.features.reader.Reader.compare`, besides the slices."""

    start: Start
    end: Time
    against_start: Start
    against_end: Time
    against_window: Length | None
    other: str | None
    of: str
    split: float | None
    independent: bool | None
    below: Sequence[float]
    each: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareQuery:
    """The query of a comparison.

    Parameters
    ----------
    a : Query
        Window and slice of the first arm; if `by` is set, each slice is compared with the rest.
    b : Query
        Window and slice of the second arm; the default window is that of `a`.
    rest : bool
        Whether the second arm is the rest of the first arm's window.
    other : str, optional
        The metric of the second arm; by default that of the first.
    of : str
        ``"difference"`` or ``"ratio"``.
    split : float, optional
        The planned ratio of reports, a to b, for bounds that hold at all times.
    independent : bool, optional
        Whether no device reports to both metrics; see :func:`estimators.compare`.
    below : sequence of float
        For a distribution: compare the shares below these edges instead of quantiles.
    each : bool
        Whether the arms have bounds, too; all three intervals then share beta.
    """

    a: Query
    b: Query
    rest: bool = False
    other: str | None = None
    of: str = "difference"
    split: float | None = None
    independent: bool | None = None
    below: Sequence[float] = ()
    each: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError if `independent` is set for a single metric."""
        if self.other is None and self.independent is not None:
            raise ValueError(
                f"independent = {self.independent}: expected a second metric to compare"
            )

    @property
    def intervals(self) -> int:
        """Return how many intervals share beta."""
        return 3 if self.each else 1

    @classmethod
    def of_options(
        cls,
        where: Mapping[str, str | None] | tuple[tuple[str, str | None], ...],
        against: Mapping[str, str | None] | tuple[tuple[str, str | None], ...] | str,
        **options: Any,
    ) -> CompareQuery:
        """Return the query that these options describe.

        Parameters
        ----------
        where : mapping or pairs
            The slice of the first arm.
        against : mapping, pairs or "rest"
            The slice of the second arm, or "rest"; with another window or metric, "rest" means the
            first arm's slice.
        **options
            As in :meth:`aggregator.features.reader.Reader.compare`.

        Raises
        ------
        ValueError
            If `against` is text other than "rest", or another option is invalid.
        """
        comparison_fields = {key: options.pop(key) for key in COMPARISON_FIELDS if key in options}
        window = {key: options.pop(f"against_{key}", None) for key in ("start", "end", "window")}
        if isinstance(against, str) and against != REST_SLICE:
            raise ValueError(f"against = {against!r}: expected 'rest', or values of attributes")
        is_elsewhere = comparison_fields.get("other") is not None or {*window.values()} != {None}
        is_rest = isinstance(against, str) and not is_elsewhere
        b = Query(where=where if isinstance(against, str) else against, **window)
        return cls(a=Query(where=where, **options), b=b, rest=is_rest, **comparison_fields)


@dataclasses.dataclass(frozen=True)
class ArmAnswer:
    """An arm with its estimate, whose bounds are shown only if the query says `each`."""

    metric: str
    where: Slice
    window: Window
    estimate: Estimate


@dataclasses.dataclass(frozen=True)
class Compared(Pictured):
    """Two arms and their comparison.

    Attributes
    ----------
    status : str
        ``not_ready``, ``too_few_reports``, ``provisional``, ``final`` or ``expired``.
    bound : str
        ``"fixed"`` or ``"anytime"``.
    comparison : Comparison or None
        The comparison; None if an arm has too few reports, or a part of a window has expired.
    covers : str
        What the bounds cover together, in words.
    simultaneous : int
        The number of comparisons for which the bounds hold together.
    chosen_among : int
        The number of answers that share beta, because this answer may have been chosen among them.
    """

    a: ArmAnswer
    b: ArmAnswer
    query: CompareQuery
    status: str
    bound: str
    comparison: Comparison | None
    covers: str
    simultaneous: int
    chosen_among: int

    @property
    def value(self) -> float | Floats:
        """The difference or ratio; NaN if unknown."""
        return math.nan if self.comparison is None else self.comparison.value

    @property
    def lower(self) -> float | Floats:
        """The lower bound of the difference or ratio; NaN if unknown."""
        return math.nan if self.comparison is None else self.comparison.lower

    @property
    def upper(self) -> float | Floats:
        """The upper bound of the difference or ratio; NaN if unknown."""
        return math.nan if self.comparison is None else self.comparison.upper

    @property
    def p_value(self) -> float | Floats:
        """The p-value of the hypothesis that both arms are equal; NaN if unknown.

        It is multiplied by the number of intervals that must hold together.
        """
        if self.comparison is None:
            return math.nan
        shared = self.simultaneous * self.chosen_among * self.query.a.windows
        shared *= self.query.intervals
        p_value = self.comparison.p_value * shared
        return min(p_value, 1.0) if isinstance(p_value, float) else p_value.clip(max=1.0)

    @property
    def law(self) -> str:
        """``"joint"`` or ``"union"``; empty if unknown."""
        return "" if self.comparison is None else self.comparison.law

    @property
    def decided(self) -> bool:
        """Whether the arms are proved to be different in at least one number."""
        return bool(np.min(self.p_value, initial=math.inf) <= self.query.a.beta)

    @property
    def name(self) -> str | None:
        """The comparison's name in the definitions; None if it is not defined there."""
        return None

    @property
    def labels(self) -> list[str]:
        """The names of the compared numbers; empty for a single number."""
        if self.query.below:
            return [*share_names(self.query.below)]
        metric = self.a.window.metric
        return [*metric.domain.select(self.query.a.categories)[0]] if metric.domain.names else []

    @property
    def unit(self) -> str:
        """The unit of a difference; a ratio and a share have none."""
        has_one = self.query.of == "difference" and not self.query.below
        return self.a.window.metric.unit if has_one else ""

    @property
    def policy(self) -> str:
        """The weight policy of the first arm."""
        weights = self.query.a.weights
        return self.a.window.policy if weights is None else weights

    def to_frame(self) -> Frame:
        """Return a table with one row for each compared number."""
        labels: list[Any] = self.labels or [None]
        columns = (self.value, self.lower, self.upper, self.p_value)
        numbers = [_spread(x, len(labels)) for x in columns]
        arms = [_arm_rows(self, arm_name, len(labels)) for arm_name in "ab"]
        beta = self.query.a.beta
        statement = (self.status, beta, self.bound, self.query.a.target, self.covers)
        rows = []
        for label, a, b, *row_numbers in zip(labels, *arms, *numbers, strict=True):
            decided = None if math.isnan(row_numbers[-1]) else row_numbers[-1] <= beta
            named = (self.name, self.query.of, self.unit, label)
            rows.append((*named, *row_numbers, decided, *a, *b, *statement, self.policy, self.law))
        return Frame.of(COMPARISON_COLUMNS, rows)

    @property
    def picture(self) -> Picture:
        """The picture of the intervals, with a mark where the arms do not differ."""
        metric, of = self.a.window.metric.name, self.query.of
        arms = [f"{arm_name}: {arm_text(self, arm_name)}" for arm_name in ("a", "b")]
        bounds = f"{self.status.replace('_', ' ')}; {certainty(self.query.a.beta)} {self.bound}"
        labels = self.labels or [""]
        columns = (_spread(x, len(labels)) for x in (self.value, self.lower, self.upper))
        rows = zip(labels, *columns, strict=True)
        return Intervals(
            f"{metric}: {of} of a and b",
            (*arms, f"{bounds} bounds"),
            tuple(LabelledInterval(*row) for row in rows),
            self.unit,
            0.0 if of == "difference" else 1.0,
        )


def comparison_frame(comparisons: Sequence[Compared]) -> Frame:
    """Return comparisons as one table."""
    frames = (compared.to_frame() for compared in comparisons)
    return Frame.concatenate([Frame.of(COMPARISON_COLUMNS, []), *frames])


def _arm_rows(compared: Compared, arm_name: str, count: int) -> list[tuple[Any, ...]]:
    """Return the values of the columns of an arm ("a" or "b"), for each of `count` rows."""
    arm = compared.a if arm_name == "a" else compared.b
    bounds = (arm.estimate.value, arm.estimate.lower, arm.estimate.upper)
    numbers = [_spread(x, count) for x in bounds]
    if not compared.query.each:
        numbers[1:] = [[math.nan] * count] * 2
    where = REST_SLICE if arm_name == "b" and compared.query.rest else slice_name(arm.where)
    window = (arm.window.start_ms, arm.window.end_ms, arm.estimate.reports)
    return [(arm.metric, where, *window, *row) for row in zip(*numbers, strict=True)]


def arm_text(compared: Compared, arm_name: str) -> str:
    """Return an arm ("a" or "b") as text: its slice, its number of reports and its window."""
    arm = compared.a if arm_name == "a" else compared.b
    name = slice_name(arm.where) or "all"
    if arm_name == "b" and compared.query.rest:
        name = "the rest"
    if arm.metric != compared.a.metric:
        name = f"{arm.metric}, {name}"
    begin, end = iso(arm.window.start_ms) or "the first report", iso(arm.window.end_ms) or "now"
    return f"{name}: {arm.estimate.reports:,} reports from {begin} to {end}"


def number_list(x: float | Floats) -> list[float]:
    """Return numbers as a list, a single number as a list of one."""
    return np.ravel(np.asarray(x, dtype=np.float64)).tolist()


def _spread(x: float | Floats, count: int) -> list[float]:
    """Return `count` numbers; a single number is repeated."""
    return np.broadcast_to(number_list(x), count).tolist()  # type: ignore[no-any-return]
