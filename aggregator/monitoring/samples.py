"""Samples of exported metrics, and what a feature exports."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar, NamedTuple

from aggregator.monitoring.metric_definitions import Exported
from aggregator.reading.reader import MetricReader
from aggregator.storage.progress import TopicProgress


class Sample(NamedTuple):
    """A value of an exported metric, with the labels in the declaration's order."""

    what: Exported
    value: float
    labels: tuple[object, ...] = ()


class Samples(ABC):
    """What a feature exports.

    Parameters
    ----------
    reader : MetricReader
    top : int
        Categories or coordinates to export at most.

    Attributes
    ----------
    title : str
        Of its section in docs/metrics.md.
    exported : tuple of Exported
    labels : mapping of str to str
        The meaning of the labels that no other metric has.
    """

    title: ClassVar[str]
    exported: ClassVar[tuple[Exported, ...]]
    labels: ClassVar[Mapping[str, str]]

    def __init__(self, reader: MetricReader, top: int) -> None:
        self.reader, self.top = reader, top

    @abstractmethod
    def samples(self, overview: TopicProgress) -> Iterator[Sample]:
        """Yield the samples of a scrape; nothing of what is not known.

        Parameters
        ----------
        overview : TopicProgress
            As of now.
        """
