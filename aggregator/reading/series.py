"""A metric over time: an estimate for each step of event time.

Panes of all steps are read together, from the coarsest roll-up that fits. A step that is final is
read and estimated once, any other is estimated again when it has grown.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Hashable, Iterator, Mapping, Sequence

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from aggregator.errors import PaneExpired
from aggregator.reading import steps
from aggregator.reading.coverage import THIS_WINDOW, Looks
from aggregator.reading.estimate_cache import EstimateCache
from aggregator.reading.reader import Reader
from aggregator.reading.releases import answered
from aggregator.reading.serialization import Moment, Numbers, Status, plain
from aggregator.reading.windows import Frame, Time, window_status
from aggregator.state.pane_cover import COARSE, spans
from aggregator.state.pane_keys import GRAINS_MS, metric_key
from aggregator.timestamps import iso
from estimators import Estimate, SearchMetric, TrustedMetric
from estimators.estimate import Counts

Places = NDArray[np.intp]
PANES_AT_ONCE = 20_000
BYTES_AT_ONCE = 32_000_000


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """The estimate over one step of event time; `unbiased` is what `value` was clipped from."""

    start: Moment = msgspec.field(name="from")
    end: Moment = msgspec.field(name="to")
    status: Status
    value: Numbers
    lower: Numbers
    upper: Numbers
    unbiased: Numbers
    reports: int
    chosen_among: int | UnsetType = UNSET


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A metric over time, the oldest step first.

    `covers` says what the bounds cover together with probability 1 - beta: "this window", each step
    by itself, or so many "windows", all points that are answered: all final ones together, and all
    while they grow; each of these two statements holds with 1 - beta, both with 1 - 2 beta. Those
    of its categories, or coordinates, hold simultaneously unless they were asked for by themselves.
    """

    metric: str
    unit: str
    kind: str
    step_seconds: float
    beta: float
    covers: str
    policy: str
    weights_fixed: bool | UnsetType = UNSET
    categories: list[str] | UnsetType = UNSET
    coordinates: list[str] | UnsetType = UNSET
    left_out: int | UnsetType = UNSET
    points: list[Point]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeriesQuery:
    """What is asked of a series.

    Parameters
    ----------
    start, end, window
        As of :meth:`Reader.window`; by default everything that was counted.
    step : str, optional
        A duration, widened to whole panes; by default one that makes about 200 points.
    top : int, optional
        Keep so many categories or coordinates: those that are largest over the whole range.
    beta, weights, categories, simultaneous
        As of :meth:`Reader.answer`.
    all_points : bool
        Whether the bounds cover all points of the answer together.
    weights_fixed : bool
        See :class:`aggregator.reading.coverage.Looks`.
    """

    metric: str
    start: Time = None
    end: Time = None
    window: str | None = None
    step: str | None = None
    beta: float = 0.05
    weights: str | None = None
    categories: tuple[str, ...] | None = None
    top: int | None = None
    simultaneous: bool = True
    all_points: bool = False
    weights_fixed: bool = False


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of a series before its panes are read.

    Attributes
    ----------
    start_ms, end_ms : int
    status : str
        See :class:`aggregator.reading.reader.Frame`.
    """

    start_ms: int
    end_ms: int
    status: str


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is to be read for a series."""

    question: SeriesQuery
    frame: Frame
    step_ms: int
    steps: list[Step]
    released: list[Estimate] | None = None
    """Of a metric that is collected in trust: the releases, one for each step."""

    @property
    def version(self) -> str:
        """Another one whenever the answer may be another one."""
        told = [(step.start_ms, step.status) for step in self.steps]
        facts = (self.frame.version, self.step_ms, told)
        return hashlib.blake2b(repr(facts).encode(), digest_size=12).hexdigest()

    @property
    def looks(self) -> Looks:
        """What the bounds of a point cover."""
        question = self.question
        windows = max(1, len(self.steps)) if question.all_points else 1
        return Looks(windows=windows, weights_fixed=question.weights_fixed)

    @property
    def policy(self) -> str:
        """The weights."""
        return self.question.weights or self.frame.policy


