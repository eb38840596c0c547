"""Prometheus samples of answers, by shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np

from aggregator.monitoring import metric_definitions
from aggregator.monitoring.samples import Sample
from aggregator.reading.search_progress import search_progress
from aggregator.reading.window import Window
from estimators import Estimate, SearchMetric
from estimators.distribution import DistributionEstimate, edge_texts
from estimators.metrics.bins import merged_edge_indices
from estimators.shapes import Shape

UNEXPORTED_STATUSES = ("not_ready", "too_few_reports", "expired")
"""Statuses of answers without exported numbers."""

MAX_EXPORTED_BINS = 32


def samples_of(window: Window, estimate: Estimate, top: int) -> Iterable[Sample]:
    """Yield the samples of an answer: its levels, and the numbers of its shape.

    Parameters
    ----------
    window : Window
    estimate : Estimate
    top : int
        Maximum number of categories or coordinates.
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
    """Yield one number or the largest named ones, with bounds; for a release, the privacy loss."""
    name = window.metric.name
    if estimate.status in UNEXPORTED_STATUSES:
        return
    if estimate.privacy is not None:
        for epsilon, loss in zip(estimate.levels, estimate.privacy, strict=True):
            yield Sample(metric_definitions.LEVEL_LOSS, float(loss), (name, f"{epsilon:g}"))
    if estimate.saturation is not None:
        yield Sample(metric_definitions.RELEASE_SATURATION, estimate.saturation, (name,))
    shown = estimate.top(top)
    yield from _bounds(name, shown)
    categories = shown.labels if np.ndim(shown.value) else ("",)
    for category, unbiased in zip(categories, np.atleast_1d(shown.value).tolist(), strict=True):
        yield Sample(metric_definitions.UNBIASED_ESTIMATE, unbiased, (name, category))
    if estimate.radius is not None:
        yield Sample(metric_definitions.ESTIMATE_RADIUS, estimate.radius, (name,))
    if estimate.shares is not None:
        yield from _shares(name, estimate.shares)
    if estimate.labels:
        left_out = len(estimate.labels) - len(shown.labels)
        yield Sample(metric_definitions.CATEGORIES_LEFT_OUT, left_out, (name,))


def _shares(name: str, shares: Estimate) -> Iterable[Sample]:
    """Yield the definition's shares among; of one whose B may be empty, the bounds alone."""
    for exported, numbers in (
        (metric_definitions.SHARE_AMONG, shares.shown),
        (metric_definitions.SHARE_AMONG_LOWER, shares.lower),
        (metric_definitions.SHARE_AMONG_UPPER, shares.upper),
    ):
        for share, number in zip(shares.labels, np.asarray(numbers).tolist(), strict=True):
            if not math.isnan(number):
                yield Sample(exported, number, (name, share))


def _bounds(name: str, shown: Estimate) -> Iterable[Sample]:
    numbers = (np.atleast_1d(x).tolist() for x in (shown.shown, shown.lower, shown.upper))
    categories = shown.labels if np.ndim(shown.value) else ("",)
    for category, value, lower, upper in zip(categories, *numbers, strict=True):
        yield Sample(metric_definitions.ESTIMATE_VALUE, value, (name, category))
        yield Sample(metric_definitions.ESTIMATE_LOWER, lower, (name, category))
        yield Sample(metric_definitions.ESTIMATE_UPPER, upper, (name, category))


def _distribution(window: Window, estimate: Estimate, top: int) -> Iterable[Sample]:
    """Yield a distribution's quantiles, and its shares below some edges, with bounds."""
    if estimate.status in UNEXPORTED_STATUSES:
        return
    assert isinstance(estimate, DistributionEstimate)  # noqa: S101
    shown = estimate.numbers
    for exported, numbers in (
        (metric_definitions.QUANTILE_VALUE, shown.value),
        (metric_definitions.QUANTILE_LOWER, shown.lower),
        (metric_definitions.QUANTILE_UPPER, shown.upper),
    ):
        for name, number in zip(shown.labels, np.atleast_1d(numbers).tolist(), strict=True):
            yield Sample(exported, number, (window.metric.name, name))
    edge_indices = merged_edge_indices(estimate.edges.size - 1, MAX_EXPORTED_BINS)
    names = [*edge_texts(estimate.edges[edge_indices]), "+Inf"]
    for exported, shares in (
        (metric_definitions.SHARE_BELOW, estimate.shown),
        (metric_definitions.SHARE_BELOW_LOWER, estimate.cdf_lower),
        (metric_definitions.SHARE_BELOW_UPPER, estimate.cdf_upper),
    ):
        for name, share in zip(names, [*shares[edge_indices].tolist(), 1.0], strict=True):
            yield Sample(exported, share, (window.metric.name, name))


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
        yield from _bounds(metric.name, estimate)


SAMPLES_BY_SHAPE: dict[Shape, Callable[[Window, Estimate, int], Iterable[Sample]]] = {
    Shape.NUMBER: _numbers,
    Shape.NAMED_NUMBERS: _numbers,
    Shape.DISTRIBUTION: _distribution,
    Shape.SEARCH: _search,
}
