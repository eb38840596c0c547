"""Windows of event time, with their content and the progress of counting."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Self

import msgspec

from aggregator.reading.grouping import Grouping
from aggregator.reading.query import Query, Time
from aggregator.state.watermark import NO_TIME, Watermark
from aggregator.storage.progress import TopicProgress
from aggregator.timestamps import format_time, to_seconds
from estimators import Estimate, Metric, SearchMetric
from estimators.durations import above_zero
from estimators.estimate import Counts
from estimators.weights import DEFAULT_POLICY
from producers.device.rounds import Round


@dataclasses.dataclass(frozen=True)
class WindowStatistic:
    """The statistic of the reports in a window."""

    statistic: Counts


@dataclasses.dataclass(frozen=True)
class SliceSums:
    """The statistics of slices, shape (slices, cells).

    `coverage` is the share of the window's reports that tables of slices have; None if unknown.
    """

    statistics: Counts
    coverage: float | None


@dataclasses.dataclass(frozen=True)
class Release:
    """A release from the estimates topic; `start_ms` is the start of its pane.

    Its estimate has a status, `privacy` and `saturation`; it is NaN for categories that did not fit
    into the event. Before the first release, `start_ms` is None, and all numbers are NaN.
    """

    start_ms: int | None
    estimate: Estimate


@dataclasses.dataclass(frozen=True)
class SearchState:
    """The open or last round of a search (None before the first), and its answers' statistic."""

    round: Round | None
    statistic: Counts


