"""Runs an alarm over final panes: learns the baselines of its series, and watches them.

The log and the definitions determine the state of a run, which is in Redis.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType

from aggregator.features.alarms.definitions import AlarmDefinition
from aggregator.lazy_log import LazyLog
from aggregator.publishing.runs import Run
from aggregator.reading.grouping import Grouping, Slice
from aggregator.reading.query import Query
from aggregator.reading.reader import MetricReader
from aggregator.reading.serialization import Moment, Numbers, Value, plain, values
from aggregator.reading.window import SliceSums, Window
from aggregator.storage.progress import TopicProgress
from aggregator.timestamps import iso
from estimators import LocalMetric
from estimators.alarms import Detector, Step, smallest_shift
from estimators.comparison.distributions import compared_numbers, limit_indices
from estimators.distribution import share_names
from estimators.estimate import Counts
from estimators.metrics.attributes import NO_VALUE, OTHER_VALUE
from estimators.weights import DEFAULT_POLICY

SINCE_BETA = 0.05
"""The failure probability of the bounds in `now`, which guarantee nothing."""
MAX_STORED_RAISED = 100
"""The most events that an alarm's state has."""

log = LazyLog("dither.alarms")


def series_names(slice: dict[str, Value], category: str | UnsetType) -> list[str]:  # noqa: A002
    """Return the ``attribute=value`` pairs of a series, and its category.

    Examples
    --------
    >>> series_names({"country": "DE", "version": None}, "red")
    ['country=DE', 'version=none', 'category=red']
    """
    names = [
        f"{name}={NO_VALUE if value is None else value if isinstance(value, str) else OTHER_VALUE}"
        for name, value in slice.items()
    ]
    return names if category is UNSET else [*names, f"category={category}"]


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """The baseline of a series: estimated from panes before the start, or stated by the definition.

    `from`, `to` and `reports` are null if the definition states the value.
    """

    start: Moment | None = msgspec.field(name="from")
    end: Moment | None = msgspec.field(name="to")
    value: Numbers
    reports: int | None


class Since(msgspec.Struct, frozen=True, kw_only=True):
    """The estimate from `since` on, or of the last pane if earlier panes have expired.

    Its bounds are not guaranteed, because the window was chosen from the data.
    """

    value: Numbers
    lower: Numbers
    upper: Numbers
    reports: int


class AlarmRaised(msgspec.Struct, frozen=True, kw_only=True):
    """The data of an alarm's event: a series has moved from its baseline.

    `at` is the end of the pane that raised the alarm. `since` is where the change most probably
    began, without a guarantee. `evidence` is the logarithm of how much more probable the panes are
    if the series has moved than if it has not; an alarm is raised when it reaches `needed`. `panes`
    is the number of panes since the start, or since the last alarm of the series. `promise` says
    how many false alarms are expected at most.
    """

    alarm: str
    metric: str
    unit: str
    slice: dict[str, Value]
    category: str | UnsetType = UNSET
    direction: Literal["up", "down"]
    at: Moment
    since: Moment
    baseline: Baseline
    now: Since
    evidence: float
    needed: float
    promise: str
    panes: int

    @property
    def names(self) -> list[str]:
        """The series' ``attribute=value`` pairs and category."""
        return series_names(self.slice, self.category)


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


@dataclasses.dataclass(frozen=True)
class WatchedPane:
    """A pane, the step of each series (none if the pane had expired), and the raised events."""

    start_ms: int
    end_ms: int
    steps: tuple[tuple[AlarmSeries, Step], ...]
    raised: tuple[AlarmRaised, ...]


