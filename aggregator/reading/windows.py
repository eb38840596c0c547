"""Windows of event time: what is asked of them, how far they are counted, what is in them."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Mapping

from aggregator.reading.releases import Release
from aggregator.state.watermark import NEVER, Watermark
from aggregator.storage.progress import TopicProgress
from aggregator.timestamps import shown
from estimators import Estimate, Metric
from estimators.durations import above_zero
from estimators.estimate import Counts
from estimators.weights import DEFAULT_POLICY
from producers.device.rounds import Round

Time = float | datetime.datetime | None


@dataclasses.dataclass(frozen=True)
class Frame:
    """A window before its panes are read: what is asked of them, and how far they are counted.

    Attributes
    ----------
    start_ms, end_ms : int or None
        On panes' edges. None: unbounded.
    status : str
        ``not_ready`` (nothing was counted, or asked, yet), ``provisional`` (more can come) or
        ``final``.
    arrived_ms : int
        When the last counted report of the metric reached Kafka; -1 for never.
    policy : str
        The weights in force.
    watermarks : dict of int to Watermark
        Of the partitions that counted the metric.
    version : str
        Another one whenever the sums of this window, or how they are read, may be others.
    release : Release, optional
        Of a metric that is collected in trust: the latest one in the window; None before it.
    asked : Round, optional
        Of a metric that is asked in rounds, the one that is open.
    overview : TopicProgress
        From which it was made.
    slides : bool
        Whether its start moves: the last stretch of event time.
    changed_ms : int or None
        When the policy of weights was changed last; None: never.
    """

    metric: Metric
    start_ms: int | None
    end_ms: int | None
    status: str
    arrived_ms: int
    policy: str
    watermarks: dict[int, Watermark]
    version: str
    release: Release | None = None
    asked: Round | None = None
    overview: TopicProgress = dataclasses.field(default_factory=lambda: TopicProgress({}, {}))
    slides: bool = False
    changed_ms: int | None = None

    def filled(self, statistic: Counts) -> Window:
        """Return the window with its statistic."""
        return Window(
            self.metric,
            statistic,
            self.start_ms,
            self.end_ms,
            self.status,
            self.arrived_ms,
            self.policy,
            asked=self.asked,
            slides=self.slides,
            changed_ms=self.changed_ms,
        )


@dataclasses.dataclass(frozen=True)
class Window:
    """The statistic of a metric over a stretch of event time.

    Attributes
    ----------
    start_ms, end_ms : int or None
        Where it really begins and ends: on panes' edges. None: unbounded.
    status : str
        ``not_ready`` (nothing was counted, or asked, yet), ``provisional`` (more can come),
        ``final``, or ``expired``: Redis has a part of it at most, and none of that is here.
    arrived_ms : int
        When the last counted report of the metric reached Kafka; -1 for never.
    released : Estimate, optional
        What there is in place of the sums where the metric is collected in trust: these are never
        read to be shown.
    asked : Round, optional
        Of a metric that is asked in rounds, the one that is open: `statistic` is of its answers.
    slides, changed_ms
        As of :class:`Frame`.
    """

    metric: Metric
    statistic: Counts
    start_ms: int | None
    end_ms: int | None
    status: str
    arrived_ms: int
    policy: str = DEFAULT_POLICY
    released: Estimate | None = None
    asked: Round | None = None
    slides: bool = False
    changed_ms: int | None = None

    @property
    def reports(self) -> int:
        """How many reports are counted in it; of a search, the answers to all rounds until now."""
        decided = () if self.asked is None else self.asked.decisions
        counted = int(self.metric.counts(self.statistic).sum())
        return counted + sum(sum(decision.answers) for decision in decided)

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
    latest = max((mark.latest for mark in watermarks.values()), default=NEVER)
    return None if latest == NEVER else latest


def window_status(watermarks: Mapping[int, Watermark], closed_ms: int, end: int | None) -> str:
    """Return whether a metric's window up to `end` is ready, and whether it can still grow.

    Parameters
    ----------
    watermarks : mapping of int to Watermark
        Of the partitions that counted the metric.
    closed_ms : int
        From :meth:`aggregator.storage.parsing.TopicProgress.closed`.
    """
    if not watermarks:
        return "not_ready"
    return "final" if end is not None and end <= closed_ms else "provisional"


def last_edges(metric: Metric, window: str, newest: int | None) -> tuple[int | None, int | None]:
    """Return the edges of the last stretch of event time, up to the end of its newest pane.

    Parameters
    ----------
    metric : Metric
    window : str
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
        If `window` is no duration above zero.
    """
    length = above_zero("window", window)
    if newest is None:
        return None, None
    end = newest + metric.pane_ms
    return metric.pane_start(end - length), end


def edges(metric: Metric, start: Time, end: Time) -> tuple[int | None, int | None]:
    """Return the edges of a window, widened to whole panes, in ms since the epoch.

    Raises
    ------
    ValueError
        If the window is empty, or an edge is not a moment.
    """
    first, last = _milliseconds(start), _milliseconds(end)
    if first is not None and last is not None and first >= last:
        raise ValueError(
            f"window from {shown(first)} to {shown(last)}: expected an end after its start"
        )
    first = None if first is None else metric.pane_start(first)
    last = None if last is None else -metric.pane_start(-last)
    return first, last


def _milliseconds(moment: Time) -> int | None:
    if moment is None:
        return None
    if isinstance(moment, datetime.datetime):
        if moment.tzinfo is None:
            raise ValueError(
                f"time {moment.isoformat()}: expected one with a time zone, as in +00:00"
            )
        moment = moment.timestamp()
    if not math.isfinite(moment):
        raise ValueError(f"time {moment}: expected seconds since the epoch, or a datetime")
    return round(moment * 1000)
