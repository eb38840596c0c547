"""Prometheus samples of answers, by shape, and of the largest slices."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from aggregator.monitoring import metric_definitions
from aggregator.monitoring.metric_definitions import Bounded
from aggregator.monitoring.samples import Sample, bounded_samples, category_labels
from aggregator.reading.grouping import Groupings, queries, slice_name
from aggregator.reading.plans import LocalPlan
from aggregator.reading.reader import MetricReader
from aggregator.reading.search_progress import search_progress
from aggregator.reading.window import Window
from aggregator.storage.progress import TopicProgress
from estimators import Estimate, Metric, SearchMetric
from estimators.distribution import DistributionEstimate, edge_texts
from estimators.metrics.bins import merged_edge_indices
from estimators.shapes import Shape

UNEXPORTED_STATUSES = ("not_ready", "too_few_reports", "expired")
"""Statuses of answers whose numbers are not exported."""

MAX_EXPORTED_BINS = 32
MAX_SLICE_SAMPLES = 1_000
"""The most samples of slices that a metric has."""


def samples_of(window: Window, estimate: Estimate, top: int) -> Iterable[Sample]:
    """Yield the samples of an answer: its levels, and the numbers of its shape.

    `window`: the window; `estimate`: its estimate; `top`: maximum number of categories or
    coordinates.
    """
    name = window.metric.name
    yield Sample(metric_definitions.EFFECTIVE_REPORTS, estimate.effective_reports, (name,))
    levels = zip(estimate.levels, estimate.counts, estimate.weights, strict=True)
    for epsilon, count, weight in levels:
        yield Sample(metric_definitions.LEVEL_REPORTS, int(count), (name, f"{epsilon:g}"))
        yield Sample(metric_definitions.LEVEL_WEIGHT, float(weight), (name, f"{epsilon:g}"))
    if estimate.heterogeneity is not None:
        yield Sample(metric_definitions.LEVEL_HETEROGENEITY, estimate.heterogeneity, (name,))
    yield from SAMPLES_BY_SHAPE[window.metric.shape](window, estimate, top)


def _numbers(window: Window, estimate: Estimate, top: int) -> Iterable[Sample]:
    """Yield samples of the number, or of the largest named numbers, and of a release's loss."""
    name = window.metric.name
    if estimate.status in UNEXPORTED_STATUSES:
        return
    if estimate.privacy is not None:
        for epsilon, loss in zip(estimate.levels, estimate.privacy, strict=True):
            yield Sample(metric_definitions.LEVEL_LOSS, float(loss), (name, f"{epsilon:g}"))
    if estimate.saturation is not None:
        yield Sample(metric_definitions.RELEASE_SATURATION, estimate.saturation, (name,))
    top_estimate = estimate.top(top)
    yield from _bounds(metric_definitions.BOUNDED_ESTIMATE, (name,), top_estimate)
    unbiased = np.atleast_1d(top_estimate.value).tolist()
    for category, value in zip(category_labels(top_estimate), unbiased, strict=True):
        yield Sample(metric_definitions.UNBIASED_ESTIMATE, value, (name, category))
    if estimate.radius is not None:
        yield Sample(metric_definitions.ESTIMATE_RADIUS, estimate.radius, (name,))
    if estimate.shares is not None:
        for sample in _bounds(metric_definitions.BOUNDED_SHARE_AMONG, (name,), estimate.shares):
            if not math.isnan(sample.value):  # only bounds if nobody may be among them
                yield sample
    if estimate.labels:
        left_out = len(estimate.labels) - len(top_estimate.labels)
        yield Sample(metric_definitions.CATEGORIES_LEFT_OUT, left_out, (name,))


def _bounds(
    exported: Bounded, shared: tuple[object, ...], top_estimate: Estimate
) -> Iterator[Sample]:
    numbers = (top_estimate.shown, top_estimate.lower, top_estimate.upper)
    return bounded_samples(exported, shared, category_labels(top_estimate), *numbers)