class SeriesReader:
    """Answers for series.

    Parameters
    ----------
    reader : Reader
    known : EstimateCache, optional
        What was estimated before.
    """

    def __init__(self, reader: Reader, known: EstimateCache | None = None) -> None:
        self.reader, self.known = reader, known or EstimateCache()

    def series(self, question: SeriesQuery) -> Series:
        """Return a series.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the range is empty, or too long for the step; or if a release was not drawn as it is
            asked for.
        """
        return self.read(self.plan(question))

    def plan(self, question: SeriesQuery) -> Plan:
        """Say what is to be read, without reading a pane."""
        overview = self.reader.store.overview()
        frame = self.reader.frame(
            overview, question.metric, question.start, question.end, question.window
        )
        metric = frame.metric
        if isinstance(metric, SearchMetric):
            raise ValueError(f"{metric.name!r} is asked in rounds: there is no series of it")
        labels, _ = metric.domain.select(question.categories)
        if isinstance(metric, TrustedMetric):
            return self._plan_of_releases(question, frame, len(labels))
        first, last = self._range(frame)
        wished = None if question.step is None else steps.whole_panes(metric, question.step)
        if first is None or last is None or first >= last:
            return Plan(question, frame, wished or metric.pane_ms, [])
        step = wished or steps.usual(metric, first, last)
        shown = len(labels) if question.top is None else min(question.top, len(labels))
        steps.check(metric, first, last, step, max(1, shown))
        closed = overview.closed(metric_key(metric.name, metric.revision))
        found = []
        for start in range(first - first % step, last, step):
            end = start + step
            found.append(Step(start, end, window_status(frame.watermarks, closed, end)))
        return Plan(question, frame, step, found)

    def _plan_of_releases(self, question: SeriesQuery, frame: Frame, labels: int) -> Plan:
        """Return the newest releases of a range: they cannot be added up to longer steps."""
        metric = frame.metric
        if question.all_points:
            raise ValueError(
                f"simultaneous = points: metric {metric.name!r} is collected in trust, and the "
                "bounds of its releases cannot be shared among them"
            )
        step = question.step and steps.whole_panes(metric, question.step)
        if step not in (None, metric.pane_ms):
            raise ValueError(
                f"step = {question.step!r}: metric {metric.name!r} is collected in trust, and "
                f"releases cannot be added: expected its pane, {steps.duration(metric.pane_ms)}"
            )
        most = steps.most_points(labels if question.top is None else min(labels, question.top))
        key = metric_key(metric.name, metric.revision)
        edges = (frame.start_ms, frame.end_ms)
        found = self.reader.releases.newest(metric, key, *edges, most)
        asked = (question.beta, question.weights, "auto", "population", question.categories)
        estimates = [answered(metric, one.estimate, *asked, question.simultaneous) for one in found]
        shown = [
            Step(one.start_ms, one.start_ms + metric.pane_ms, one.estimate.status) for one in found
        ]
        return Plan(question, frame, metric.pane_ms, shown, estimates)

    def read(self, plan: Plan) -> Series:
        """Read and estimate what a plan says."""
        metric, question = plan.frame.metric, plan.question
        labels, _ = metric.domain.select(question.categories)
        chosen = self._largest(plan, labels)
        shown = labels if chosen is None else tuple(labels[index] for index in chosen.tolist())
        return Series(
            metric=metric.name,
            unit=metric.unit,
            kind=metric.kind,
            step_seconds=plan.step_ms / 1000,
            beta=question.beta,
            covers=THIS_WINDOW if plan.looks.windows == 1 else f"{plan.looks.windows} windows",
            policy=plan.policy,
            weights_fixed=True if question.weights_fixed else UNSET,
            categories=list(shown) if metric.kind == "frequency" else UNSET,
            coordinates=list(shown) if metric.kind == "vector_mean" else UNSET,
            left_out=UNSET if question.top is None else len(labels) - len(shown),
            points=[
                _point(step, estimate, chosen)
                for step, estimate in zip(plan.steps, self._estimates(plan), strict=True)
            ],
        )

    def _range(self, frame: Frame) -> tuple[int | None, int | None]:
        """Return where a series begins and ends where its question does not say."""
        metric, first, last = frame.metric, frame.start_ms, frame.end_ms
        if first is not None and last is not None:
            return first, last
        key = metric_key(metric.name, metric.revision)
        known = self.reader.store.panes.extent(key, [*frame.watermarks])
        if known is not None:
            oldest, newest = known
            if metric.retention_ms is not None:
                oldest = max(oldest, metric.pane_start(newest - metric.retention_ms))
            first = oldest if first is None else first
            last = newest + metric.pane_ms if last is None else last
        return first, last

    def _largest(self, plan: Plan, labels: Sequence[str]) -> Places | None:
        """Return the indices of the categories that are shown, the largest first; None: all."""
        top = plan.question.top
        if top is None or top >= len(labels) or not plan.steps:
            return None
        if plan.released is not None:
            return np.argsort(-np.asarray(plan.released[-1].value), kind="stable")[:top]
        edges = {"start_ms": plan.steps[0].start_ms, "end_ms": plan.steps[-1].end_ms}
        whole = dataclasses.replace(plan.frame, **edges)  # type: ignore[arg-type]
        try:
            statistic = self.reader.sum(whole)
        except PaneExpired:  # the largest over the steps that are shown
            every = self._statistics(plan, range(len(plan.steps)))
            statistic = sum((one for _, one in every if one is not None), plan.frame.metric.zero())
        found = self._estimate(plan, statistic, plan.steps[-1])
        value = np.asarray(found.value)
        return np.argsort(-(value if found.radius is None else np.abs(value)), kind="stable")[:top]

    def _estimates(self, plan: Plan) -> list[Estimate]:
        if plan.released is not None:
            return plan.released
        found: dict[int, Estimate] = {}
        missing: list[int] = []
        finals: list[int] = []
        for index, step in enumerate(plan.steps):
            known = self.known.get(_key(plan, step)) if step.status == "final" else None
            if known is None:
                missing.append(index)
            else:
                found[index] = known
        for index, statistic in self._statistics(plan, missing):
            step = plan.steps[index]
            if statistic is None:
                step = dataclasses.replace(step, status="expired")
                statistic = plan.frame.metric.zero()
            found[index] = self._estimate(plan, statistic, step)
            if step.status == "final":
                finals.append(index)
        if finals and not self.reader.holds(plan.frame):
            for index in finals:
                if found[index].status == "final":
                    found[index] = dataclasses.replace(found[index], status="provisional")
            finals = []
        for index in finals:
            self.known.put(_key(plan, plan.steps[index]), found[index])
        return [found[index] for index in range(len(plan.steps))]

    def _estimate(self, plan: Plan, statistic: Counts, step: Step) -> Estimate:
        """Return the estimate of a step, computed unless the same was before."""
        digest = hashlib.blake2b(statistic.tobytes(), digest_size=16).digest()
        changed = plan.frame.changed_ms
        is_older = changed is not None and step.start_ms < changed
        key = (*_asked(plan), step.status, is_older, digest)
        known = self.known.get(key)
        if known is not None:
            return known
        window = dataclasses.replace(
            plan.frame, start_ms=step.start_ms, end_ms=step.end_ms, status=step.status
        ).filled(statistic)
        question = plan.question
        estimate = self.reader.answer(
            window,
            question.beta,
            question.weights,
            categories=question.categories,
            simultaneous=question.simultaneous,
            looks=plan.looks,
        )
        self.known.put(key, estimate)
        return estimate

    def _statistics(
        self, plan: Plan, missing: Sequence[int]
    ) -> Iterator[tuple[int, Counts | None]]:
        """Yield the statistics of steps, a group of them at a time, so that memory is bounded.

        None: some of the step has expired.
        """
        metric, step = plan.frame.metric, plan.step_ms
        grains = tuple(grain for grain in COARSE if step % GRAINS_MS[grain] == 0)
        finest = min((GRAINS_MS[g] for g in grains), default=metric.pane_ms)
        panes = max(1, len(plan.frame.watermarks)) * max(1, step // finest)
        held = max(1, BYTES_AT_ONCE // metric.zero().nbytes)
        size = max(1, min(PANES_AT_ONCE // panes, held))
        for begin in range(0, len(missing), size):
            group = missing[begin : begin + size]
            sums = self._sums(plan, group, grains, held)
            for index in group:
                yield index, sums[index]

    def _sums(
        self, plan: Plan, group: Sequence[int], grains: tuple[str, ...], held: int
    ) -> Mapping[int, Counts | None]:
        metric, frame = plan.frame.metric, plan.frame
        key = metric_key(metric.name, metric.revision)
        first, last = plan.steps[group[0]].start_ms, plan.steps[group[-1]].end_ms
        cut = [
            (number, span)
            for number, mark in frame.watermarks.items()
            for span in spans(metric, mark.closed, first, last, grains)
        ]
        origin, wanted = plan.steps[0].start_ms, set(group)
        found = [
            place
            for place in self.reader.store.panes.find(key, cut)
            if (place[1].start - origin) // plan.step_ms in wanted
        ]
        sums: dict[int, Counts | None] = {index: metric.zero() for index in group}
        for begin in range(0, len(found), held):
            for pane, statistic in self.reader.panes(metric, found[begin : begin + held]):
                index = (pane.start - origin) // plan.step_ms
                known = sums[index]
                sums[index] = None if known is None or statistic is None else known + statistic
        return sums


def _asked(plan: Plan) -> tuple[Hashable, ...]:
    question, metric = plan.question, plan.frame.metric
    asked = (question.beta, plan.policy, question.categories, question.simultaneous)
    chosen = (plan.looks, question.weights, plan.frame.changed_ms)
    return (metric.name, metric.revision, *asked, *chosen)


def _key(plan: Plan, step: Step) -> Hashable:
    return (*_asked(plan), step.start_ms, step.end_ms)


def _point(step: Step, estimate: Estimate, chosen: Places | None) -> Point:
    numbers = (estimate.shown, estimate.lower, estimate.upper, estimate.value)
    value, lower, upper, unbiased = (
        plain(x if chosen is None else np.asarray(x)[chosen]) for x in numbers
    )
    return Point(
        start=iso(step.start_ms),  # type: ignore[arg-type]
        end=iso(step.end_ms),  # type: ignore[arg-type]
        status=estimate.status,  # type: ignore[arg-type]
        value=value,
        lower=lower,
        upper=upper,
        unbiased=unbiased,
        reports=estimate.reports,
        chosen_among=estimate.chosen_among if estimate.chosen_among > 1 else UNSET,
    )
