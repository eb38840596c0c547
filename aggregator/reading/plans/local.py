"""The plan for locally randomized reports, whose window is the sum of its panes."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from aggregator.reading import steps
from aggregator.reading.coverage import count_alternatives, coverage_text
from aggregator.reading.grouping import Grouping
from aggregator.reading.pane_sums import batched
from aggregator.reading.plans.base import ReadingPlan
from aggregator.reading.query import Progress, Query, SeriesQuery, ignore_progress
from aggregator.reading.series_plan import SeriesPlan
from aggregator.reading.slices.estimates import SliceEstimate, Slices, SliceTables
from aggregator.reading.window import SliceSums, Window, widened, window_status
from aggregator.storage.progress import TopicProgress
from estimators import Estimate, LocalMetric, Metric
from estimators.metrics.shares import ShareBoundsError

MAX_ESTIMATED_TOGETHER = 64
"""How many windows or slices are estimated before the next check whether the client has left."""
EXPIRY_PERIOD_MS = 60_000
"""How long an answer from panes that expire may be cached."""


def expiry_period(metric: Metric) -> int:
    """Return the number of the present cache period; 0 if the metric's panes never expire."""
    return 0 if metric.retention_ms is None else int(1000 * time.time()) // EXPIRY_PERIOD_MS


