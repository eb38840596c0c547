"""Takes the final panes of an alarm in order, and says what each of them raises."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import msgspec
import numpy as np
import structlog

from aggregator.features.alarms.answers import AlarmRaised, Baseline, Since
from aggregator.features.alarms.definitions import AlarmDefinition
from aggregator.features.alarms.series import Series, promise, series_of, unit_of
from aggregator.features.alarms.stored import (
    MOST_RAISED,
    StoredAlarm,
    StoredSeries,
    identity,
    read_state,
)
from aggregator.reading.query import Query
from aggregator.reading.reader import MetricReader
from aggregator.reading.serialization import plain
from aggregator.reading.slices.answers import values
from aggregator.reading.windows import SliceSums, Window
from aggregator.state.watermark import NO_TIME
from aggregator.storage.progress import TopicProgress
from aggregator.timestamps import iso
from estimators import LocalMetric
from estimators.alarms import Detector, Step, smallest_shift
from estimators.comparison.distributions import compared_numbers
from estimators.estimate import Counts
from estimators.weights import DEFAULT_POLICY

BETA = 0.05
"""Of the bounds of "now", which promise nothing."""

log = structlog.get_logger("dither.alarms")


@dataclasses.dataclass(frozen=True)
class Taken:
    """A pane of an alarm that was looked at: what each series said, and what was raised.

    `steps` is empty if the pane had expired.
    """

    start_ms: int
    end_ms: int
    steps: tuple[tuple[Series, Step], ...]
    raised: tuple[AlarmRaised, ...]


class AlarmRun:
    """An alarm on its way through the final panes of its metric.

    Parameters
    ----------
    reader : MetricReader
    definition : AlarmDefinition
    stored : StoredAlarm, optional
        Where it goes on; by default at the start.

    Attributes
    ----------
    name : str
        Its :func:`aggregator.features.alarms.stored.identity`.
    series : list of Series
    next_ms : int
        Where the next pane begins.
    skipped : int
        How many panes had expired.
    raised : list of AlarmRaised
        The last ones, the newest first.
    reason : str
        Why no pane is looked at; empty if they are.
    """

    def __init__(
        self, reader: MetricReader, definition: AlarmDefinition, stored: StoredAlarm | None = None
    ) -> None:
        self.reader, self.definition = reader, definition
        self.metric = LocalMetric.require(reader.metric(definition.metric))
        self.name = identity(definition, self.metric)
        self._begin()
        if stored is not None:
            try:
                self._restore(stored)
            except ValueError as error:
                log.warning("an alarm begins anew", alarm=definition.name, reason=str(error))
                self._begin()

    @classmethod
    def resumed(cls, reader: MetricReader, definition: AlarmDefinition) -> AlarmRun:
        """Return a run that goes on from the state in Redis, if there is one."""
        metric = reader.metric(definition.metric)
        return cls(reader, definition, read_state(reader.store, identity(definition, metric)))

    @property
    def position(self) -> object:
        """Changes whenever its state does."""
        return self.next_ms, self.is_learning, self.reason

    def _begin(self) -> None:
        definition, metric = self.definition, self.metric
        self.next_ms, self.skipped, self.reason = definition.start_ms, 0, ""
        self.raised: list[AlarmRaised] = []
        self.series = series_of(metric, definition)
        self.is_learning = definition.baseline_ms is not None
        if not self.is_learning:
            for one in self.series:
                self._watch(one)

    def advance(self, overview: TopicProgress, closed_ms: int) -> Iterator[Taken]:
        """Look at the panes that are final and were not looked at, and yield what they say.

        Stops where the state changed while it was read; the next call goes on from there.

        Parameters
        ----------
        overview : TopicProgress
            As of now.
        closed_ms : int
            Panes of the metric that end by then are final.
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
            taken = self._take(overview, window, self.next_ms, end_ms)
            if taken is None:
                return
            self.next_ms = end_ms
            yield taken

    def stored(self) -> StoredAlarm:
        """Return where the run stands."""
        return StoredAlarm(
            next_ms=self.next_ms,
            skipped=self.skipped,
            is_learning=self.is_learning,
            series=[
                StoredSeries(
                    baseline=None if one.baseline is None else one.baseline.tobytes(),
                    detector=None if one.detector is None else one.detector.state(),
                    known=one.known,
                    evidence=one.evidence,
                    smallest_shift=one.smallest_shift,
                    panes=one.panes,
                    alarms=one.alarms,
                    reason=one.reason,
                )
                for one in self.series
            ],
            raised=self.raised,
            reason=self.reason,
        )

    def _restore(self, stored: StoredAlarm) -> None:
        every_ms = self.definition.every_ms
        if len(stored.series) != len(self.series) or stored.next_ms % 1:
            raise ValueError("its state has another number of series")
        if (stored.next_ms - self.next_ms) % every_ms or stored.next_ms < self.next_ms:
            raise ValueError("its state is not at the beginning of a pane")
        zero = self.metric.zero()
        for one, known in zip(self.series, stored.series, strict=True):
            if known.baseline is not None:
                if len(known.baseline) != zero.nbytes:
                    raise ValueError("its state has a baseline of another size")
                one.baseline = np.frombuffer(known.baseline, np.int64).reshape(zero.shape).copy()
            one.evidence, one.reason = known.evidence, known.reason
            one.panes, one.alarms = known.panes, known.alarms
            one.smallest_shift = known.smallest_shift
            one.detector = None
            if known.detector is not None:
                self._watch(one).restore(known.detector)
        self.next_ms, self.skipped = stored.next_ms, stored.skipped
        self.raised, self.reason = [*stored.raised], stored.reason
        self.is_learning = stored.is_learning

    def _watch(self, one: Series) -> Detector:
        """Give a series its detector; raise ValueError if it cannot be watched."""
        definition = self.definition
        one.detector = Detector(
            self.metric,
            definition.false_alarms / len(self.series),
            baseline=one.baseline,
            baseline_value=definition.baseline_value,
            direction=definition.direction,  # type: ignore[arg-type]
            least=definition.least,
            category=one.index,
        )
        value, reports = one.detector.baseline_estimate
        if definition.baseline_ms is None:
            one.known = Baseline(start=None, end=None, value=value, reports=None)
        else:
            start, end = iso(definition.start_ms - definition.baseline_ms), definition.start_ms
            one.known = Baseline(start=start, end=iso(end), value=value, reports=reports)
        return one.detector

    def _learn(self, overview: TopicProgress) -> bool:
        """Read the baseline of each series; return whether that was possible."""
        start_ms, length_ms = self.definition.start_ms, self.definition.baseline_ms
        assert length_ms is not None  # noqa: S101
        window = self._read(overview, start_ms - length_ms, start_ms)
        if window.status == "provisional":
            return False
        if window.status == "expired":
            self.reason = (
                f"the baseline from {iso(start_ms - length_ms)} to {iso(start_ms)} has expired, or "
                "some of it is in no slice: expected a later start, or a longer retention"
            )
            return False
        rows, least = _rows(window), self.metric.minimum_reports
        for one in self.series:
            one.baseline = rows[one.group].copy()
            reports = int(self.metric.counts(one.baseline).sum())
            if reports < max(1, least):
                one.reason = f"its baseline has {reports} reports: expected {max(1, least)}"
                continue
            try:
                self._watch(one)
            except ValueError as error:
                one.reason = str(error)
        return True

    def _read(self, overview: TopicProgress, start_ms: int, end_ms: int) -> Window:
        """Read a window that is final; its status is "provisional" if Redis changed meanwhile.

        It is "expired" also if some of its reports are in no table of slices, or no more.
        """
        definition = self.definition

        def read(query: Query) -> Window:
            described = self.reader.describe(overview, definition.metric, query)
            final = dataclasses.replace(described, status="final", arrived_ms=NO_TIME)
            return self.reader.read(final)

        whole = Query(start_ms / 1000, end_ms / 1000)
        if not definition.sliced:
            return read(whole)
        found = read(dataclasses.replace(whole, by=definition.by, where=dict(definition.where)))
        if found.coverage is None:  # it has no reports, or nobody knows how many
            return found.expired() if read(whole).status == "expired" else found
        return found.expired() if found.coverage < 1 else found

    def _take(
        self, overview: TopicProgress, window: Window, start_ms: int, end_ms: int
    ) -> Taken | None:
        """Return what a pane says; None if what it raises cannot be read now."""
        if window.status == "expired":
            self.skipped += 1
            log.warning("a pane of an alarm has expired", alarm=self.name, pane=iso(start_ms))
            return Taken(start_ms, end_ms, (), ())
        rows = _rows(window)
        before = [one.detector.state() if one.detector else b"" for one in self.series]
        steps, raised = [], []
        for one in self.series:
            if one.detector is None:
                continue
            step = one.detector.update(rows[one.group])
            steps.append((one, step))
            if step.raised:
                told = self._told(overview, one, step, end_ms)
                if told is None:  # as if it had not been looked at
                    self._undo(before)
                    return None
                raised.append(told)
        for one, step in steps:
            one.panes = 0 if step.raised else one.panes + 1
            one.alarms += step.raised
            one.evidence = step.evidence / step.needed if math.isfinite(step.evidence) else None
            if one.detector is not None:
                one.smallest_shift = smallest_shift(one.detector)
        self.raised = [*reversed(raised), *self.raised][:MOST_RAISED]
        return Taken(start_ms, end_ms, tuple(steps), tuple(raised))

    def _undo(self, before: list[bytes]) -> None:
        for one, state in zip(self.series, before, strict=True):
            if one.detector is not None:
                one.detector.restore(state)

    def _told(
        self, overview: TopicProgress, one: Series, step: Step, end_ms: int
    ) -> AlarmRaised | None:
        """Return the event of a series that has moved; None if its window cannot be read now."""
        definition, metric = self.definition, self.metric
        since_ms = end_ms - (step.since or 1) * definition.every_ms
        window = self._read(overview, since_ms, end_ms)
        if window.status == "provisional":
            return None
        chosen = None if one.category is None or one.below else [one.category]
        whole = metric.estimate(
            _rows(window)[one.group],
            BETA,
            DEFAULT_POLICY,
            "fixed",
            categories=chosen,
            simultaneous=not one.below,
        )
        found = compared_numbers(whole, one.below)
        value, lower, upper = (
            plain(np.ravel(x)[0]) for x in (found.value, found.lower, found.upper)
        )
        assert step.direction is not None and one.known is not None  # noqa: S101, PT018
        return AlarmRaised(
            alarm=definition.name,
            metric=metric.name,
            unit=unit_of(metric, definition),
            slice=values(one.slice),
            category=msgspec.UNSET if one.category is None else one.category,
            direction=step.direction,
            at=_moment(end_ms),
            since=_moment(since_ms),
            baseline=one.known,
            now=Since(value=value, lower=lower, upper=upper, reports=found.reports),
            evidence=step.evidence,
            needed=step.needed,
            promise=promise(definition, len(self.series)),
            panes=one.panes + 1,
        )


def _rows(window: Window) -> Counts:
    """Return the statistics of a window's slices, shape (slices, cells); one row without slices."""
    if isinstance(window.content, SliceSums):
        return window.content.statistics
    return window.sums[None]


def _moment(ms: int) -> str:
    found = iso(ms)
    assert found is not None  # noqa: S101
    return found
