"""The series of an alarm: one for each slice and category."""

from __future__ import annotations

import dataclasses

import msgspec

from aggregator.alarms.answers import Baseline, series_names
from aggregator.config.alarm_definitions import AlarmDefinition
from aggregator.reading.grouping import Grouping, Slice
from aggregator.reading.query import Query
from aggregator.reading.slices.answers import values
from estimators import LocalMetric
from estimators.alarms import Detector
from estimators.estimate import Counts


@dataclasses.dataclass
class Series:
    """One series of an alarm: a slice, and one of its numbers.

    Attributes
    ----------
    slice : mapping
    category : str or None
    baseline : ndarray of int64 or None
        The sums of its baseline.
    detector : Detector or None
        None: it is not watched, or not yet; `reason` says why not.
    known : Baseline or None
        What it is compared with.
    """

    group: int
    slice: Slice
    category: str | None
    index: int | None
    baseline: Counts | None = None
    detector: Detector | None = None
    known: Baseline | None = None
    evidence: float | None = None
    smallest_shift: float | None = None
    panes: int = 0
    alarms: int = 0
    reason: str = ""

    @property
    def name(self) -> str:
        """The series in words: ``attribute=value`` of its slice, and its category."""
        category = msgspec.UNSET if self.category is None else self.category
        return ",".join(series_names(values(self.slice), category))


def series_of(metric: LocalMetric, definition: AlarmDefinition) -> list[Series]:
    """Return the series of an alarm: each of its slices with each of its categories.

    Parameters
    ----------
    metric : LocalMetric
        The one it watches.
    definition : AlarmDefinition
    """
    grouping = Grouping.of(metric, Query(by=definition.by, where=definition.where))
    slices: list[Slice] = [{}]
    if grouping is not None and definition.by:
        slices = [grouping.slice(group) for group in range(grouping.size)]
    labels, _ = metric.domain.select(definition.categories)
    numbers: list[tuple[str | None, int | None]] = [(None, None)]
    if labels:
        numbers = [(label, metric.domain.labels.index(label)) for label in labels]
    return [
        Series(group, found, category, index)
        for group, found in enumerate(slices)
        for category, index in numbers
    ]


def promise(definition: AlarmDefinition, series: int) -> str:
    """Return in words how many false alarms an alarm allows."""
    number, _, stretch = definition.promise.partition("/")
    together = f", over {series} series together" if series > 1 else ""
    alarms = "false alarm" if float(number) == 1 else "false alarms"
    return (
        f"by chance alone at most {number} {alarms} expected in the first {stretch} from the start"
        f"{together}; "
        "in longer stretches from the start in proportion"
    )
