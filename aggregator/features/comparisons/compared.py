"""A comparison: what is asked, and what is found of two arms."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aggregator.features.comparisons.definitions import REST
from aggregator.reading.frames.frame import Frame
from aggregator.reading.frames.pictures import Interval, Intervals, Picture, Pictured
from aggregator.reading.grouping import Slice, slice_name
from aggregator.reading.query import Query
from aggregator.reading.windows import Window
from aggregator.timestamps import iso
from estimators import Comparison, Estimate
from estimators.distribution import share_names
from estimators.estimate import Floats
from estimators.rounding import certainty

OWN = ("of", "split", "other", "independent", "below", "each")
"""Fields of a :class:`CompareQuery` besides its arms."""
COLUMNS = (
    *("comparison", "of", "unit", "label", "value", "lower", "upper", "p_value", "decided"),
    *(
        f"{arm}_{what}"
        for arm in "ab"
        for what in ("metric", "slice", "start", "end", "reports", "value", "lower", "upper")
    ),
    *("status", "beta", "bound", "target", "covers", "policy", "law"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareQuery:
    """What is compared with what, and how.

    Parameters
    ----------
    a : Query
        Window and slice of the first arm; with `by`, each slice is compared with the rest.
    b : Query
        Window and slice of the second arm; its stretch of event time is that of `a` unless it names
        one.
    rest : bool
        The second arm is the rest of the first one's window.
    other : str, optional
        The metric of the second arm; by default the same.
    of : str
        ``"difference"`` or ``"ratio"``.
    split : float, optional
        The planned ratio of reports, a to b, for bounds that hold at all times.
    independent : bool, optional
        See :func:`estimators.compare`.
    below : sequence of float
        Of a distribution: compare the shares below these edges instead of quantiles.
    each : bool
        The arms have bounds, too. All three intervals share beta, so that they hold together.
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
        """Refuse a statement about two metrics where there is one; raise ValueError."""
        if self.other is None and self.independent is not None:
            raise ValueError(f"independent = {self.independent}: expected another metric beside it")

    @property
    def intervals(self) -> int:
        """Over how many intervals of one comparison beta is shared."""
        return 3 if self.each else 1

    @classmethod
    def of_options(
        cls,
        where: Mapping[str, str | None] | tuple[tuple[str, str | None], ...],
        against: Mapping[str, str | None] | tuple[tuple[str, str | None], ...] | str,
        **options: Any,
    ) -> CompareQuery:
        """Return a query from its parts.

        Parameters
        ----------
        where : mapping or pairs
            The slice of the first arm.
        against : mapping, pairs or "rest"
            That of the second one. With another window or metric, "rest" stands for the same slice.
        **options
            As in :meth:`aggregator.reading.reader.MetricReader.compare`.

        Raises
        ------
        ValueError
            If there is no such slice, or the arms are the same.
        """
        own = {key: options.pop(key) for key in OWN if key in options}
        window = {key: options.pop(f"against_{key}", None) for key in ("start", "end", "window")}
        if isinstance(against, str) and against != REST:
            raise ValueError(f"against = {against!r}: expected 'rest', or values of attributes")
        is_elsewhere = own.get("other") is not None or {*window.values()} != {None}
        is_rest = isinstance(against, str) and not is_elsewhere
        b = Query(where=where if isinstance(against, str) else against, **window)
        return cls(a=Query(where=where, **options), b=b, rest=is_rest, **own)


@dataclasses.dataclass(frozen=True)
class ArmAnswer:
    """One arm: its metric, slice and window, and its estimate.

    Its bounds are meant to be seen only if the query says `each`.
    """

    metric: str
    where: Slice
    window: Window
    estimate: Estimate


