"""The series of an alarm, one for each slice and category, and their state in Redis.

The log and the definitions determine the state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec

from aggregator.features.alarms.answers import AlarmRaised, Baseline, series_names
from aggregator.features.alarms.definitions import AlarmDefinition
from aggregator.lazy_log import LazyLog
from aggregator.reading.grouping import Grouping, Slice
from aggregator.reading.query import Query
from aggregator.reading.serialization import values
from aggregator.state.pane_keys import metric_key
from aggregator.storage.redis_keys import publisher_key
from aggregator.storage.store import Store
from estimators import LocalMetric, Metric
from estimators.alarms import Detector
from estimators.comparison.distributions import limit_indices
from estimators.distribution import share_names
from producers.wire.decoding import decode_msgpack

MAX_STORED_RAISED = 100
"""The most events that an alarm's state has."""

log = LazyLog("dither.alarms")


class SeriesState(msgspec.Struct, kw_only=True):
    """A series: the sums of its baseline, the detector's state, and the results of its last step.

    Attributes
    ----------
    baseline : bytes or None
        The sums, int64, little-endian; None if the definition states the baseline, or until it is
        final.
    detector : bytes or None
        The state of the detector; None if the series is not watched, or not yet.
    compared_with : Baseline or None
        The value of the baseline, for readers; None if the series is not watched.
    reason : str
        Why the series cannot be watched; empty if it can.
    """

    baseline: bytes | None = None
    detector: bytes | None = None
    compared_with: Baseline | None = msgspec.field(name="known", default=None)
    evidence: float | None = None
    smallest_shift: float | None = None
    panes: int = 0
    alarms: int = 0
    reason: str = ""


class StoredAlarm(msgspec.Struct, frozen=True, kw_only=True):
    """An alarm's state: its next pane, and its series in the order of slices and categories."""

    next_ms: int
    skipped: int = 0
    is_learning: bool
    series: list[SeriesState]
    raised: list[AlarmRaised] = []
    reason: str = ""


@dataclasses.dataclass
class AlarmSeries:
    """A series of an alarm: a slice, and one of its numbers.

    Attributes
    ----------
    group : int
        The index of the slice.
    category, index : str and int, or None
        The name and the index of the number; None if there is a single number.
    below : tuple of float
        For a distribution: the edge; the watched number is the share of users below it.
    state : SeriesState
        The series' state as it is stored, but without the detector's state.
    detector : Detector or None
        Adds up the evidence; None if the series is not watched, or not yet.
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
    indices = limit_indices((metric, metric), definition.below, None, ratio=False)
    if indices is not None:
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
    """Return the promise about false alarms as text; `series`: the alarm's number of series."""
    number, _, stretch = definition.promise.partition("/")
    scope = f", over {series} series together" if series > 1 else ""
    alarms = "false alarm" if float(number) == 1 else "false alarms"
    return (
        f"by chance alone at most {number} {alarms} expected in the first {stretch} from the start"
        f"{scope}; "
        "in longer stretches from the start in proportion"
    )


def identity(definition: AlarmDefinition, metric: Metric) -> str:
    """Return an alarm's name with a 32-bit hash of the definitions that its state depends on."""
    slicing = "" if metric.slicing is None or not definition.sliced else metric.slicing.key
    return definition.hashed(
        f"{definition.key} {metric_key(metric.name, metric.revision)} {slicing}"
    )


def state_key(topic: str, alarm: str) -> str:
    """Return the key of an alarm's state; `alarm` is its :func:`identity`."""
    return f"{publisher_key(topic)}:alarm:{alarm}"


def read_state(store: Store, alarm: str) -> StoredAlarm | None:
    """Return the stored state of an alarm, by its :func:`identity`; None if it is unusable."""
    state: Any = store.client.get(state_key(store.topic, alarm))
    if state is None:
        return None
    try:
        return decode_msgpack(state, StoredAlarm)
    except ValueError as error:
        log.warning("state of an alarm is unreadable", alarm=alarm, error=str(error))
        return None
