"""Windows of event time: their content, and how far they are counted."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from aggregator.reading.grouping import Grouping
from aggregator.reading.query import Time
from aggregator.state.watermark import NO_TIME, Watermark
from aggregator.storage.progress import TopicProgress
from aggregator.timestamps import format_time, to_seconds
from estimators import Estimate, Metric
from estimators.durations import above_zero
from estimators.estimate import Counts
from estimators.weights import DEFAULT_POLICY
from producers.device.rounds import Round


@dataclasses.dataclass(frozen=True)
class Sums:
    """The statistic of the reports in a window."""

    statistic: Counts


@dataclasses.dataclass(frozen=True)
class SliceSums:
    """The statistics of the slices that are asked for, shape (slices, cells).

    `coverage` is the share of the window's reports that tables of slices have; None if unknown.
    While a window grows, its reports and the tables are not read at the same moment.
    """

    statistics: Counts
    coverage: float | None


@dataclasses.dataclass(frozen=True)
class Release:
    """A release that is on the estimates topic; `start_ms` is where its pane begins.

    Its estimate has a status, `privacy` and `saturation`, and is NaN for categories that the event
    was too small for. Before the first one `start_ms` is None, and all is NaN.
    """

    start_ms: int | None
    estimate: Estimate


@dataclasses.dataclass(frozen=True)
class SearchState:
    """The round of a search that is open, or was the last one, and the statistic of its answers.

    `round` is None before the first one.
    """

    round: Round | None
    statistic: Counts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """A metric over a stretch of event time.

    Attributes
    ----------
    start_ms, end_ms : int or None
        Where it really begins and ends: on panes' edges. None: unbounded.
    status : str
        ``not_ready`` (nothing was counted, or asked, yet), ``provisional`` (more can come),
        ``final``, or ``expired``: Redis has a part of it at most, and none of that is here.
    content : Sums, SliceSums, Release or SearchState, optional
        What is in it; None until it is read.
    arrived_ms : int
        When the last counted report of the metric reached Kafka; -1 for never.
    policy : str
        The weights in force.
    watermarks : mapping of int to Watermark
        Of the partitions that counted the metric.
    version : str
        Changes whenever the content of this window, or how it is read, may have changed.
    overview : TopicProgress
        From which it was made.
    slides : bool
        Whether its start moves: the last stretch of event time.
    changed_ms : int or None
        When the policy of weights was changed last; None: never.
    grouping : Grouping or None
        Which slices are asked for; None: the whole metric.
    """

    metric: Metric
    start_ms: int | None = None
    end_ms: int | None = None
    status: str
    content: Sums | SliceSums | Release | SearchState | None = None
    arrived_ms: int = NO_TIME
    policy: str = DEFAULT_POLICY
    watermarks: Mapping[int, Watermark] = dataclasses.field(default_factory=dict)
    version: str = ""
    overview: TopicProgress = dataclasses.field(default_factory=lambda: TopicProgress({}, {}))
    slides: bool = False
    changed_ms: int | None = None
    grouping: Grouping | None = None

    def with_sums(self, statistic: Counts) -> Window:
        """Return the window with the statistic of its reports."""
        return dataclasses.replace(self, content=Sums(statistic))

    def between(self, start_ms: int, end_ms: int) -> Window:
        """Return the window with other edges."""
        return dataclasses.replace(self, start_ms=start_ms, end_ms=end_ms)

    def expired(self) -> Window:
        """Return the window as one that Redis has a part of at most: without any sums."""
        return dataclasses.replace(self, status="expired", content=Sums(self.metric.zero()))

    def bare(self) -> Window:
        """Return the window without its sums, and without what they were read from."""
        content = self.content if isinstance(self.content, SearchState) else None
        return dataclasses.replace(
            self, content=content, watermarks={}, overview=TopicProgress({}, {})
        )

    @property
    def sums(self) -> Counts:
        """The statistic of its reports, or of the answers to the round that is open.

        Of slices: of those that are asked for, all together.
        """
        if isinstance(self.content, SliceSums):
            total: Counts = self.content.statistics.sum(axis=0)
            return total
        assert isinstance(self.content, Sums | SearchState)  # noqa: S101
        return self.content.statistic

    @property
    def round(self) -> Round | None:
        """The round that is open, or was the last one; None where there is none."""
        return self.content.round if isinstance(self.content, SearchState) else None

    @property
    def reports(self) -> int:
        """How many reports are counted in it; of a search, the answers to all rounds until now."""
        decided = () if self.round is None else self.round.decisions
        counted = int(self.metric.counts(self.sums).sum())
        return counted + sum(sum(decision.answers) for decision in decided)

    @property
    def is_running_total(self) -> bool:
        """Whether it is everything that was counted."""
        return self.start_ms is None and self.end_ms is None

    @property
    def coverage(self) -> float | None:
        """The share of its reports that the answer is made of; None: all, or it is not known."""
        return self.content.coverage if isinstance(self.content, SliceSums) else None

    @property
    def panes(self) -> int | None:
        """How many of the metric's panes it spans; None: unbounded."""
        if self.start_ms is None or self.end_ms is None:
            return None
        return (self.end_ms - self.start_ms) // self.metric.pane_ms

    @property
    def bound(self) -> str:
        """The bound that ``"auto"`` means here.

        ``"fixed"`` for a closed window; ``"anytime"`` for whatever may be looked at while it grows.
        Each has all of beta: what is shown while it grows and the final answer are two statements.
        """
        return "fixed" if self.status == "final" else "anytime"


