"""Samples of exported metrics, and the base class of a feature's samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from aggregator.monitoring.metric_definitions import Bounded, Exported
from aggregator.reading.reader import MetricReader
from aggregator.storage.progress import TopicProgress
from estimators import Estimate


class Sample(NamedTuple):
    """A value of an exported metric, with the labels' values in the declaration's order."""

    exported: Exported
    value: float
    labels: tuple[object, ...] = ()


def bounded_samples(
    exported: Bounded, shared: tuple[object, ...], labels: Iterable[object], *numbers: Any
) -> Iterator[Sample]:
    """Yield the samples of values and their bounds.

    `exported`: the declared metrics of values and bounds; `shared`: the values of all labels but
    the last; `labels`: the last label of each value; `numbers`, shape (values,): the values, their
    lower and their upper bounds.
    """
    columns = (np.atleast_1d(x).tolist() for x in numbers)
    for label, *row in zip(labels, *columns, strict=True):
        yield from map(Sample, exported, row, ((*shared, label),) * 3)


def category_labels(estimate: Estimate) -> Sequence[str]:
    """Return the label values of an estimate's numbers; "" for a single number."""
    return estimate.labels if np.ndim(estimate.value) else ("",)


class Samples(ABC):
    """The exported metrics of a feature.

    Parameters
    ----------
    top : int
        Maximum number of categories or coordinates per metric.

    Attributes
    ----------
    title : str
        The title of the feature's section in docs/metrics.md.
    exported : tuple of Exported
        The metrics that the feature declares.
    labels : mapping of str to str
        Meanings of the labels that only this feature has.
    """

    title: ClassVar[str]
    exported: ClassVar[tuple[Exported, ...]]
    labels: ClassVar[Mapping[str, str]]

    def __init__(self, reader: MetricReader, top: int) -> None:
        self.reader, self.top = reader, top

    @abstractmethod
    def samples(self, overview: TopicProgress) -> Iterator[Sample]:
        """Yield the feature's samples for a scrape; unknown values are left out."""
