"""The series of an alarm: one for each slice and category."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import msgspec

from aggregator.features.alarms.answers import series_names
from aggregator.features.alarms.definitions import AlarmDefinition
from aggregator.features.alarms.stored import SeriesState
from aggregator.reading.grouping import Grouping, Slice
from aggregator.reading.query import Query
from aggregator.reading.serialization import values
from estimators import LocalMetric
from estimators.alarms import Detector
from estimators.comparison.distributions import limit_indices
from estimators.distribution import share_names


@dataclasses.dataclass
class AlarmSeries:
    """A series of an alarm: a slice, and one of its numbers.

    Attributes
    ----------
    below : tuple of float
        For a distribution: the edge; the watched number is the share of users below it.
    state : SeriesState
        Its `detector` is empty; `detector` has that state while the alarm runs.
    detector : Detector or None
        None if the series is not watched, or not yet.
    """

    group: int
    slice: Slice
    category: str | None
    index: int | None
    below: tuple[float, ...] = ()
    state: SeriesState = dataclasses.field(default_factory=SeriesState)
    detector: Detector | None = None

    @property
    def name(self) -> str:
        """The ``attribute=value`` pairs of the series' slice, and its category."""
        category = msgspec.UNSET if self.category is None else self.category
        return ",".join(series_names(values(self.slice), category))


def series_of(metric: LocalMetric, definition: AlarmDefinition) -> list[AlarmSeries]:
    """Return the series of an alarm: each of its slices with each of its categories."""
    grouping = Grouping.of(metric, Query(by=definition.by, where=definition.where))
    slices: list[Slice] = [{}]
    if grouping is not None and definition.by:
        slices = [grouping.slice(group) for group in range(grouping.size)]
    return [
        AlarmSeries(group, values, *number)
        for group, values in enumerate(slices)
        for number in _numbers(metric, definition)
    ]


def _numbers(
    metric: LocalMetric, definition: AlarmDefinition
) -> Iterator[tuple[str | None, int | None, tuple[float, ...]]]:
    """Yield the name, the index and the edge of each number that is watched in a slice."""
    if definition.below:
        indices = limit_indices((metric, metric), definition.below, None, ratio=False)
        assert indices is not None  # noqa: S101
        for limit, index in zip(definition.below, indices[0].tolist(), strict=True):
            yield (*share_names([limit]), index, (limit,))
        return
    labels, _ = metric.domain.select(definition.categories)
    for label in labels:
        yield label, metric.domain.labels.index(label), ()
    if not labels:
        yield None, None, ()


def unit_of(metric: LocalMetric, definition: AlarmDefinition) -> str:
    """Return the unit of an alarm's numbers; a share has none."""
    return "" if definition.below else metric.unit


def promise(definition: AlarmDefinition, series: int) -> str:
    """Return the promise about false alarms as text."""
    number, _, stretch = definition.promise.partition("/")
    scope = f", over {series} series together" if series > 1 else ""
    alarms = "false alarm" if float(number) == 1 else "false alarms"
    return (
        f"by chance alone at most {number} {alarms} expected in the first {stretch} from the start"
        f"{scope}; "
        "in longer stretches from the start in proportion"
    )
