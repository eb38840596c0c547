"""The parameters of a query, which are the same in all interfaces."""

from __future__ import annotations

import dataclasses
import datetime
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from aggregator.reading.steps import duration
from aggregator.timestamps import to_seconds
from estimators.durations import above_zero, is_duration
from estimators.metrics.attributes import NO_VALUE

MAX_WINDOWS = 1_000_000
Progress = Callable[[float], None]
"""Takes the share of the work that is done; an exception from it ends the work."""
Time = float | str | datetime.datetime | None
"""A moment of event time: a datetime with a time zone, ISO 8601 (UTC unless it names a zone), or
seconds since the epoch."""
Length = str | datetime.timedelta
"""A duration of event time: a timedelta, or text such as ``"1h"``."""
Start = Time | datetime.timedelta
"""The start of a window: a moment, or how long before its end it begins."""


@dataclasses.dataclass(frozen=True)
class Query:
    """The parameters of a query about a metric.

    Parameters
    ----------
    start, end : datetime, str, float (seconds since the epoch) or None
        The window [start, end), widened to whole panes; None for no limit. A start may also be a
        :data:`Length` before the end; without an end, it means `window`.
    beta : float
        The largest probability that the bounds are wrong. If weights or a target are named, it is
        shared among all alternatives, unless `weights_fixed`. The answer without named weights is
        not among them: to compare with it, name its policy, too.
    weights : str, optional
        The policy of weights; by default the policy in force (``dither weights``).
    bound : str
        ``"fixed"``, ``"anytime"``, ``"normal"`` or ``"auto"``, which means fixed for a final
        window, and anytime for a window that may still grow. The fixed and the anytime bounds are
        two statements, each of which holds with probability 1 - beta.
    target : str
        ``"population"`` or ``"sample"``; see :meth:`estimators.Metric.estimate`.
    window : str or timedelta, optional
        A duration in place of start and end, such as ``"1h"`` for the last hour of event time.
    categories : sequence of str or int, optional
        The categories or coordinates to estimate; by default all.
    quantiles : sequence of float, optional
        For a distribution: only these quantiles.
    simultaneous : bool
        Whether the bounds hold for all categories at once, or for each category alone.
    windows : int
        How many windows, stated in advance, are covered together: each has beta / windows. Their
        final answers hold together with probability 1 - beta, and so do all their answers while
        they grow.
    weights_fixed : bool
        Whether weights and target were chosen before looking at answers: beta is not shared then.
    top : int, optional
        The most categories or coordinates, of which the largest are shown. A series shows those
        that are largest over its whole range. With `by`: the most slices; those with most reports
        are shown.
    by : str or sequence of str
        Attributes of devices; there is an answer for each combination of their values.
    where : mapping of str to str, or sequence of pairs
        Only reports of devices with these values of attributes: a declared value, ``"other"``, or
        None for devices that sent no value.

    Raises
    ------
    ValueError
        If an attribute occurs twice, `windows` is out of range, or a time or duration is invalid.
    """

    start: Start = None
    end: Time = None
    beta: float = 0.05
    weights: str | None = None
    bound: str = "auto"
    target: str = "population"
    _: dataclasses.KW_ONLY
    window: Length | None = None
    categories: Sequence[str | float] | None = None
    quantiles: dataclasses.InitVar[Sequence[float] | None] = None
    simultaneous: bool = True
    windows: int = 1
    weights_fixed: bool = False
    top: int | None = None
    by: str | Sequence[str] = ()
    where: Mapping[str, str | None] | tuple[tuple[str, str | None], ...] = ()

    def __post_init__(self, quantiles: Sequence[float] | None) -> None:
        """Check the fields, and convert them to hashable values: seconds, text and tuples."""
        start, end, window = _normalized_stretch(self.start, self.end, self.window)
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "end", end)
        object.__setattr__(self, "window", window)
        if quantiles:
            object.__setattr__(self, "categories", quantiles)
        object.__setattr__(self, "where", self.conditions)
        object.__setattr__(self, "by", (self.by,) if isinstance(self.by, str) else tuple(self.by))
        named = [*self.by, *(name for name, _ in self.conditions)]
        for name in named:
            if named.count(name) > 1:
                raise ValueError(f"attribute {name!r}: expected it once, in by or in where")
        if self.categories is not None:
            object.__setattr__(self, "categories", tuple(self.categories))
        if not 1 <= self.windows <= MAX_WINDOWS:
            raise ValueError(f"windows = {self.windows}: expected 1 to {MAX_WINDOWS:,}")

    @property
    def conditions(self) -> tuple[tuple[str, str | None], ...]:
        """The required values of attributes, from `where`."""
        return tuple(self.where.items()) if isinstance(self.where, Mapping) else self.where

    @property
    def stretch(self) -> tuple[Time, Time, str | None]:
        """The start, the end and the length of the window; None if the query does not name it."""
        return self.start, self.end, self.window  # type: ignore[return-value]

    @property
    def is_sliced(self) -> bool:
        """Whether the query asks for slices."""
        return bool(self.by or self.where)

    @property
    def has_window(self) -> bool:
        """Whether the query names a start, an end or a length."""
        return (self.start, self.end, self.window) != (None, None, None)

    def refuse_several(self, reason: str) -> None:
        """Raise ValueError, with a reason, if the query is about several windows."""
        if self.windows > 1:
            raise ValueError(f"windows = {self.windows}: {reason}")


