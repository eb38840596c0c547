"""A metric over time: a point with an estimate for each step of event time.

Panes of many steps are read together, as coarse panes where possible. A final step is read and
estimated only once; another step is read again after it has grown.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from aggregator.reading.coverage import THIS_WINDOW
from aggregator.reading.frames.columns import ESTIMATE_COLUMNS, NUMBER_COLUMNS
from aggregator.reading.frames.estimates import by_columns, with_conditions
from aggregator.reading.frames.frame import Frame
from aggregator.reading.frames.pictures import (
    History,
    HistoryLine,
    LabelledInterval,
    Picture,
    Pictured,
)
from aggregator.reading.grouping import Grouping
from aggregator.reading.pane_sums import batched
from aggregator.reading.plans.base import SeriesPlan
from aggregator.reading.plans.local import (
    MAX_ESTIMATED_TOGETHER,
    EstimateCache,
    LocalPlan,
    expiry_period,
)
from aggregator.reading.query import Progress, Query
from aggregator.reading.serialization import (
    Moment,
    Numbers,
    Status,
    Undeclared,
    Value,
    named,
    plain,
    plain_numbers,
    values,
)
from aggregator.reading.steps import duration
from aggregator.reading.window import Window
from aggregator.timestamps import from_iso, iso
from estimators import Estimate, Metric
from estimators.distribution import DistributionEstimate
from estimators.metrics.attributes import NO_VALUE, OTHER_VALUE
from estimators.metrics.bins import Bins
from estimators.rounding import certainty

Places = NDArray[np.intp]


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """The estimate over a step of event time, for all reports or for a slice.

    `unbiased` is the estimate before it was clipped to `value`. `bound` is "fixed" if the step is
    final, and "anytime" while it grows. The numbers of a slice with too few reports are null;
    `coverage` is the share of the step's reports that tables of slices have.
    """

    start: Moment = msgspec.field(name="from")
    end: Moment = msgspec.field(name="to")
    status: Status
    value: Numbers
    lower: Numbers
    upper: Numbers
    unbiased: Numbers
    reports: int
    chosen_among: int | UnsetType = UNSET
    shares: list[float | None] | UnsetType = UNSET
    bound: str = ""
    slice: dict[str, Value] | UnsetType = UNSET
    coverage: float | UnsetType | None = UNSET


class Series(Pictured, msgspec.Struct, frozen=True, kw_only=True):
    """A metric over time, the oldest step first.

    `covers` says what the bounds cover together with probability 1 - beta: "this window" is each
    step separately; "31 windows" are all 31 points of the answer: all final points together, and
    all points while they grow. Each of these two statements holds with probability 1 - beta, and
    both with 1 - 2 beta. The bounds of all categories, or coordinates, hold together unless the
    query asks for each separately. `target` is what the bounds cover: the population, or only the
    sample. `edges` are the edges of a histogram's bins; a point has the bins' `shares`, without
    bounds. With attributes in `by`, each step has a point for each slice, slices with most reports
    in the range first (`left_out` slices are hidden); the bounds of a step hold for all slices
    together. `where` has the values of attributes that all reports share.
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
    quantiles: list[str] | UnsetType = UNSET
    left_out: int | UnsetType = UNSET
    edges: list[float] | UnsetType = UNSET
    by: list[str] | UnsetType = UNSET
    where: dict[str, Value] | UnsetType = UNSET
    target: str
    points: list[Point]

    @property
    def labels(self) -> list[str]:
        """The names of the numbers of a point; empty for a single number."""
        named = (self.categories, self.coordinates, self.quantiles)
        return next((names for names in named if names is not UNSET), [])

    def to_frame(self) -> Frame:
        """Return a table with one row for each combination of step, slice and number."""
        names = self.labels if self._has_labels else [None]
        rows = []
        for point in self.points:
            numbers = (point.value, point.lower, point.upper, point.unbiased)
            columns = [x if isinstance(x, list) else [x] * len(names) for x in numbers]
            edges = (_milliseconds(point.start), _milliseconds(point.end))
            attributes = by_columns(self._attributes(point))
            stated = (self.beta, point.bound, self.target, self.covers, self.policy)
            for label, *three, unbiased in zip(names, *columns, strict=True):
                raw = unbiased if self.quantiles is UNSET else None
                counted = (label, *three, raw, point.reports, point.status)
                window = (self.metric, self.kind, self.unit, *edges, *attributes.values())
                rows.append((*window, *counted, *stated))
        names_by = by_columns((name, None) for name in (*(self.by or ()), *(self.where or ())))
        return Frame.of(with_conditions(ESTIMATE_COLUMNS, names_by), rows)

    def _attributes(self, point: Point) -> Iterator[tuple[str, str | None]]:
        """Yield a point's attributes with their values as text; those of all points come last."""
        for name, value in ((point.slice or {}) | (self.where or {})).items():
            yield name, OTHER_VALUE if isinstance(value, Undeclared) else value

    @property
    def _has_labels(self) -> bool:
        return any(x is not UNSET for x in (self.categories, self.coordinates, self.quantiles))

    @property
    def picture(self) -> Picture:
        """The picture of the series' numbers over time."""
        frame, labels = self.to_frame(), self.labels if self._has_labels else [""]
        slices = dict.fromkeys(
            " · ".join(value or NO_VALUE for _, value in self._attributes(point))
            for point in self.points
        )
        names = [" · ".join(filter(None, pair)) for pair in itertools.product(slices, labels)]
        steps = self.points[:: max(1, len(slices))]
        starts = [_milliseconds(point.start) for point in steps]
        ends = [_milliseconds(point.end) for point in steps]
        columns = [
            [math.nan if x is None else x for x in frame[name]] for name in NUMBER_COLUMNS[1:4]
        ]
        intervals = [LabelledInterval("", *row) for row in zip(*columns, strict=True)]
        lines = tuple(
            HistoryLine(name, starts, ends, intervals[index :: len(names)])
            for index, name in enumerate(names)
        )
        step = duration(round(1000 * self.step_seconds))
        span = f" from {steps[0].start} to {steps[-1].end}" if steps else ""
        facts = (
            f"{len(steps)} steps of {step}{span}",
            f"{certainty(self.beta)} bounds; covers {self.covers}",
        )
        of_quantiles = self.quantiles is not UNSET
        return History(f"{self.metric}: {self.kind}", facts, lines, self.unit, of_quantiles)