def event_time(watermarks: Mapping[int, Watermark]) -> int | None:
    """Return the latest event time in any partition, confirmed or not; None: there is none yet."""
    latest = max((mark.latest for mark in watermarks.values()), default=NO_TIME)
    return None if latest == NO_TIME else latest


class EventTimes:
    """The latest event time of each metric in all that this process has read: it never goes back.

    A time that too few batches confirm is forgotten by the watermarks.
    """

    def __init__(self) -> None:
        self._latest: dict[tuple[str, int], int] = {}

    def note(self, metric: Metric, watermarks: Mapping[int, Watermark]) -> int | None:
        """Return the latest event time in any reading, ms; None if there is none in this one."""
        key, time = (metric.name, metric.revision), event_time(watermarks)
        if time is not None:
            time = self._latest[key] = max(time, self._latest.get(key, NO_TIME))
        return time


def window_status(watermarks: Mapping[int, Watermark], closed_ms: int, end: int | None) -> str:
    """Return whether a metric's window up to `end` is ready, and whether it can still grow.

    Parameters
    ----------
    watermarks : mapping of int to Watermark
        Of the partitions that counted the metric.
    closed_ms : int
        From :meth:`aggregator.storage.progress.TopicProgress.closed`.
    end : int or None
        Milliseconds since the epoch; None: unbounded.
    """
    if not watermarks:
        return "not_ready"
    return "final" if end is not None and end <= closed_ms else "provisional"


def last_edges(metric: Metric, length: str, newest: int | None) -> tuple[int | None, int | None]:
    """Return the edges of the last stretch of event time, up to the end of its newest pane.

    Parameters
    ----------
    metric : Metric
    length : str
        A duration.
    newest : int or None
        When the metric's newest pane begins, ms since the epoch; None before the first report. Not
        the watermark: heartbeats move it beyond the last report.

    Returns
    -------
    tuple of int, or of None before the first report
        Milliseconds since the epoch.

    Raises
    ------
    ValueError
        If `length` is no duration above zero.
    """
    span = above_zero("window", length)
    if newest is None:
        return None, None
    end = newest + metric.pane_ms
    return metric.pane_start(end - span), end


def edges(metric: Metric, start: Time, end: Time) -> tuple[int | None, int | None]:
    """Return the edges of a window, widened to whole panes, in ms since the epoch.

    Parameters
    ----------
    metric : Metric
    start, end : datetime, str, float (seconds since the epoch) or None

    Raises
    ------
    ValueError
        If the window is empty, or an edge is not a moment.
    """
    first, last = _milliseconds(start), _milliseconds(end)
    if first is not None and last is not None and first >= last:
        raise ValueError(
            f"window from {format_time(first)} to {format_time(last)}: expected an end after its "
            "start"
        )
    first = None if first is None else metric.pane_start(first)
    last = None if last is None else -metric.pane_start(-last)
    return first, last


def widened(first: int | None, last: int | None, width_ms: int) -> tuple[int | None, int | None]:
    """Return the edges of a window, widened to whole stretches.

    Parameters
    ----------
    first, last : int or None
        Milliseconds since the epoch; None: unbounded.
    width_ms : int
        Of a stretch.

    Examples
    --------
    >>> widened(5, 12, 10), widened(None, 20, 10)
    ((0, 20), (None, 20))
    """
    first = None if first is None else first - first % width_ms
    return first, None if last is None else last + -last % width_ms


def _milliseconds(moment: Time) -> int | None:
    return None if moment is None else round(to_seconds(moment) * 1000)
