"""The plan for locally randomized reports, whose window is the sum of its panes."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from aggregator.reading import steps
from aggregator.reading.coverage import count_alternatives, coverage_text
from aggregator.reading.grouping import Grouping
from aggregator.reading.pane_sums import batched, step_groups
from aggregator.reading.plans.base import ReadingPlan, SeriesPlan
from aggregator.reading.query import (
    RUNNING_TOTAL,
    Progress,
    Query,
    SeriesQuery,
    ignore_progress,
    statement_of,
)
from aggregator.reading.slices.estimates import SliceEstimate, Slices
from aggregator.reading.slices.sums import SliceTables
from aggregator.reading.window import Window, edges, widened, window_status
from aggregator.state.slice_tables import chunk_rows
from aggregator.storage.progress import TopicProgress
from estimators import Estimate, LocalMetric, Metric
from estimators.metrics.shares import ShareBoundsError

K = TypeVar("K", bound=Hashable)
MAX_CACHED_NUMBERS = 3_000_000
"""The most numbers in the cache: 24 MB of estimates."""
MAX_ESTIMATED_TOGETHER = 64
"""How many windows or slices are estimated before the next check whether the client has left."""
EXPIRY_PERIOD_MS = 60_000
"""How long an answer from panes that expire may be cached."""


class EstimateCache:
    """A cache of estimates with up to `max_numbers` numbers; it drops the least recently used."""

    def __init__(self, max_numbers: int = MAX_CACHED_NUMBERS) -> None:
        self.max_numbers, self.cached_numbers = max_numbers, 0
        self._estimates: OrderedDict[Hashable, Estimate] = OrderedDict()
        self._lock = threading.Lock()

    def cached(self, keys: Iterable[K]) -> dict[K, Estimate]:
        """Return the cached estimates by key, of those keys that have an estimate."""
        estimates = {}
        with self._lock:
            for key in keys:
                if key in self._estimates:
                    self._estimates.move_to_end(key)
                    estimates[key] = self._estimates[key]
        return estimates

    def put(self, key: Hashable, estimate: Estimate) -> None:
        """Cache an estimate; its arrays become read-only."""
        for number in (getattr(estimate, field.name) for field in dataclasses.fields(estimate)):
            if isinstance(number, np.ndarray):
                number.flags.writeable = False
        with self._lock:
            if key not in self._estimates:
                self._estimates[key] = estimate
                self.cached_numbers += _size(estimate)
            while self.cached_numbers > self.max_numbers:
                self.cached_numbers -= _size(self._estimates.popitem(last=False)[1])


def _size(estimate: Estimate) -> int:
    """Return how many numbers an estimate counts as, including the overhead of its fields."""
    return 3 * int(np.size(estimate.value)) + 2 * len(estimate.levels) + 100


def expiry_period(metric: Metric) -> int:
    """Return the number of the current cache period; 0 if the metric's panes never expire."""
    return 0 if metric.retention_ms is None else int(1000 * time.time()) // EXPIRY_PERIOD_MS