def read_series(plan: SeriesPlan, cache: EstimateCache, progress: Progress) -> Series:
    """Read and estimate a series.

    `plan`: the plan of the series; `cache`: has the estimates of final steps; `progress`: takes the
    share of finished points; an exception from it ends the work.
    """
    metric, query = plan.window.metric, plan.query
    point_query = query.of_points(len(plan.windows))
    labels, _ = metric.domain.select(query.categories)
    bins = None if query.bins is None else merged_bins(metric, query.bins)
    chosen = None
    if not query.by and query.top is not None and query.top < len(labels) and plan.windows:
        chosen = _over_all_steps(plan, point_query, cache).numbers.largest(query.top)
    shown = labels if chosen is None else tuple(labels[index] for index in chosen.tolist())
    left_out = None if query.top is None else len(labels) - len(shown)
    if (grouping := plan.window.grouping) is None:
        estimates = plan.released
        if estimates is None:
            estimates = _estimates(plan, point_query, cache, progress)
        points = [
            _point(window, estimate, chosen, bins)
            for window, estimate in zip(plan.windows, estimates, strict=True)
        ]
    else:
        points, hidden = _slice_points(plan, grouping, point_query, chosen, bins, progress)
        left_out = hidden if query.by else left_out
    windows = point_query.windows
    covers = THIS_WINDOW if windows == 1 else f"{windows} windows"
    is_together = bool(query.by) and query.simultaneous
    return Series(
        metric=metric.name,
        unit=metric.unit,
        kind=metric.kind,
        step_seconds=plan.step_ms / 1000,
        beta=query.beta,
        covers=f"{covers}, for all slices of a step together" if is_together else covers,
        policy=query.weights or plan.window.policy,
        weights_fixed=True if query.weights_fixed else UNSET,
        **named(metric, shown),
        left_out=UNSET if left_out is None else left_out,
        edges=UNSET if bins is None else bins.limits.tolist(),
        by=list(query.by) or UNSET,
        where=values(dict(query.conditions)) or UNSET,
        target=query.target,
        points=points,
    )