@dataclasses.dataclass(frozen=True, kw_only=True)
class Window:
    """A metric over an interval of event time.

    Attributes
    ----------
    start_ms, end_ms : int or None
        The edges of panes, in ms since the epoch; None for no limit.
    status : str
        ``not_ready`` (nothing was counted yet, or no round opened), ``provisional`` (it may still
        change), ``final``, or ``expired`` (Redis has lost a part by retention: there are no sums).
    content : WindowStatistic, SliceSums, Release or SearchState, optional
        What was read for the window; None until then.
    arrived_ms : int
        When the last counted report of the metric reached Kafka; -1 for never.
    policy : str
        The weight policy in force.
    watermarks : mapping of int to Watermark
        The watermark in each partition that has counted the metric.
    version : str
        A text that changes whenever the answer may change, by a new definition or new reports.
    overview : TopicProgress
        The progress when the window was described.
    slides : bool
        Whether the window's start moves with time.
    changed_ms : int or None
        When the weight policy was last changed, in ms since the epoch; None if it never was.
    grouping : Grouping or None
        How the reports are divided into slices; None for no slices.
    """

    metric: Metric
    start_ms: int | None = None
    end_ms: int | None = None
    status: str
    content: WindowStatistic | SliceSums | Release | SearchState | None = None
    arrived_ms: int = NO_TIME
    policy: str = DEFAULT_POLICY
    watermarks: Mapping[int, Watermark] = dataclasses.field(default_factory=dict)
    version: str = ""
    overview: TopicProgress = dataclasses.field(default_factory=lambda: TopicProgress({}, {}))
    slides: bool = False
    changed_ms: int | None = None
    grouping: Grouping | None = None

    @classmethod
    def described(
        cls,
        metric: Metric,
        overview: TopicProgress,
        watermarks: Mapping[int, Watermark],
        facts: tuple[object, ...],
        **fields: Any,
    ) -> Self:
        """Return a window without its content.

        `metric`, `overview`, `watermarks`: the metric, the progress, and the metric's watermark in
        each partition; `facts`: all values on which the answer depends; the window's version is
        their hash, and the time of the last change of the weight policy; `fields`: the other
        fields of the window.
        """
        digest = hashlib.blake2b(msgspec.msgpack.encode(facts), digest_size=12).hexdigest()
        is_search = isinstance(metric, SearchMetric)
        changed = None if is_search else overview.policy_changed_ms(metric.name)
        return cls(
            metric=metric,
            arrived_ms=max((mark.arrived for mark in watermarks.values()), default=NO_TIME),
            watermarks=watermarks,
            version=digest if changed is None else f"{digest}-{changed}",
            overview=overview,
            changed_ms=changed,
            **fields,
        )

    def with_sums(self, statistic: Counts | None, *, is_same: bool = True) -> Window:
        """Return the window with the statistic of its reports; see :meth:`with_content`.

        `statistic`: the statistic; None if a part of the window has expired.
        """
        if statistic is None:
            return self.expired()
        return self.with_content(WindowStatistic(statistic), is_same=is_same)

    def with_content(self, content: WindowStatistic | SliceSums, *, is_same: bool) -> Window:
        """Return the window with its content; it is not final if Redis lost data meanwhile.

        `content`: what was read; `is_same`: whether Redis lost no data during the read.
        """
        status = "provisional" if self.status == "final" and not is_same else self.status
        return dataclasses.replace(self, content=content, status=status)

    def of_slice(self, group: int) -> Window:
        """Return the window with the statistic of a slice's reports alone."""
        return self.with_sums(self._slice_statistics[group])

    def between(self, start_ms: int, end_ms: int, status: str) -> Window:
        """Return the window with new edges and a new status.

        `start_ms`, `end_ms`: the edges, in ms since the epoch; `status`: the status.
        """
        return dataclasses.replace(self, start_ms=start_ms, end_ms=end_ms, status=status)

    def expired(self) -> Window:
        """Return the window as expired, without sums."""
        nothing = WindowStatistic(self.metric.zero())
        return dataclasses.replace(self, status="expired", content=nothing)

    def bare(self) -> Window:
        """Return the window without sums, watermarks and progress."""
        content = self.content if isinstance(self.content, SearchState) else None
        return dataclasses.replace(
            self, content=content, watermarks={}, overview=TopicProgress({}, {})
        )

    @property
    def sums(self) -> Counts:
        """The statistic of the window's reports (over all slices), or of the round's answers."""
        if isinstance(self.content, SliceSums):
            total: Counts = self.content.statistics.sum(axis=0)
            return total
        assert isinstance(self.content, WindowStatistic | SearchState)  # noqa: S101
        return self.content.statistic

    @property
    def sums_key(self) -> tuple[Hashable, ...]:
        """A key made of the sums and all else in a window on which its estimate depends."""
        width = (self.start_ms, self.end_ms) if self.panes is None else self.panes
        digest = hashlib.blake2b(self.sums.tobytes(), digest_size=16).digest()
        return self.status, self.policy, self.slides, self.precedes_policy, width, digest

    @property
    def precedes_policy(self) -> bool:
        """Whether the weight policy was changed after the window's start."""
        start, changed = self.start_ms, self.changed_ms
        return changed is not None and (start is None or start < changed)

    @property
    def slice_reports(self) -> list[int]:
        """The number of reports of each slice."""
        return [int(self.metric.counts(row).sum()) for row in self._slice_statistics]

    @property
    def _slice_statistics(self) -> Counts:
        assert isinstance(self.content, SliceSums)  # noqa: S101
        return self.content.statistics

    @property
    def used_levels(self) -> list[bool]:
        """Whether each level has reports; windows of the same levels are bounded together."""
        return [bool(count) for count in self.metric.counts(self.sums)]

    @property
    def round(self) -> Round | None:
        """The open or last round; None if there is none."""
        return self.content.round if isinstance(self.content, SearchState) else None

    @property
    def reports(self) -> int:
        """The number of counted reports; for a search, the answers to all rounds so far."""
        decided = () if self.round is None else self.round.decisions
        counted = int(self.metric.counts(self.sums).sum())
        return counted + sum(sum(decision.answers) for decision in decided)

    @property
    def is_running_total(self) -> bool:
        """Whether the window covers all event time."""
        return self.start_ms is None and self.end_ms is None

    @property
    def coverage(self) -> float | None:
        """The share of the window's reports in its slices; None without slices, or if unknown."""
        return self.content.coverage if isinstance(self.content, SliceSums) else None

    @property
    def length_ms(self) -> int:
        """The length of the window in ms; 0 if it has no start or no end."""
        if self.start_ms is None or self.end_ms is None:
            return 0
        return self.end_ms - self.start_ms

    @property
    def panes(self) -> int | None:
        """The number of the window's panes; None if the window has no start or no end."""
        return self.length_ms // self.metric.pane_ms or None

    @property
    def bound(self) -> str:
        """The bound that ``"auto"`` chooses: ``"fixed"`` for a final window, else ``"anytime"``.

        Each bound has all of beta: the answers while a window grows, and its final answer, are two
        statements.
        """
        return "fixed" if self.status == "final" else "anytime"