class LocalPlan(ReadingPlan[LocalMetric]):
    """Reads sums of randomized reports."""

    def describe(self, overview: TopicProgress, query: Query, grouping: Grouping | None) -> Window:
        """Return a window without its sums."""
        period = expiry_period(self.metric)
        closed, watermarks = overview.closed(self.key), self.watermarks(overview)
        first, last = self.edges(overview, query, watermarks)
        if grouping is not None:
            first, last = widened(first, last, grouping.slicing.pane_ms)
        status = window_status(watermarks, closed, last)
        policy = self.policy(overview)
        expiry = 0 if first is None and last is None else period
        question = (self.key, first, last, status, policy, grouping)
        marks = [
            (number, mark.time, mark.arrived, mark.closed, mark.ahead)
            for number, mark in sorted(watermarks.items())
        ]
        facts = (*question, self.count_version(overview), marks, expiry)
        fields = {"start_ms": first, "end_ms": last, "grouping": grouping}
        return self.window(
            overview, query, watermarks, facts, status=status, policy=policy, **fields
        )

    def read(self, window: Window) -> Window:
        """Return a window with its sums; it is not final if Redis lost data during the read."""
        if window.grouping is None:
            statistic, is_same = self.sums.read_window(window)
            if statistic is None:
                return window.expired()
            read_window = window.with_sums(statistic)
        else:
            content, is_same = SliceTables(self.sums, self.metric).read(window, window.grouping)
            read_window = dataclasses.replace(window, content=content)
        if window.status == "final" and not is_same:
            return dataclasses.replace(read_window, status="provisional")
        return read_window

    @staticmethod
    def answer(window: Window, query: Query) -> Estimate:
        """Return the estimate from the sums of a window."""
        return with_shares(window, query, lambda asked: LocalPlan.answer_each([window], asked)[0])

    @staticmethod
    def answer_each(
        windows: Sequence[Window], query: Query, simultaneous: int = 1
    ) -> list[Estimate]:
        """Return the estimates from the sums of a metric's windows, which are computed together.

        Parameters
        ----------
        windows : sequence of Window
        query : Query
        simultaneous : int
            The number of answers among which beta is shared.

        Raises
        ------
        ValueError
            If the query does not fit the metric.
        """
        metric, beta = LocalMetric.require(windows[0].metric), query.beta
        questions: defaultdict[tuple[str, str, int | None, int], list[int]] = defaultdict(list)
        for index, window in enumerate(windows):
            if window.is_running_total and not window.slides:
                query.refuse_several(
                    "expected a window, or a start and an end; a running total has one start"
                )
            bound = window.bound if query.bound == "auto" else query.bound
            policy = window.policy if query.weights is None else query.weights
            alternatives = count_alternatives(window, query)
            questions[bound, policy, window.panes, alternatives].append(index)
        if not 0 < beta < 1:
            raise ValueError(f"beta = {beta!r}: expected a probability between 0 and 1")
        estimates: dict[int, Estimate] = {}
        for (bound, policy, panes, alternatives), indices in questions.items():
            computed = metric.estimate_each(
                [windows[index].sums for index in indices],
                beta / (alternatives * query.windows * simultaneous),
                bound,
                query.categories,
                panes,
                weights=policy,
                target=query.target,
                simultaneous=query.simultaneous,
            )
            for index, estimate in zip(indices, computed, strict=True):
                estimates[index] = _stated(estimate, windows[index], query, alternatives)
        return [estimates[index] for index in range(len(windows))]

    @staticmethod
    def count_sharing_slices(window: Window, query: Query, reports: Sequence[int]) -> int:
        """Return the number of slices among which beta is shared.

        In a final window these are the slices with enough reports, which do not depend on values.
        While a window grows, they change, so beta is shared among all slices of the grouping.

        Parameters
        ----------
        window : Window
        query : Query
        reports : sequence of int
            The number of reports of each slice.
        """
        if window.grouping is None or not query.simultaneous:
            return 1
        if window.status != "final":
            return window.grouping.size
        return max(1, sum(number >= window.metric.minimum_reports for number in reports))

    @classmethod
    def answer_slices(
        cls,
        window: Window,
        query: Query,
        progress: Progress = ignore_progress,
        groups: Sequence[int] | None = None,
    ) -> Slices:
        """Return the slices of a window with their estimates, which need enough reports.

        Parameters
        ----------
        window : Window
        query : Query
        progress : callable
            Takes the share of the work that is done; an exception from it ends the work.
        groups : sequence of int, optional
            The slices to show; by default the `query.top` slices with most reports.
        """
        grouping, content = window.grouping, window.content
        assert grouping is not None  # noqa: S101
        assert isinstance(content, SliceSums)  # noqa: S101
        metric, statistics, reports = window.metric, content.statistics, window.slice_reports
        simultaneous = cls.count_sharing_slices(window, query, reports)
        ordered = grouping.order(reports)
        shown = ordered[: query.top] if groups is None else groups
        estimated = [group for group in shown if reports[group] >= metric.minimum_reports]
        estimates: dict[int, Estimate] = {}
        for batch in batched(estimated, MAX_ESTIMATED_TOGETHER):
            progress(len(estimates) / len(estimated))
            windows = [window.with_sums(statistics[group]) for group in batch]
            estimates |= zip(batch, cls.answer_each(windows, query, simultaneous), strict=True)
        slices = [
            SliceEstimate(grouping.slice(group), reports[group], estimates.get(group))
            for group in shown
        ]
        return Slices(window, query, tuple(slices), simultaneous, len(ordered) - len(shown))

    def series(self, window: Window, query: SeriesQuery) -> SeriesPlan:
        """Return the plan of a series, by default of about 200 points, which slices share."""
        metric, grouping = self.metric, window.grouping
        labels, _ = metric.domain.select(query.categories)
        first, last = self._range(window)
        requested_step = None if query.step is None else steps.whole_panes(metric, query.step)
        if first is None or last is None or first >= last:
            return SeriesPlan(query, window, requested_step or metric.pane_ms, [])
        work = metric.domain.work_of(labels)
        if query.categories is not None:
            steps.check_work(metric, work)
        cost = steps.numbers_per_estimate(metric, work)
        width, slices = metric.pane_ms, 1
        if grouping is not None:
            width = grouping.slicing.pane_ms
            slices = min(grouping.size, query.top or grouping.size)
        shown = len(labels) if query.by else min(query.top or len(labels), len(labels))
        max_points = max(2, steps.max_series_points(shown, cost) // slices)
        step = requested_step or steps.default_step(metric, first, last, max_points)
        step = -(-step // width) * width
        steps.check_points(metric, first, last, step, max_points)
        closed = window.overview.closed(self.key)
        windows = []
        for start in range(first - first % step, last, step):
            status = window_status(window.watermarks, closed, start + step)
            windows.append(window.between(start, start + step, status))
        return SeriesPlan(query, window, step, windows)

    def _range(self, window: Window) -> tuple[int | None, int | None]:
        """Return the start and end of a series; by default those of the panes that Redis has."""
        metric, first, last = self.metric, window.start_ms, window.end_ms
        if first is not None and last is not None:
            return first, last
        extent = self.extent(window.overview, window.watermarks)
        if extent is not None:
            oldest, newest = extent
            if metric.retention_ms is not None:
                oldest = max(oldest, metric.pane_start(newest - metric.retention_ms))
            first = oldest if first is None else first
            last = newest + metric.pane_ms if last is None else last
        return first, last


def with_shares(window: Window, query: Query, answer: Callable[[Query], Estimate]) -> Estimate:
    """Return the answer to a query; if it asks for all categories, with the shares among, too.

    Parameters
    ----------
    window : Window
    query : Query
    answer : callable
        Returns the estimate from the window, given a query.
    """
    estimate, shares = answer(query), window.metric.share_names
    if query.categories is not None or not shares:
        return estimate
    with contextlib.suppress(ShareBoundsError):
        shares_query = dataclasses.replace(query, categories=shares)
        estimate = dataclasses.replace(estimate, shares=answer(shares_query))
    return estimate


def _stated(estimate: Estimate, window: Window, query: Query, alternatives: int) -> Estimate:
    """Return an estimate with its status, and with what its bounds cover."""
    if window.status == "expired":
        return estimate.unknown("expired")
    too_few = estimate.reports < window.metric.minimum_reports and window.status != "not_ready"
    return dataclasses.replace(
        estimate,
        beta=query.beta,
        status="too_few_reports" if too_few else window.status,
        covers=coverage_text(window, estimate, query),
        chosen_among=alternatives,
        weights_fixed=query.weights_fixed,
    )