def _slice_points(
    plan: SeriesPlan,
    grouping: Grouping,
    query: Query,
    chosen: Places | None,
    bins: Bins | None,
    progress: Progress,
) -> tuple[list[Point], int]:
    """Return the points of slices, step after step, and the number of hidden slices."""
    reading, groups, hidden = _local(plan), [0], 0
    if query.by:
        ordered = grouping.order(reading.read(plan.window).slice_reports)
        groups = ordered[: plan.query.top]
        hidden = len(ordered) - len(groups)
    points: list[Point] = []
    steps, finished = len(plan.windows), 0
    for windows in reading.read_slices(plan.windows, grouping):

        def note(share: float, finished: int = finished, count: int = len(windows)) -> None:
            progress((finished + share * count) / steps)

        for slices in reading.answer_slices(windows, query, note, groups):
            window = slices.window
            for of_slice in slices.slices:
                if of_slice.estimate is not None:
                    point = _point(window, of_slice.estimate, chosen, bins)
                else:
                    point = Point(
                        **_edges(window),
                        **plain_numbers(None),
                        status="expired" if window.status == "expired" else "too_few_reports",
                        reports=of_slice.reports,
                    )
                where = values(of_slice.slice) or UNSET
                points.append(msgspec.structs.replace(point, slice=where, coverage=window.coverage))
        finished += len(windows)
    return points, hidden


def _over_all_steps(plan: SeriesPlan, query: Query, cache: EstimateCache) -> Estimate:
    """Return the estimate over all steps together, or the last release."""
    if plan.released is not None:
        return plan.released[-1]
    reading = _local(plan)
    first, last = plan.windows[0], plan.windows[-1]
    full_range = reading.read(dataclasses.replace(last, start_ms=first.start_ms))
    statistic = full_range.sums
    if full_range.status == "expired":  # of the steps that have not expired
        groups = reading.sums.read_steps(plan.windows)
        statistic = sum((step.sums for group in groups for step in group), statistic)
    return reading.cached_answers([last.with_sums(statistic)], query, cache)[0]


def _estimates(
    plan: SeriesPlan, query: Query, cache: EstimateCache, progress: Progress
) -> list[Estimate]:
    """Return the estimate of each step; estimates of final steps are cached.

    The cache's key changes whenever sums may: if a partition is recounted, it has another owner,
    and panes may expire.
    """
    reading, windows, full_range = _local(plan), plan.windows, plan.window
    partitions = full_range.overview.partitions
    owners = [partitions[number].owner.get("token") for number in full_range.watermarks]
    policy = query.weights or full_range.policy
    question = query, reading.definition_hash, policy, full_range.changed_ms, plan.step_ms
    history = repr((*question, owners, expiry_period(full_range.metric)))
    keys = {window.start_ms: (history, window.start_ms) for window in windows}
    cached = cache.cached(keys[window.start_ms] for window in windows if window.status == "final")
    estimates = {start: cached[key] for start, key in keys.items() if key in cached}
    missing = [window for window in windows if window.start_ms not in estimates]
    for steps in reading.sums.read_steps(missing):
        steps.sort(key=lambda step: step.used_levels)
        for part in batched(steps, MAX_ESTIMATED_TOGETHER):
            progress(len(estimates) / len(windows))
            for step, estimate in zip(
                part, reading.cached_answers(part, query, cache), strict=True
            ):
                estimates[step.start_ms] = estimate
                if step.status == "final":
                    cache.put(keys[step.start_ms], estimate)
    return [estimates[start] for start in keys]


def _local(plan: SeriesPlan) -> LocalPlan:
    assert isinstance(plan.reading, LocalPlan)  # noqa: S101
    return plan.reading


def merged_bins(metric: Metric, count: int) -> Bins:
    """Return a distribution's domain with its bins merged into at most `count`.

    Raises ValueError if the metric is no distribution.
    """
    if not isinstance(metric.domain, Bins):
        raise ValueError(
            f"bins = {count}: metric {metric.name!r} is of kind {metric.kind!r}: expected them for "
            "a distribution alone"
        )
    return metric.domain.merged(count)


def _point(window: Window, estimate: Estimate, chosen: Places | None, bins: Bins | None) -> Point:
    return Point(
        **_edges(window),
        **plain_numbers(estimate.numbers, chosen),
        status=estimate.status,  # type: ignore[arg-type]
        reports=estimate.reports,
        chosen_among=estimate.chosen_among if estimate.chosen_among > 1 else UNSET,
        shares=UNSET if bins is None else _shares(estimate, bins),
        bound=estimate.bound,
    )


def _edges(window: Window) -> dict[str, Any]:
    """Return the fields of a point that state its time."""
    return {"start": iso(window.start_ms), "end": iso(window.end_ms)}


def _milliseconds(moment: str) -> int:
    return round(1000 * from_iso(moment))


def _shares(estimate: Estimate, bins: Bins) -> list[float | None]:
    assert isinstance(estimate, DistributionEstimate)  # noqa: S101
    return plain(estimate.histogram_in(bins.limits))  # type: ignore[return-value]
