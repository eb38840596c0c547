"""Samples of exported metrics, and the base class of a feature's samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple

from aggregator.monitoring.metric_definitions import Exported
from aggregator.reading.reader import MetricReader
from aggregator.storage.progress import TopicProgress


class Sample(NamedTuple):
    """A value of an exported metric, with the labels in the declaration's order."""

    exported: Exported
    value: float
    labels: tuple[object, ...] = ()


class Samples(ABC):
    """The exported metrics of a feature.

    Parameters
    ----------
    top : int
        Maximum number of categories or coordinates per metric.

    Attributes
    ----------
    title : str
        The title of its section in docs/metrics.md.
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
        """Yield the samples of a scrape, without unknown values."""
