"""Prometheus samples of a running total's largest slices."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from aggregator.monitoring import metric_definitions
from aggregator.monitoring.samples import Sample, bounded_samples, category_labels
from aggregator.reading.grouping import Groupings, queries, slice_name
from aggregator.reading.reader import MetricReader
from aggregator.reading.slices.estimates import SliceEstimate
from aggregator.storage.progress import TopicProgress
from estimators import Metric

MAX_SLICE_SAMPLES = 1_000
"""The most samples of slices that a metric has."""


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

        Parameters
        ----------
        reader : MetricReader
        overview : TopicProgress
        metric : Metric

        Raises
        ------
        StateUnreadable
            If the slices cannot be read.
        """
        remaining_samples = MAX_SLICE_SAMPLES
        numbers_per_slice = min(max(1, len(metric.labels)), self.top_categories)
        for query in queries(self.groupings, metric):
            max_slices = min(self.top, max(0, remaining_samples - 1) // (3 * numbers_per_slice + 1))
            window = reader.read(reader.describe(overview, metric.name, query))
            slices = reader.answer_slices(window, dataclasses.replace(query, top=max_slices))
            for estimate in slices.slices:
                yield from self._slice(metric.name, estimate)
            labels = (metric.name, ",".join(query.by))
            yield Sample(metric_definitions.SLICES_LEFT_OUT, slices.left_out, labels)
            remaining_samples -= len(slices.slices) * (3 * numbers_per_slice + 1) + 1

    def _slice(self, name: str, slice_estimate: SliceEstimate) -> Iterator[Sample]:
        labels = (name, slice_name(slice_estimate.slice, ","))
        yield Sample(metric_definitions.SLICE_REPORTS, slice_estimate.reports, labels)
        if slice_estimate.estimate is None:
            return
        shown = slice_estimate.estimate.numbers.top(self.top_categories)
        yield from bounded_samples(
            metric_definitions.BOUNDED_SLICE,
            [(*labels, category) for category in category_labels(shown)],
            *(shown.shown, shown.lower, shown.upper),
        )
