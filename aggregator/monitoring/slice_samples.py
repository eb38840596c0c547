"""Slices as samples of exported metrics: of a running total, those with most reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from aggregator.monitoring import metric_definitions
from aggregator.monitoring.samples import Sample
from aggregator.reading.grouping import Groupings, Slice, queries
from aggregator.reading.reader import MetricReader
from aggregator.reading.slices.estimates import SliceEstimate
from aggregator.storage.progress import TopicProgress
from estimators import Metric
from estimators.metrics.attributes import NO_VALUE

MOST_SAMPLES = 1_000
"""Of the slices of a metric."""


@dataclasses.dataclass(frozen=True)
class SliceExport:
    """Which slices are exported.

    Attributes
    ----------
    groupings : mapping
        By which attributes of devices, by metric.
    top : int
        At most so many slices of each grouping, those with most reports.
    top_categories : int
        At most so many categories or coordinates of each slice.
    """

    groupings: Groupings = dataclasses.field(default_factory=dict)
    top: int = 20
    top_categories: int = 20

    def samples(
        self, reader: MetricReader, overview: TopicProgress, metric: Metric
    ) -> Iterator[Sample]:
        """Yield the slices of a metric's running total.

        Parameters
        ----------
        reader : MetricReader
        overview : TopicProgress
        metric : Metric

        Raises
        ------
        StateUnreadable
            If they cannot be read.
        """
        left = MOST_SAMPLES
        numbers = min(max(1, len(metric.labels)), self.top_categories)
        for query in queries(self.groupings, metric):
            most = min(self.top, max(0, left - 1) // (3 * numbers + 1))
            window = reader.read(reader.describe(overview, metric.name, query))
            found = reader.answer_slices(window, dataclasses.replace(query, top=most))
            for one in found.slices:
                yield from self._slice(metric.name, one)
            labels = (metric.name, ",".join(query.by))
            yield Sample(metric_definitions.SLICES_LEFT_OUT, found.left_out, labels)
            left -= len(found.slices) * (3 * numbers + 1) + 1

    def _slice(self, name: str, one: SliceEstimate) -> Iterator[Sample]:
        labels = (name, slice_label(one.slice))
        yield Sample(metric_definitions.SLICE_REPORTS, one.reports, labels)
        if one.estimate is None:
            return
        shown = one.estimate.numbers.top(self.top_categories)
        categories = shown.labels if np.ndim(shown.value) else ("",)
        for what, numbers in (
            (metric_definitions.SLICE_ESTIMATE, shown.shown),
            (metric_definitions.SLICE_LOWER, shown.lower),
            (metric_definitions.SLICE_UPPER, shown.upper),
        ):
            for category, value in zip(categories, np.atleast_1d(numbers).tolist(), strict=True):
                yield Sample(what, value, (*labels, category))


def slice_label(values: Slice) -> str:
    """Return a slice as the value of a label.

    Examples
    --------
    >>> slice_label({"country": "DE", "version": None})
    'country=DE,version=none'
    """
    return ",".join(
        f"{name}={NO_VALUE if value is None else value}" for name, value in values.items()
    )