class QueryOptions(TypedDict, total=False):
    """The options that all queries have; they are fields of `Query`."""

    beta: float
    weights: str | None
    bound: str
    target: str
    window: Length | None
    categories: Sequence[str | float] | None
    quantiles: Sequence[float] | None
    simultaneous: bool
    windows: int
    weights_fixed: bool
    top: int | None


class EstimateOptions(QueryOptions, total=False):
    """The options of :meth:`aggregator.features.reader.Reader.estimate`."""

    where: Mapping[str, str | None] | tuple[tuple[str, str | None], ...]


def _normalized_stretch(
    start: Start, end: Time, window: Length | None
) -> tuple[float | None, float | None, str | None]:
    """Return start and end in seconds since the epoch, and the length of a window as text.

    A start that is a duration is counted back from the end; without an end it is the length.
    """
    if end is not None and (isinstance(end, datetime.timedelta) or is_duration(end)):
        raise ValueError(f"end = {end!r}: expected a time; a duration may be a start or a window")
    length = None if window is None else length_text("window", window)
    last = None if end is None else to_seconds(end)
    if start is None:
        return None, last, length
    if not (isinstance(start, datetime.timedelta) or is_duration(start)):
        return to_seconds(start), last, length
    back = length_text("start", start)
    if length is not None:
        raise ValueError(f"start = {back!r} and window = {length!r}: expected only one of the two")
    if last is None:
        return None, None, back
    return last - above_zero("start", back) / 1000, last, None


def length_text(name: str, length: object) -> str:
    """Return a length of time as the text of a duration; a text is returned as it is.

    Raises ValueError if the duration is neither text nor a timedelta of whole milliseconds above
    zero.

    Examples
    --------
    >>> length_text("step", datetime.timedelta(hours=36)), length_text("step", "7d")
    ('36h', '7d')
    """
    if isinstance(length, str):
        return length
    if not isinstance(length, datetime.timedelta):
        raise ValueError(f'{name} = {length!r}: expected a timedelta, or text such as "7d"')
    milliseconds, remainder = divmod(length, datetime.timedelta(milliseconds=1))
    if milliseconds <= 0 or remainder:
        raise ValueError(f"{name} = {length!r}: expected whole milliseconds above zero")
    return duration(milliseconds)


statement_of = operator.attrgetter(
    *("beta", "weights", "bound", "target"),
    *("categories", "simultaneous", "windows", "weights_fixed"),
)
"""Returns all fields of a query on which an estimate depends, besides the window."""
RUNNING_TOTAL = Query()
"""The default query."""


def ignore_progress(_: float) -> None:
    """Do nothing: for calls whose caller does not follow their progress."""


def conditions(texts: Sequence[str]) -> tuple[tuple[str, str | None], ...]:
    """Return texts ``ATTRIBUTE=VALUE`` as pairs of attribute and value; "none" becomes None.

    Raises ValueError if a text is not of this form.

    Examples
    --------
    >>> conditions(["country=DE", "version=none"])
    (('country', 'DE'), ('version', None))
    """
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"where = {text!r}: expected ATTRIBUTE=VALUE, as in country=DE")
        pairs.append((name, None if value == NO_VALUE else value))
    return tuple(pairs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeriesQuery(Query):
    """The parameters of a query about a metric over time.

    Parameters
    ----------
    step : str, optional
        The duration of a step, widened to whole panes; by default there are about 200 steps.
    all_points : bool
        Whether the bounds of all points of the answer hold together.
    bins : int, optional
        For a distribution: the number of bins, merged from its bins, of a histogram at each step.
    """

    metric: str
    step: str | None = None
    all_points: bool = False
    bins: int | None = None

    def of_points(self, count: int) -> SeriesQuery:
        """Return the query that is asked at each of `count` points, without start and end."""
        cleared: dict[str, Any] = dict.fromkeys(("start", "end", "window", "step", "top", "bins"))
        windows = max(1, count) if self.all_points else 1
        return dataclasses.replace(self, **cleared, windows=windows)


class SeriesOptions(EstimateOptions, total=False):
    """The options of :meth:`aggregator.features.reader.Reader.series`."""

    by: str | Sequence[str]
    all_points: bool
    bins: int | None