def event_time(watermarks: Mapping[int, Watermark]) -> int | None:
    """Return the latest event time in any partition, confirmed or not, in ms; None without one."""
    latest = max((mark.latest for mark in watermarks.values()), default=NO_TIME)
    return None if latest == NO_TIME else latest


class EventTimes:
    """The latest event time of each metric that this process has read, which never decreases.

    A single read may give an earlier time: a watermark drops a time that too few batches confirm.
    """

    def __init__(self) -> None:
        self._latest: dict[tuple[str, int], int] = {}

    def note(self, metric: Metric, watermarks: Mapping[int, Watermark]) -> int | None:
        """Return the latest event time of all reads so far, in ms; None if this read has none."""
        key, time = (metric.name, metric.revision), event_time(watermarks)
        if time is not None:
            time = self._latest[key] = max(time, self._latest.get(key, NO_TIME))
        return time


def window_status(watermarks: Mapping[int, Watermark], closed_ms: int, end: int | None) -> str:
    """Return the status of a metric's window up to `end`.

    `watermarks`: the metric's watermark in each partition; `closed_ms`: the result of
    :meth:`aggregator.storage.progress.TopicProgress.closed`; `end`: the end of the window; None for
    no limit.
    """
    if not watermarks:
        return "not_ready"
    return "final" if end is not None and end <= closed_ms else "provisional"


def last_edges(metric: Metric, length_ms: int, newest: int) -> tuple[int, int]:
    """Return the edges, in ms since the epoch, of a window that ends with the newest pane.

    `metric`: the metric; `length_ms`: the length of the window in ms; `newest`: the start of the
    newest pane. It is used in place of the watermark, which heartbeats move beyond the last report.
    """
    end = newest + metric.pane_ms
    return metric.pane_start(end - length_ms), end


def edges(
    metric: Metric, query: Query, extent: Callable[[], tuple[int, int] | None]
) -> tuple[int | None, int | None]:
    """Return the edges of a query's window, widened to whole panes, in ms since the epoch.

    `metric`: the metric; `query`: the parameters of the query; `extent`: returns the starts of the
    metric's first and last pane, or None. Raises ValueError if the query has a length and a start
    or an end, or the window is empty.
    """
    start, end, length = query.stretch
    if length is None:
        first, last = _milliseconds(start), _milliseconds(end)
        if first is not None and last is not None and first >= last:
            raise ValueError(
                f"window from {format_time(first)} to {format_time(last)}: expected an end after "
                "its start"
            )
        first = None if first is None else metric.pane_start(first)
        return first, None if last is None else -metric.pane_start(-last)
    if start is not None or end is not None:
        raise ValueError(f"window = {length!r} and a start or an end: expected only one of the two")
    length_ms, panes = above_zero("window", length), extent()
    return (None, None) if panes is None else last_edges(metric, length_ms, panes[1])


def widened(first: int | None, last: int | None, width_ms: int) -> tuple[int | None, int | None]:
    """Return the edges of a window, widened to multiples of `width_ms`; None for no limit.

    Parameters
    ----------
    first, last, width_ms : int
        The edges in ms since the epoch, and the width in ms.

    Examples
    --------
    >>> widened(5, 12, 10), widened(None, 20, 10)
    ((0, 20), (None, 20))
    """
    first = None if first is None else first - first % width_ms
    return first, None if last is None else last + -last % width_ms


def _milliseconds(moment: Time) -> int | None:
    return None if moment is None else round(to_seconds(moment) * 1000)
