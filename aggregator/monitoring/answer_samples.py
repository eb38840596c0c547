"""Answers as samples of Prometheus metrics, by their shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from aggregator.monitoring import metric_definitions
from aggregator.monitoring.samples import Sample
from aggregator.reading.search_progress import search_progress
from aggregator.reading.windows import Window
from estimators import Estimate, SearchMetric
from estimators.distribution import DistributionEstimate, edge_texts
from estimators.metrics.bins import merged_edge_indices
from estimators.shapes import Shape

UNKNOWN = ("not_ready", "too_few_reports", "expired")
"""Statuses of answers whose numbers are not exported."""


MOST_BINS = 32


def samples_of(window: Window, estimate: Estimate, top: int) -> Iterable[Sample]:
    """Yield an answer: the levels it rests on, and what its shape has.

    Parameters
    ----------
    window : Window
    estimate : Estimate
    top : int
        At most so many categories or coordinates.
    """
    name = window.metric.name
    yield Sample(metric_definitions.EFFECTIVE_REPORTS, estimate.effective_reports, (name,))
    levels = zip(estimate.levels, estimate.counts, estimate.weights, strict=True)
    for epsilon, count, weight in levels:
        yield Sample(metric_definitions.LEVEL_REPORTS, int(count), (name, f"{epsilon:g}"))
        yield Sample(metric_definitions.LEVEL_WEIGHT, float(weight), (name, f"{epsilon:g}"))
    if estimate.heterogeneity is not None:
        yield Sample(metric_definitions.HETEROGENEITY, estimate.heterogeneity, (name,))
    yield from SHAPES[window.metric.shape](window, estimate, top)


def _numbers(window: Window, estimate: Estimate, top: int) -> Iterable[Sample]:
    """Yield one number, or the largest of named ones, with bounds; of a release, what it cost."""
    name = window.metric.name
    if estimate.status in UNKNOWN:
        return
    if estimate.privacy is not None:
        for epsilon, loss in zip(estimate.levels, estimate.privacy, strict=True):
            yield Sample(metric_definitions.LEVEL_LOSS, float(loss), (name, f"{epsilon:g}"))
    if estimate.saturation is not None:
        yield Sample(metric_definitions.SATURATION, estimate.saturation, (name,))
    shown = estimate.top(top)
    yield from _bounds(name, shown)
    categories = shown.labels if np.ndim(shown.value) else ("",)
    for category, unbiased in zip(categories, np.atleast_1d(shown.value).tolist(), strict=True):
        yield Sample(metric_definitions.UNBIASED, unbiased, (name, category))
    if estimate.radius is not None:
        yield Sample(metric_definitions.RADIUS, estimate.radius, (name,))
    if estimate.labels:
        left_out = len(estimate.labels) - len(shown.labels)
        yield Sample(metric_definitions.CATEGORIES_LEFT_OUT, left_out, (name,))


def _bounds(name: str, shown: Estimate) -> Iterable[Sample]:
    numbers = (np.atleast_1d(x).tolist() for x in (shown.shown, shown.lower, shown.upper))
    categories = shown.labels if np.ndim(shown.value) else ("",)
    for category, value, lower, upper in zip(categories, *numbers, strict=True):
        yield Sample(metric_definitions.ESTIMATE, value, (name, category))
        yield Sample(metric_definitions.LOWER, lower, (name, category))
        yield Sample(metric_definitions.UPPER, upper, (name, category))


def _distribution(window: Window, estimate: Estimate, top: int) -> Iterable[Sample]:
    """Yield the quantiles of a distribution and shares below some of its edges, with bounds."""
    if estimate.status in UNKNOWN:
        return
    assert isinstance(estimate, DistributionEstimate)  # noqa: S101
    shown = estimate.numbers
    for what, numbers in (
        (metric_definitions.QUANTILE, shown.value),
        (metric_definitions.QUANTILE_LOWER, shown.lower),
        (metric_definitions.QUANTILE_UPPER, shown.upper),
    ):
        for name, number in zip(shown.labels, np.atleast_1d(numbers).tolist(), strict=True):
            yield Sample(what, number, (window.metric.name, name))
    places = merged_edge_indices(estimate.edges.size - 1, MOST_BINS)
    names = [*edge_texts(estimate.edges[places]), "+Inf"]
    for what, shares in (
        (metric_definitions.SHARE_BELOW, estimate.shown),
        (metric_definitions.SHARE_BELOW_LOWER, estimate.cdf_lower),
        (metric_definitions.SHARE_BELOW_UPPER, estimate.cdf_upper),
    ):
        for name, share in zip(names, [*shares[places].tolist(), 1.0], strict=True):
            yield Sample(what, share, (window.metric.name, name))


def _search(window: Window, estimate: Estimate, top: int) -> Iterable[Sample]:
    """Yield where the search of a minimum or maximum stands."""
    found, current, metric = search_progress(window), window.round, window.metric
    name = (metric.name,)
    if found is None or current is None or not isinstance(metric, SearchMetric):
        return
    yield Sample(metric_definitions.SEARCH_ROUND, found.round, name)
    yield Sample(metric_definitions.SEARCH_ROUNDS, found.rounds, name)
    yield Sample(metric_definitions.SEARCH_OVER, int(current.is_over), name)
    if found.threshold is not None:
        yield Sample(metric_definitions.SEARCH_THRESHOLD, found.threshold, name)
        yield Sample(metric_definitions.SEARCH_ANSWERS, found.answers, name)
        due = current.opened_ms + metric.round_ms
        yield Sample(metric_definitions.SEARCH_DUE, due / 1000, name)
    yield Sample(metric_definitions.SEARCH_OPENED, current.opened_ms / 1000, name)
    side = "at_most" if metric.kind == "minimum" else "at_least"
    yield Sample(metric_definitions.SEARCH_CERTIFIED, found.certified, (*name, side))
    yield Sample(metric_definitions.SEARCH_LOW, found.bisection[0], name)
    yield Sample(metric_definitions.SEARCH_HIGH, found.bisection[1], name)
    if found.tail is not None:
        yield Sample(metric_definitions.SEARCH_ALPHA, found.tail.alpha, name)
    if estimate.status not in UNKNOWN:
        yield from _bounds(metric.name, estimate)


SHAPES: dict[Shape, Callable[[Window, Estimate, int], Iterable[Sample]]] = {
    Shape.NUMBER: _numbers,
    Shape.NAMED_NUMBERS: _numbers,
    Shape.DISTRIBUTION: _distribution,
    Shape.SEARCH: _search,
}
"""The samples of an answer of each shape."""
