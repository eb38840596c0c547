"""Reads the estimates of metrics from Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Self, overload

from aggregator.config.comparison_definitions import REST
from aggregator.config.live_metrics import watches
from aggregator.errors import StateUnreadable, UnknownMetric
from aggregator.reading.comparisons.arms import Compared, CompareQuery, compare_arms
from aggregator.reading.comparisons.living import Living, definition_of, living
from aggregator.reading.discovery.answers import Discovered, discover_strings
from aggregator.reading.grouping import Grouping
from aggregator.reading.pane_sums import PaneSums
from aggregator.reading.plans import LocalPlan, Plan, plan_for
from aggregator.reading.query import EVERYTHING, Query, SeriesQuery, Time
from aggregator.reading.series_plan import SeriesPlan
from aggregator.reading.slices.estimates import Slices
from aggregator.reading.windows import Window
from aggregator.state.pane_keys import metric_key
from aggregator.state.watermark import NEVER, Watermark
from aggregator.storage.connection import connect
from aggregator.storage.progress import TopicProgress
from aggregator.storage.store import Store
from estimators import Estimate, LocalMetric, Metric, SearchMetric
from estimators.durations import above_zero
from estimators.errors import meant

DEFAULT_TOPIC = "dither.reports"
TOGETHER, TOGETHER_BYTES = 100, 32_000_000
"""Running totals that are read together at most, and of what size."""


class Reader:
    """Answers questions about metrics from the sums in Redis.

    As a context manager, it closes its store's connections.

    Parameters
    ----------
    store : str or Store
        A Redis URL, or a store that is open already.
    metrics : mapping of str to Metric
    topic : str
        The reports topic; used with a URL.

    Raises
    ------
    StoreUnreachable
        If no Redis answers at the URL.
    """

    def __init__(
        self,
        store: str | Store,
        metrics: Mapping[str, Metric],
        topic: str = DEFAULT_TOPIC,
    ) -> None:
        self.store = Store(connect(store), topic) if isinstance(store, str) else store
        self.metrics = metrics
        self.sums = PaneSums(self.store)
        self._plans: dict[str, Plan[Any]] = {}

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the store's connections."""
        self.store.client.close()

    def metric(self, name: str) -> Metric:
        """Return a metric by name.

        Raises
        ------
        UnknownMetric
            Naming the nearest known one.
        """
        if name not in self.metrics:
            raise UnknownMetric(name, meant(name, self.metrics))
        return self.metrics[name]

    @overload
    def estimate(
        self, name: str, start: Time = None, end: Time = None, *, by: Sequence[str], **options: Any
    ) -> Slices: ...

    @overload
    def estimate(
        self, name: str, start: Time = None, end: Time = None, **options: Any
    ) -> Estimate: ...

    def estimate(
        self, name: str, start: Time = None, end: Time = None, **options: Any
    ) -> Estimate | Slices:
        """Estimate a metric over a window of event time.

        Parameters
        ----------
        name : str
        start, end : float (seconds since the epoch), datetime or None
            The window [start, end), widened to whole panes; None: unbounded.
        **options
            The other fields of :class:`aggregator.reading.query.Query`: ``window``, ``beta``,
            ``weights``, ``bound``, ``target``, ``categories`` and so on.

        Returns
        -------
        Estimate or Slices
            With a status: ``not_ready``, ``too_few_reports``, ``provisional``, ``final`` or
            ``expired``. Of a metric that is collected in trust, the latest release of a pane in the
            window. With attributes in `by`, an estimate for each of their slices.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the window is empty, or a release was not drawn as it is asked for.
        """
        query = Query(start, end, **options)
        window = self.window(name, query)
        return self.answer_slices(window, query) if query.by else self.answer(window, query)

    @staticmethod
    def answer_slices(window: Window, query: Query) -> Slices:
        """Estimate each slice of a window that was read before.

        Parameters
        ----------
        window : Window
        query : Query
            With attributes in `by`.

        Raises
        ------
        ValueError
            If it cannot be asked so.
        """
        return LocalPlan.answer_slices(window, query)

    def compare(
        self,
        name: str,
        where: Mapping[str, str | None] | None = None,
        against: Mapping[str, str | None] | Literal["rest"] = REST,
        **options: Any,
    ) -> Compared:
        """Compare two slices, a slice with the rest, two windows, or two metrics.

        Parameters
        ----------
        name : str
        where : mapping of str to str, optional
            The slice of the first arm; by default all.
        against : mapping of str to str, or "rest"
            That of the second arm.
        **options
            ``against_start``, ``against_end`` and ``against_window``: the window of the second arm,
            by default that of the first. ``of``, ``split``, ``other``, ``independent`` and ``each``
            as in
            :class:`aggregator.reading.comparisons.arms.CompareQuery`. All others: fields of
            :class:`aggregator.reading.query.Query`.

        Returns
        -------
        Compared
            With ``value``, ``lower``, ``upper``, ``p_value`` and ``law``.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the arms cannot be compared, with the reason.
        """
        query = CompareQuery.of_options(where or {}, against, **options)
        (found,) = self.compare_all(name, query)
        return found

    def compare_all(self, name: str, query: CompareQuery) -> list[Compared]:
        """Compare two arms, or each slice of a grouping with the rest.

        Parameters
        ----------
        name : str
        query : CompareQuery

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the arms cannot be compared, with the reason.
        """
        if query.other is not None:
            self.metric(query.other)
        return compare_arms(self.window, self.metric(name), query)

    def discover(
        self,
        name: str,
        start: Time = None,
        end: Time = None,
        *,
        window: str | None = None,
        beta: float = 0.05,
        progress: Callable[[float], None] = lambda _: None,
    ) -> Discovered:
        """Find the frequent strings of a metric with ``discover = true``.

        Parameters
        ----------
        name : str
        start, end : float (seconds since the epoch), datetime or None
            The window [start, end), widened to whole panes. Without an end: up to the last pane
            that every partition has closed, for good.
        window : str, optional
            Instead of start and end: a duration such as ``"1d"``, the last closed one.
        beta : float
            The probability, at most, that a string is shown which nobody holds, or that an interval
            does not hold.
        progress : callable
            Is told the share of the work that is done; what it raises ends the work.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the metric does not discover strings, or the window is empty.
        """
        described, reading = self.describe_discovery(name, start, end, window=window)
        return discover_strings(self.read(described), beta, reading, progress)

    def describe_discovery(
        self, name: str, start: Time = None, end: Time = None, *, window: str | None = None
    ) -> tuple[Window, int | None]:
        """Return the window of a discovery, not read, and which reading of all panes it is.

        Parameters
        ----------
        name : str
        start, end : float (seconds since the epoch), datetime or None
            As for :meth:`discover`, which also says what is raised.
        window : str, optional

        Returns
        -------
        window : Window
        reading : int or None
            The number of panes that were closed since the first one; None where an end was asked
            for.

        Raises
        ------
        ValueError
            If a window stands beside a start or an end.
        """
        metric = LocalMetric.require(self.metric(name))
        metric.require_discovery()
        overview = self.store.overview()
        reading, closed = None, self.finality_watermarks(overview).get(name)
        if window is not None and (start, end) != (None, None):
            raise ValueError(f"window = {window!r} and a start or an end: expected one of the two")
        if closed is not None:
            closed = metric.pane_start(closed)
        if closed is not None and window is not None:
            end = closed / 1000
            start = (closed - above_zero("window", window)) / 1000
        elif closed is not None and end is None:
            end = closed / 1000
            key = metric_key(metric.name, metric.revision)
            extent = self.store.panes.extent(key, [*overview.partitions])
            first = closed if extent is None else extent[0]
            reading = max(1, (closed - first) // metric.pane_ms)
        return self.describe(overview, name, Query(start, end)), reading

    def comparison(self, name: str, *, each: bool = False) -> Living:
        """Return how a comparison of the definitions stands now.

        Parameters
        ----------
        name : str
        each : bool
            Whether both arms have bounds, too, which share beta.

        Returns
        -------
        Living
            With ``value``, ``lower``, ``upper``, ``p_value``, ``decided`` and ``decided_at``.

        Raises
        ------
        UnknownComparison
            Naming the nearest known one.
        """
        return living(self, definition_of(self.metrics, name), each=each)

    def comparisons(self, *, each: bool = False) -> list[Living]:
        """Return how all comparisons of the definitions stand now.

        Parameters
        ----------
        each : bool
            As for :meth:`comparison`.
        """
        known = watches(self.metrics).comparisons.values()
        return [living(self, one, each=each) for one in known]

    @staticmethod
    def answer(window: Window, query: Query = EVERYTHING) -> Estimate:
        """Estimate from a window that was read before.

        Of a metric that is asked in rounds the definition says all that can be asked: where the
        search stands, and what is certain with its beta.

        Parameters
        ----------
        window : Window
        query : Query
            How it is estimated; its stretch of event time is not looked at.

        Raises
        ------
        ValueError
            If it cannot be asked so.
        """
        return plan_for(window.metric).answer(window, query)

    def window(self, name: str, query: Query = EVERYTHING) -> Window:
        """Read a window: the sum of a metric's panes over all partitions.

        Parameters
        ----------
        name : str
        query : Query
            Its stretch of event time.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the window is empty.
        """
        return self.read(self.describe(self.store.overview(), name, query))

    def describe(self, overview: TopicProgress, name: str, query: Query = EVERYTHING) -> Window:
        """Return a window that is not read: what is asked, and how far it is counted.

        Parameters
        ----------
        overview : TopicProgress
        name : str
        query : Query
            Its stretch of event time.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the window is empty.
        StateUnreadable
            If it cannot be said how far a partition is counted.
        """
        plan = self._plan(self.metric(name))
        Grouping.of(plan.metric, query)  # of a metric without slices none are asked for
        overview.check()
        return plan.describe(overview, query)

    def read(self, window: Window) -> Window:
        """Return a window with its content: its sums, its release, or where a search stands."""
        return self._plan(window.metric).read(window)

    def read_totals(self, windows: Iterable[Window]) -> Iterator[Window | None]:
        """Yield windows that are running totals with their sums, many of them read together.

        None in place of any other, and of those that were read together where one cannot be read:
        :meth:`read` says of each by itself what there is.
        """
        together: list[Window] = []
        size = 0
        for window in windows:
            together.append(window)
            size += window.metric.zero().nbytes * len(window.watermarks)
            if len(together) == TOGETHER or size > TOGETHER_BYTES:
                yield from self._read_together(together)
                together, size = [], 0
        yield from self._read_together(together)

    def _read_together(self, windows: Sequence[Window]) -> list[Window | None]:
        wanted = [
            window
            for window in windows
            if window.is_running_total and isinstance(self._plan(window.metric), LocalPlan)
        ]
        try:
            found = self.sums.of_totals(wanted)
        except StateUnreadable:
            found = {}
        return [
            window.with_sums(found[window.metric.name]) if window.metric.name in found else None
            for window in windows
        ]

    def _plan(self, metric: Metric) -> Plan[Any]:
        known = self._plans.get(metric.name)
        if known is None or known.metric is not metric:  # it was redefined
            known = self._plans[metric.name] = plan_for(metric)(self.sums, metric)
        return known

    def plan_series(self, window: Window, query: SeriesQuery) -> SeriesPlan:
        """Return the steps of a series over a window that is not read.

        Parameters
        ----------
        window : Window
        query : SeriesQuery

        Raises
        ------
        ValueError
            If there can be no such series.
        """
        return self._plan(window.metric).series(window, query)

    def policy(self, overview: TopicProgress, name: str) -> str:
        """Return the weights in force of a metric.

        Raises
        ------
        StateUnreadable
            If they are none that the metric can have.
        """
        return self._plan(self.metric(name)).policy(overview)

    def first_waiting(self, overview: TopicProgress, metric: Metric, start_ms: int) -> int | None:
        """Return where the first pane begins, from `start_ms` on, that is over in some partition.

        None: there is none. Whether every partition has closed it is for
        :meth:`finality_watermarks` to say.

        Parameters
        ----------
        overview : TopicProgress
        metric : Metric
        start_ms : int
            Milliseconds since the epoch.
        """
        overview.check()
        key, numbers = metric_key(metric.name, metric.revision), [*overview.partitions]
        marks = [one.watermarks.get(key, Watermark()) for one in overview.partitions.values()]
        last = max((mark.closed for mark in marks), default=NEVER) - metric.pane_ms
        return min(self.store.panes.first(key, numbers, start_ms, last, 1), default=None)

    def finality_watermarks(
        self, overview: TopicProgress, partitions: int | None = None
    ) -> dict[str, int]:
        """Return, by metric, the event time in ms before which every window is final.

        Metrics that are asked in rounds are left out, and those of which nothing is final.

        Parameters
        ----------
        overview : TopicProgress
        partitions : int, optional
            How many the topic has, for a caller that asked Kafka; else what the workers said last.
        """
        overview.check()
        found = {
            name: overview.closed(metric_key(name, metric.revision), partitions)
            for name, metric in self.metrics.items()
            if not isinstance(metric, SearchMetric)
        }
        return {name: closed for name, closed in found.items() if closed != NEVER}