class AlarmRun(Run[AlarmDefinition, StoredAlarm]):
    """A run of an alarm over the final panes of its metric.

    Attributes
    ----------
    next_ms : int
        The start of the next pane, in ms since the epoch.
    skipped : int
        The number of panes that had expired before they were read.
    raised : list of AlarmRaised
        The last events, the newest first.
    reason : str
        Why the run processes no panes; empty if it does.
    """

    kind, noun, state_class = "alarm", "an alarm", StoredAlarm
    published = "warning", "alarm raised"

    def __init__(
        self, reader: MetricReader, definition: AlarmDefinition, stored: StoredAlarm | None = None
    ) -> None:
        super().__init__(reader, definition)
        self.metric = LocalMetric.require(reader.metric(definition.metric))
        self._begin()
        if stored is not None:
            try:
                self._restore(stored)
            except ValueError as error:
                log.warning("an alarm starts again", alarm=definition.name, reason=str(error))
                self._begin()

    @property
    def position(self) -> object:
        """A value that changes whenever the run's state does."""
        return self.next_ms, self.is_learning, self.reason

    def _begin(self) -> None:
        definition, metric = self.definition, self.metric
        self.next_ms, self.skipped, self.reason = definition.start_ms, 0, ""
        self.raised: list[AlarmRaised] = []
        self.series = series_of(metric, definition)
        self.is_learning = definition.baseline_ms is not None
        if not self.is_learning:
            for series in self.series:
                self._watch(series)

    def due(
        self, overview: TopicProgress, closed: Mapping[str, int]
    ) -> Iterator[Sequence[AlarmRaised]]:
        """Yield the alarms that each of the next final panes raises."""
        for pane in self.advance(overview, closed.get(self.metric.name, 0)):
            yield pane.raised

    def event_key(self, data: AlarmRaised) -> str:
        """Return the key of an alarm's event."""
        return f"{self.name}/{','.join(data.names)}/{data.at}"

    def advance(self, overview: TopicProgress, closed_ms: int) -> Iterator[WatchedPane]:
        """Process the next panes that end by `closed_ms`, and yield each.

        The iteration stops at a pane that changed while it was read; the next call continues there.
        """
        if self.reason:
            return
        if self.is_learning:
            if self.definition.start_ms > closed_ms or not self._learn(overview):
                return
            self.is_learning = False
        while (end_ms := self.next_ms + self.definition.every_ms) <= closed_ms:
            window = self._read(overview, self.next_ms, end_ms)
            if window.status == "provisional":
                return
            watched_pane = self._process(overview, window, self.next_ms, end_ms)
            if watched_pane is None:
                return
            self.next_ms = end_ms
            yield watched_pane

    def stored(self) -> StoredAlarm:
        """Return the state of the run in its stored form."""
        detectors = [series.detector and series.detector.state() for series in self.series]
        return StoredAlarm(
            next_ms=self.next_ms,
            skipped=self.skipped,
            is_learning=self.is_learning,
            series=[
                msgspec.structs.replace(series.state, detector=detector)
                for series, detector in zip(self.series, detectors, strict=True)
            ],
            raised=self.raised,
            reason=self.reason,
        )

    def _restore(self, stored_alarm: StoredAlarm) -> None:
        every_ms = self.definition.every_ms
        if len(stored_alarm.series) != len(self.series) or stored_alarm.next_ms % 1:
            raise ValueError("its state has another number of series")
        if (stored_alarm.next_ms - self.next_ms) % every_ms or stored_alarm.next_ms < self.next_ms:
            raise ValueError("its state is not at the beginning of a pane")
        for series, state in zip(self.series, stored_alarm.series, strict=True):
            if state.baseline is not None and len(state.baseline) != self.metric.zero().nbytes:
                raise ValueError("its state has a baseline of another size")
            series.state = msgspec.structs.replace(state, detector=None)
            series.detector = None
            if state.detector is not None:
                self._watch(series).restore(state.detector)
        self.next_ms, self.skipped = stored_alarm.next_ms, stored_alarm.skipped
        self.raised, self.reason = [*stored_alarm.raised], stored_alarm.reason
        self.is_learning = stored_alarm.is_learning

    def _watch(self, series: AlarmSeries) -> Detector:
        """Set and return a series' detector; raise ValueError if the series cannot be watched."""
        definition, sums = self.definition, series.state.baseline
        series.detector = Detector(
            self.metric,
            definition.false_alarms / len(self.series),
            baseline=None if sums is None else np.frombuffer(sums, np.int64),
            baseline_value=definition.baseline_value,
            direction=definition.direction,  # type: ignore[arg-type]
            least=definition.least,
            category=series.index,
        )
        value, reports = series.detector.baseline_estimate
        baseline = Baseline(start=None, end=None, value=value, reports=None)
        if definition.baseline_ms is not None:
            start, end = iso(definition.start_ms - definition.baseline_ms), definition.start_ms
            baseline = Baseline(start=start, end=iso(end), value=value, reports=reports)
        series.state.compared_with = baseline
        return series.detector

    def _learn(self, overview: TopicProgress) -> bool:
        """Read the baseline of each series; return whether it succeeded."""
        start_ms = self.definition.start_ms
        begin_ms = start_ms - (self.definition.baseline_ms or 0)
        window = self._read(overview, begin_ms, start_ms)
        if window.status == "provisional":
            return False
        if window.status == "expired":
            self.reason = (
                f"the baseline from {iso(begin_ms)} to {iso(start_ms)} has expired, or "
                "some of it is in no slice: expected a later start, or a longer retention"
            )
            return False
        rows, min_reports = _rows(window), max(1, self.metric.minimum_reports)
        for series in self.series:
            sums, state = rows[series.group], series.state
            state.baseline, reports = sums.tobytes(), int(self.metric.counts(sums).sum())
            if reports < min_reports:
                state.reason = f"its baseline has {reports} reports: expected {min_reports}"
                continue
            try:
                self._watch(series)
            except ValueError as error:
                state.reason = str(error)
        return True

    def _read(self, overview: TopicProgress, start_ms: int, end_ms: int) -> Window:
        """Read a final window; its status is "provisional" if Redis lost data during the read.

        It is "expired" even if only the tables of slices lack some reports of the window.
        """
        definition, query = self.definition, Query(start_ms / 1000, end_ms / 1000)
        if not definition.sliced:
            return self.reader.read_final(overview, definition.metric, query)
        sliced = dataclasses.replace(query, by=definition.by, where=dict(definition.where))
        window = self.reader.read_final(overview, definition.metric, sliced)
        if window.status == "provisional":
            return window
        if window.coverage is None:  # it has no reports, or an unknown number
            whole = self.reader.read_final(overview, definition.metric, query)
            return window if whole.status == "final" else whole
        return window.expired() if window.coverage < 1 else window

    def _process(
        self, overview: TopicProgress, window: Window, start_ms: int, end_ms: int
    ) -> WatchedPane | None:
        """Update all series with a pane, and return it; None if the pane must be read again."""
        if window.status == "expired":
            self.skipped += 1
            log.warning("a pane of an alarm has expired", alarm=self.name, pane=iso(start_ms))
            return WatchedPane(start_ms, end_ms, (), ())
        rows = _rows(window)
        watched = [(series, series.detector) for series in self.series if series.detector]
        detector_states = [detector.state() for _, detector in watched]
        steps, raised = [], []
        for series, detector in watched:
            step = detector.update(rows[series.group])
            steps.append((series, step))
            if step.raised:
                event_data = self._event_data(overview, window, series, step, end_ms)
                if event_data is None:
                    for (_, updated), detector_state in zip(watched, detector_states, strict=True):
                        updated.restore(detector_state)
                    return None
                raised.append(event_data)
        for (series, step), (_, detector) in zip(steps, watched, strict=True):
            state = series.state
            state.panes = 0 if step.raised else state.panes + 1
            state.alarms += step.raised
            state.evidence = step.evidence / step.needed if math.isfinite(step.evidence) else None
            state.smallest_shift = smallest_shift(detector)
        self.raised = [*reversed(raised), *self.raised][:MAX_STORED_RAISED]
        return WatchedPane(start_ms, end_ms, tuple(steps), tuple(raised))

    def _event_data(
        self, overview: TopicProgress, pane: Window, series: AlarmSeries, step: Step, end_ms: int
    ) -> AlarmRaised | None:
        """Return the data of a series' event; None if its window must be read again.

        If earlier panes of the window have expired, the estimate is that of the last pane, `pane`.
        """
        definition, metric, baseline = self.definition, self.metric, series.state.compared_with
        since_ms = end_ms - (step.since or 1) * definition.every_ms
        window = self._read(overview, since_ms, end_ms)
        if window.status == "provisional":
            return None
        if window.status == "expired":
            window = pane
        estimate = metric.estimate(
            _rows(window)[series.group],
            SINCE_BETA,
            DEFAULT_POLICY,
            "fixed",
            categories=None if series.category is None or series.below else [series.category],
            simultaneous=not series.below,
        )
        numbers = compared_numbers(estimate, series.below)
        bounds = (numbers.value, numbers.lower, numbers.upper)
        value, lower, upper = (plain(np.ravel(x)[0]) for x in bounds)
        assert step.direction is not None and baseline is not None  # noqa: S101, PT018
        return AlarmRaised(
            alarm=definition.name,
            metric=metric.name,
            unit=unit_of(metric, definition),
            slice=values(series.slice),
            category=msgspec.UNSET if series.category is None else series.category,
            direction=step.direction,
            at=iso(end_ms),
            since=iso(since_ms),
            baseline=baseline,
            now=Since(value=value, lower=lower, upper=upper, reports=numbers.reports),
            evidence=step.evidence,
            needed=step.needed,
            promise=promise(definition, len(self.series)),
            panes=series.state.panes + 1,
        )


def _rows(window: Window) -> Counts:
    """Return the statistics of a window's slices, shape (slices, cells); one row without slices."""
    content = window.content
    return content.statistics if isinstance(content, SliceSums) else window.sums[None]