class LocalPlan(ReadingPlan[LocalMetric]):
    """Reads sums of randomized reports."""

    def describe(self, overview: TopicProgress, query: Query, grouping: Grouping | None) -> Window:
        """Return a window without its sums."""
        metric, key = self.metric, self.key
        watermarks, closed = overview.watermarks(key), overview.closed(key)
        counts, policy = overview.count_version(metric.name), overview.policy(metric)
        extent = functools.partial(self.sums.extent, overview, key, watermarks)
        first, last = edges(metric, query, extent)
        if grouping is not None:
            first, last = widened(first, last, grouping.slicing.pane_ms)
        status = window_status(watermarks, closed, last)
        expiry = 0 if first is None and last is None else expiry_period(metric)
        question = (self.definition_hash, first, last, status, policy, repr(grouping))
        return Window.described(
            metric,
            overview,
            watermarks,
            (*question, counts, sorted(watermarks.items()), expiry),
            start_ms=first,
            end_ms=last,
            status=status,
            policy=policy,
            slides=query.window is not None,
            grouping=grouping,
        )

    def read(self, window: Window) -> Window:
        """Return a window with its sums; it is not final if Redis lost data during the read."""
        if window.grouping is not None:
            return next(self.read_slices([window], window.grouping))[0]
        return self.sums.read_window(window)

    def read_slices(self, windows: Sequence[Window], grouping: Grouping) -> Iterator[list[Window]]:
        """Yield windows with the sums of their slices, in reads of bounded size.

        `windows`: a window, or ascending steps of the same length; `grouping`: their grouping.
        """
        chunks = -(-grouping.slicing.size // chunk_rows(self.metric))
        for group in step_groups(windows, grouping.size + 1, chunks + 1):
            yield SliceTables(self.sums, self.metric).read(group, grouping)

    @staticmethod
    def answer(window: Window, query: Query) -> Estimate:
        """Return the estimate from the sums of a window."""
        return with_shares([window], query, functools.partial(LocalPlan.answer_each, [window]))[0]

    @staticmethod
    def answers(windows: Sequence[Window]) -> Iterator[Estimate]:
        """Yield what :meth:`answer` returns, bit for bit, for many final windows of a metric.

        Answers are computed together if the mechanism then computes the same numbers.
        """
        metric, size = windows[0].metric, 1
        if metric.randomizer.is_exact_together:
            numbers = steps.numbers_per_estimate(metric, len(metric.labels))
            size = max(1, min(MAX_ESTIMATED_TOGETHER, steps.MAX_QUICK_NUMBERS // numbers))
        for batch in batched(windows, size):
            answer_each = functools.partial(LocalPlan.answer_each, batch)
            yield from with_shares(batch, RUNNING_TOTAL, answer_each)

    def cached_answer(self, window: Window, query: Query, cache: EstimateCache) -> Estimate:
        """Return :meth:`answer`, from the cache if the window's sums were estimated before.

        `window`: the window, with its sums; `query`: the parameters of the query; `cache`: keeps
        estimates by question and sums.
        """
        answer_each = functools.partial(self.cached_answers, [window], cache=cache)
        return with_shares([window], query, answer_each)[0]

    def cached_answers(
        self, windows: Sequence[Window], query: Query, cache: EstimateCache
    ) -> list[Estimate]:
        """Return :meth:`answer_each`, from the cache for windows whose sums were estimated before.

        `windows`: the windows, with their sums; `query`: the query about each of them; `cache`:
        keeps estimates by question and sums.
        """
        question = self.definition_hash, statement_of(query)
        keys = [(*question, *window.sums_key) for window in windows]
        estimates = cache.cached(keys)
        missing = {key: w for key, w in zip(keys, windows, strict=True) if key not in estimates}
        if missing:
            computed = LocalPlan.answer_each([*missing.values()], query)
            for key, estimate in zip(missing, computed, strict=True):
                cache.put(key, estimate)
                estimates[key] = estimate
        return [estimates[key] for key in keys]

    @staticmethod
    def answer_each(
        windows: Sequence[Window], query: Query, simultaneous: Sequence[int] | None = None
    ) -> list[Estimate]:
        """Return the estimates from the sums of a metric's windows, which are computed together.

        `windows`: the windows, with their sums; `query`: the parameters of the query;
        `simultaneous`: for each window, the number of answers among which beta is shared; by
        default 1. Raises ValueError if the query does not fit the metric.
        """
        metric, beta = LocalMetric.require(windows[0].metric), query.beta
        questions: defaultdict[tuple[str, str, int | None, int, int], list[int]]
        questions = defaultdict(list)
        for index, window in enumerate(windows):
            sharing = 1 if simultaneous is None else simultaneous[index]
            if window.is_running_total and not window.slides:
                query.refuse_several(
                    "expected a window, or a start and an end; a running total has one start"
                )
            bound = window.bound if query.bound == "auto" else query.bound
            policy = window.policy if query.weights is None else query.weights
            alternatives = count_alternatives(window, query)
            questions[bound, policy, window.panes, alternatives, sharing].append(index)
        if not 0 < beta < 1:
            raise ValueError(f"beta = {beta!r}: expected a probability between 0 and 1")
        estimates: dict[int, Estimate] = {}
        for (bound, policy, panes, alternatives, sharing), indices in questions.items():
            computed = metric.estimate_each(
                [windows[index].sums for index in indices],
                beta / (alternatives * query.windows * sharing),
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
        `window`: the window; `query`: the parameters of the query; `reports`: the number of reports
        of each slice.
        """
        if window.grouping is None or not query.simultaneous:
            return 1
        if window.status != "final":
            return window.grouping.size
        return max(1, sum(number >= window.metric.minimum_reports for number in reports))

    @classmethod
    def answer_slices(
        cls,
        windows: Sequence[Window],
        query: Query,
        progress: Progress = ignore_progress,
        groups: Sequence[int] | None = None,
    ) -> list[Slices]:
        """Return the slices of windows with their estimates, which need enough reports.

        `windows`: windows with the sums of the same slices; `query`: the parameters of the query;
        `progress`: takes the share of the work that is done; an exception from it ends the work;
        `groups`: the slices to show; by default the `query.top` slices with most reports.
        """
        grouping, minimum = windows[0].grouping, windows[0].metric.minimum_reports
        assert grouping is not None  # noqa: S101
        counted = [window.slice_reports for window in windows]
        shown = [grouping.order(reports)[: query.top] for reports in counted]
        if groups is not None:
            shown = [[*groups]] * len(windows)
        pairs = [*zip(windows, counted, strict=True)]
        simultaneous = [cls.count_sharing_slices(window, query, x) for window, x in pairs]
        slices = {
            (index, group): windows[index].of_slice(group)
            for index, reports in enumerate(counted)
            for group in shown[index]
            if reports[group] >= minimum
        }
        in_order = sorted(slices, key=lambda key: slices[key].used_levels)
        estimates: dict[tuple[int, int], Estimate] = {}
        for batch in batched(in_order, MAX_ESTIMATED_TOGETHER):
            progress(len(estimates) / len(slices))
            sharing = [simultaneous[index] for index, _ in batch]
            computed = cls.answer_each([slices[key] for key in batch], query, sharing)
            estimates |= zip(batch, computed, strict=True)
        answers = []
        for index, (window, reports) in enumerate(pairs):
            rows = tuple(
                SliceEstimate(grouping.slice(group), reports[group], estimates.get((index, group)))
                for group in shown[index]
            )
            left_out = sum(map(bool, reports)) - len(rows)
            answers.append(Slices(window, query, rows, simultaneous[index], left_out))
        return answers

    def series(self, window: Window, query: SeriesQuery) -> SeriesPlan:
        """Return the plan of a series: by default about 200 steps, fewer with many slices."""
        metric, grouping = self.metric, window.grouping
        labels, _ = metric.domain.select(query.categories)
        first, last = self._range(window)
        requested_step = None if query.step is None else steps.whole_panes(metric, query.step)
        if first is None or last is None or first >= last:
            return SeriesPlan(self, query, window, requested_step or metric.pane_ms, [])
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
        return SeriesPlan(self, query, window, step, windows)

    def _range(self, window: Window) -> tuple[int | None, int | None]:
        """Return a series' start and end; by default those of the unexpired panes, if any."""
        metric, first, last = self.metric, window.start_ms, window.end_ms
        if first is not None and last is not None:
            return first, last
        extent = self.sums.extent(window.overview, self.key, window.watermarks)
        if extent is not None:
            oldest, newest = extent
            if metric.retention_ms is not None:
                oldest = max(oldest, metric.pane_start(newest - metric.retention_ms))
            first = oldest if first is None else first
            last = newest + metric.pane_ms if last is None else last
        return first, last


def with_shares(
    windows: Sequence[Window], query: Query, answer_each: Callable[[Query], list[Estimate]]
) -> list[Estimate]:
    """Return the answers to a query; those for all categories also have the defined shares.

    `windows`: windows of one metric; `query`: the parameters of the query; `answer_each`: returns
    the estimates from the windows, given a query.
    """
    estimates, shares = answer_each(query), windows[0].metric.share_names
    if query.categories is None and shares:
        with contextlib.suppress(ShareBoundsError):
            shares_each = answer_each(dataclasses.replace(query, categories=shares))
            estimates = [
                dataclasses.replace(estimate, shares=among)
                for estimate, among in zip(estimates, shares_each, strict=True)
            ]
    return estimates


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