def _distribution(window: Window, estimate: Estimate, top: int) -> Iterable[Sample]:
    """Yield a distribution's quantiles, and the shares below some of its edges, with bounds."""
    if estimate.status in UNEXPORTED_STATUSES:
        return
    assert isinstance(estimate, DistributionEstimate)  # noqa: S101
    top_estimate, name = estimate.numbers, (window.metric.name,)
    numbers = (top_estimate.value, top_estimate.lower, top_estimate.upper)
    yield from bounded_samples(
        metric_definitions.BOUNDED_QUANTILE, name, top_estimate.labels, *numbers
    )
    edge_indices = merged_edge_indices(estimate.edges.size - 1, MAX_EXPORTED_BINS)
    shares = (estimate.shown, estimate.cdf_lower, estimate.cdf_upper)
    yield from bounded_samples(
        metric_definitions.BOUNDED_SHARE_BELOW,
        name,
        [*edge_texts(estimate.edges[edge_indices]), "+Inf"],
        *(np.append(x[edge_indices], 1.0) for x in shares),
    )


def _search(window: Window, estimate: Estimate, top: int) -> Iterable[Sample]:
    """Yield the progress of the search for a minimum or maximum."""
    progress, current, metric = search_progress(window), window.round, window.metric
    name = (metric.name,)
    if progress is None or current is None or not isinstance(metric, SearchMetric):
        return
    yield Sample(metric_definitions.SEARCH_ROUND, progress.round, name)
    yield Sample(metric_definitions.SEARCH_ROUNDS, progress.rounds, name)
    yield Sample(metric_definitions.SEARCH_OVER, int(current.is_over), name)
    if progress.threshold is not None:
        yield Sample(metric_definitions.SEARCH_THRESHOLD, progress.threshold, name)
        yield Sample(metric_definitions.SEARCH_ANSWERS, progress.answers, name)
        due = current.opened_ms + metric.round_ms
        yield Sample(metric_definitions.SEARCH_DUE, due / 1000, name)
    yield Sample(metric_definitions.SEARCH_OPENED, current.opened_ms / 1000, name)
    side = "at_most" if metric.kind == "minimum" else "at_least"
    yield Sample(metric_definitions.SEARCH_CERTIFIED, progress.certified, (*name, side))
    yield Sample(metric_definitions.SEARCH_LOW, progress.bisection[0], name)
    yield Sample(metric_definitions.SEARCH_HIGH, progress.bisection[1], name)
    if progress.tail is not None:
        yield Sample(metric_definitions.SEARCH_ALPHA, progress.tail.alpha, name)
    if estimate.status not in UNEXPORTED_STATUSES:
        yield from _bounds(metric_definitions.BOUNDED_ESTIMATE, name, estimate)


SAMPLES_BY_SHAPE: dict[Shape, Callable[[Window, Estimate, int], Iterable[Sample]]] = {
    Shape.NUMBER: _numbers,
    Shape.NAMED_NUMBERS: _numbers,
    Shape.DISTRIBUTION: _distribution,
    Shape.SEARCH: _search,
}


@dataclasses.dataclass(frozen=True)
class SliceExport:
    """The selection of exported slices.

    Attributes
    ----------
    groupings : mapping
        The attributes by which a metric's slices are formed, by metric.
    top : int
        The most slices of a grouping; those with most reports are exported.
    top_categories : int
        The most categories or coordinates of a slice.
    """

    groupings: Groupings = dataclasses.field(default_factory=dict)
    top: int = 20
    top_categories: int = 20

    def samples(
        self, reader: MetricReader, overview: TopicProgress, metric: Metric
    ) -> Iterator[Sample]:
        """Yield the samples of the slices of a metric's running total.

        `reader`: reads the sums in Redis; `overview`: the progress of counting; `metric`: the
        metric. Raises StateUnreadable if the slices cannot be read.
        """
        remaining_samples = MAX_SLICE_SAMPLES
        numbers_per_slice = min(max(1, len(metric.labels)), self.top_categories)
        for query in queries(self.groupings, metric):
            max_slices = min(self.top, max(0, remaining_samples - 1) // (3 * numbers_per_slice + 1))
            window = reader.read(reader.describe(overview, metric.name, query))
            top_query = dataclasses.replace(query, top=max_slices)
            (slices,) = LocalPlan.answer_slices([window], top_query)
            for of_slice in slices.slices:
                labels = (metric.name, slice_name(of_slice.slice, ","))
                yield Sample(metric_definitions.SLICE_REPORTS, of_slice.reports, labels)
                if of_slice.estimate is not None:
                    top_estimate = of_slice.estimate.numbers.top(self.top_categories)
                    yield from _bounds(metric_definitions.BOUNDED_SLICE, labels, top_estimate)
            labels = (metric.name, ",".join(query.by))
            yield Sample(metric_definitions.SLICES_LEFT_OUT, slices.left_out, labels)
            remaining_samples -= len(slices.slices) * (3 * numbers_per_slice + 1) + 1