@dataclasses.dataclass(frozen=True)
class Compared(Pictured):
    """Two arms and their comparison.

    Attributes
    ----------
    a, b : ArmAnswer
    query : CompareQuery
    status : str
        ``not_ready``, ``too_few_reports``, ``provisional``, ``final`` or ``expired``.
    bound : str
        ``"fixed"`` or ``"anytime"``.
    comparison : Comparison or None
        None where an arm has too few reports, or some of it has expired.
    covers : str
        What the bounds cover.
    simultaneous : int
        Over how many comparisons the bounds hold together.
    chosen_among : int
        So many answers share beta, because this one may have been chosen after looking at them.
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
        """The difference or ratio; NaN if it is not known."""
        return math.nan if self.comparison is None else self.comparison.value

    @property
    def lower(self) -> float | Floats:
        """Its lower bound; NaN if it is not known."""
        return math.nan if self.comparison is None else self.comparison.lower

    @property
    def upper(self) -> float | Floats:
        """Its upper bound; NaN if it is not known."""
        return math.nan if self.comparison is None else self.comparison.upper

    @property
    def p_value(self) -> float | Floats:
        """Of the hypothesis that both arms are equal; NaN if it is not known.

        Multiplied by the number of intervals that hold together, as the bounds are.
        """
        if self.comparison is None:
            return math.nan
        shared = self.simultaneous * self.chosen_among * self.query.a.windows
        shared *= self.query.intervals
        found = self.comparison.p_value * shared
        return min(found, 1.0) if isinstance(found, float) else found.clip(max=1.0)

    @property
    def law(self) -> str:
        """``"joint"`` or ``"union"``; empty if nothing is known."""
        return "" if self.comparison is None else self.comparison.law

    @property
    def decided(self) -> bool:
        """Whether the arms are proved to be different, in one of their numbers at least."""
        found = self.p_value
        least = found if isinstance(found, float) else float(found.min(initial=math.inf))
        return least <= self.query.a.beta

    @property
    def name(self) -> str | None:
        """Its name in the definitions; None if it has none."""
        return None

    @property
    def labels(self) -> list[str]:
        """The names of its numbers; none where there is one."""
        if self.query.below:
            return [*share_names(self.query.below)]
        metric = self.a.window.metric
        return [*metric.domain.select(self.query.a.categories)[0]] if metric.domain.names else []

    @property
    def unit(self) -> str:
        """The unit of a difference; a ratio has none, nor has a share."""
        has_one = self.query.of == "difference" and not self.query.below
        return self.a.window.metric.unit if has_one else ""

    @property
    def policy(self) -> str:
        """The weights of the first arm."""
        asked = self.query.a.weights
        return self.a.window.policy if asked is None else asked

    def to_frame(self) -> Frame:
        """Return it as a table: a row for each of its numbers."""
        labels: list[Any] = self.labels or [None]
        numbers = [
            _spread(x, len(labels)) for x in (self.value, self.lower, self.upper, self.p_value)
        ]
        arms = [_arm_rows(self, which, len(labels)) for which in "ab"]
        beta = self.query.a.beta
        about = (self.status, beta, self.bound, self.query.a.target, self.covers)
        rows = []
        for label, a, b, *found in zip(labels, *arms, *numbers, strict=True):
            decided = None if math.isnan(found[-1]) else found[-1] <= beta
            named = (self.name, self.query.of, self.unit, label)
            rows.append((*named, *found, decided, *a, *b, *about, self.policy, self.law))
        return Frame.of(COLUMNS, rows)

    @property
    def picture(self) -> Picture:
        """Its intervals, with a mark at no difference."""
        metric, of = self.a.window.metric.name, self.query.of
        arms = [f"{which}: {arm_text(self, which)}" for which in ("a", "b")]
        bounds = f"{self.status.replace('_', ' ')}; {certainty(self.query.a.beta)} {self.bound}"
        columns = (
            _spread(x, max(1, len(self.labels))) for x in (self.value, self.lower, self.upper)
        )
        rows = zip(self.labels or [""], *columns, strict=True)
        return Intervals(
            f"{metric}: {of} of a and b",
            (*arms, f"{bounds} bounds"),
            tuple(Interval(*row) for row in rows),
            self.unit,
            0.0 if of == "difference" else 1.0,
        )


def comparison_frame(found: Sequence[Compared]) -> Frame:
    """Return comparisons as one table.

    Parameters
    ----------
    found : sequence of Compared
    """
    return Frame.together([Frame.of(COLUMNS, []), *(one.to_frame() for one in found)])


def _arm_rows(found: Compared, which: str, count: int) -> list[tuple[Any, ...]]:
    """Return what the columns of an arm have in each row."""
    arm = found.a if which == "a" else found.b
    own = (arm.estimate.value, arm.estimate.lower, arm.estimate.upper)
    numbers = [_spread(x, count) for x in own]
    if not found.query.each:
        numbers[1:] = [[math.nan] * count] * 2
    is_rest = which == "b" and found.query.rest
    where = REST if is_rest else slice_name(arm.where)
    window = (arm.window.start_ms, arm.window.end_ms, arm.estimate.reports)
    return [(arm.metric, where, *window, *row) for row in zip(*numbers, strict=True)]


def arm_text(found: Compared, which: str) -> str:
    """Return an arm in words: its slice, its reports and its window.

    Parameters
    ----------
    found : Compared
    which : {"a", "b"}
    """
    arm = found.a if which == "a" else found.b
    name = slice_name(arm.where) or "all"
    if which == "b" and found.query.rest:
        name = "the rest"
    if arm.metric != found.a.metric:
        name = f"{arm.metric}, {name}"
    begin, end = iso(arm.window.start_ms) or "the first report", iso(arm.window.end_ms) or "now"
    return f"{name}: {arm.estimate.reports:,} reports from {begin} to {end}"


def _spread(x: float | Floats, count: int) -> list[float]:
    """Return so many numbers: those that are there, or one that is not known for all."""
    numbers = np.atleast_1d(np.asarray(x, dtype=np.float64))
    return np.broadcast_to(numbers, count).tolist()  # type: ignore[no-any-return]
