"""The plan for locally randomized reports: a window is the sum of its panes."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from aggregator.errors import PaneExpired
from aggregator.reading import steps
from aggregator.reading.coverage import chosen_among, covers
from aggregator.reading.grouping import Grouping
from aggregator.reading.plans.base import Plan
from aggregator.reading.query import Progress, Query, SeriesQuery, unwatched
from aggregator.reading.series_plan import SeriesPlan, Step
from aggregator.reading.slices.estimates import SliceEstimate, Slices, SliceTables
from aggregator.reading.windows import SliceSums, Sums, Window, widened, window_status
from aggregator.storage.progress import TopicProgress
from estimators import Estimate, LocalMetric, Metric

EXPIRY_MS = 60_000
"""How long an answer from panes that expire is taken to be the same."""


def expiry_period(metric: Metric) -> int:
    """Return a number that is another one after EXPIRY_MS; 0 if the metric's panes never expire."""
    return 0 if metric.retention_ms is None else int(1000 * time.time()) // EXPIRY_MS


class LocalPlan(Plan[LocalMetric]):
    """Reads sums of randomized reports."""

    def describe(self, overview: TopicProgress, query: Query) -> Window:
        """Return a window with what is known before its sums are read."""
        watermarks, metric = self.watermarks(overview), self.metric
        first, last = self.edges(query, watermarks)
        grouping = Grouping.of(metric, query)
        if grouping is not None:
            first, last = widened(first, last, grouping.slicing.pane_ms)
        status = window_status(watermarks, overview.closed(self.key), last)
        policy = self.policy(overview)
        until = 0 if first is None and last is None else expiry_period(metric)
        asked = (self.key, first, last, status, policy, grouping)
        facts = (*asked, self.counted(overview), sorted(watermarks.items()), until)
        fields = {"start_ms": first, "end_ms": last, "grouping": grouping}
        return self.window(
            overview, query, watermarks, facts, status=status, policy=policy, **fields
        )

    def read(self, window: Window) -> Window:
        """Return a window with its sums; final only if all of it was read from one history."""
        try:
            if window.grouping is None:
                found = window.with_sums(self.sums.of_window(window))
            else:
                content = SliceTables(self.sums, self.metric).read(window, window.grouping)
                found = dataclasses.replace(window, content=content)
        except PaneExpired:
            return window.expired()
        if window.status == "final" and not self.store.is_same_history(window.overview):
            return dataclasses.replace(found, status="provisional")
        return found

    @staticmethod
    def answer(window: Window, query: Query, simultaneous: int = 1) -> Estimate:
        """Return the estimate from the sums of a window.

        Parameters
        ----------
        window : Window
        query : Query
        simultaneous : int
            So many answers like this one share beta.
        """
        metric, beta = window.metric, query.beta
        assert isinstance(metric, LocalMetric)  # noqa: S101
        if window.is_running_total and not window.slides:
            query.refuse_several(
                "expected a window, or a start and an end; a running total has one start"
            )
        if not 0 < beta < 1:
            raise ValueError(f"beta = {beta!r}: expected a probability between 0 and 1")
        known = window.bound if query.bound == "auto" else query.bound
        among = chosen_among(window, query)
        estimate = metric.estimate(
            window.sums,
            beta / (among * query.windows * simultaneous),
            window.policy if query.weights is None else query.weights,
            known,
            query.target,
            categories=query.categories,
            simultaneous=query.simultaneous,
            panes=window.panes,
        )
        if window.status == "expired":
            return estimate.unknown("expired")
        too_few = estimate.reports < metric.minimum_reports and window.status != "not_ready"
        return dataclasses.replace(
            estimate,
            beta=beta,
            status="too_few_reports" if too_few else window.status,
            covers=covers(window, estimate, query),
            chosen_among=among,
            weights_fixed=query.weights_fixed,
        )

    @staticmethod
    def sharing(window: Window, query: Query, reports: Sequence[int]) -> int:
        """Return how many slices share beta.

        In a final window those with enough reports, which says nothing about values. In one that
        grows their number changes, so all slices of the grouping share it.

        Parameters
        ----------
        window : Window
        query : Query
        reports : sequence of int
            Of each slice.
        """
        if window.grouping is None or not query.simultaneous:
            return 1
        if window.status != "final":
            return window.grouping.size
        return max(1, sum(number >= window.metric.minimum_reports for number in reports))

    @classmethod
    def answer_slices(cls, window: Window, query: Query, progress: Progress = unwatched) -> Slices:
        """Return the estimates of the slices of a window; those with few reports have none.

        Parameters
        ----------
        window : Window
        query : Query
        progress : callable
            Is told the share of the work that is done; what it raises ends the work.
        """
        grouping, content = window.grouping, window.content
        assert grouping is not None  # noqa: S101
        assert isinstance(content, SliceSums)  # noqa: S101
        metric, statistics = window.metric, content.statistics
        reports = [int(metric.counts(row).sum()) for row in statistics]
        simultaneous = cls.sharing(window, query, reports)
        ordered = grouping.order(reports)
        found = []
        shown = ordered[: query.top]
        for place, group in enumerate(shown):
            progress(place / len(shown))
            one = dataclasses.replace(window, content=Sums(statistics[group]))
            estimate = None
            if reports[group] >= metric.minimum_reports:
                estimate = cls.answer(one, query, simultaneous)
            found.append(SliceEstimate(grouping.slice(group), reports[group], estimate))
        left = len(ordered) - len(found)
        return Slices(window, query, tuple(found), simultaneous, left)

    def series(self, window: Window, query: SeriesQuery) -> SeriesPlan:
        """Return the steps of a series: of whole panes, about 200 of them unless it says."""
        metric = self.metric
        if query.is_sliced:
            raise ValueError("by, where: expected none for a series")
        labels, _ = metric.domain.select(query.categories)
        first, last = self._range(window)
        wished = None if query.step is None else steps.whole_panes(metric, query.step)
        if first is None or last is None or first >= last:
            return SeriesPlan(query, window, wished or metric.pane_ms, [])
        shown = len(labels) if query.top is None else min(query.top, len(labels))
        most = steps.most_points(shown, steps.estimated(metric, len(labels)))
        step = wished or steps.default_step(metric, first, last, most)
        steps.check_points(metric, first, last, step, most)
        closed = window.overview.closed(self.key)
        found = []
        for start in range(first - first % step, last, step):
            status = window_status(window.watermarks, closed, start + step)
            found.append(Step(start, start + step, status))
        return SeriesPlan(query, window, step, found)

    def _range(self, window: Window) -> tuple[int | None, int | None]:
        """Return where a series begins and ends where its query does not say."""
        metric, first, last = self.metric, window.start_ms, window.end_ms
        if first is not None and last is not None:
            return first, last
        known = self.store.panes.extent(self.key, [*window.watermarks])
        if known is not None:
            oldest, newest = known
            if metric.retention_ms is not None:
                oldest = max(oldest, metric.pane_start(newest - metric.retention_ms))
            first = oldest if first is None else first
            last = newest + metric.pane_ms if last is None else last
        return first, last
