"""Slices in the form that `--json`, HTTP and events have."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from aggregator.reading.discovered_strings import PaneDiscovery
from aggregator.reading.serialization import (
    Answer,
    Moment,
    Numbers,
    Status,
    Value,
    named,
    plain_numbers,
    values,
)
from aggregator.reading.slices.estimates import SliceEstimate, Slices
from aggregator.state.watermark import NO_TIME
from aggregator.timestamps import iso


class SliceAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A slice. Its numbers are null if it has fewer reports than `minimum_reports`."""

    slice: dict[str, Value]
    reports: int
    status: Status
    value: Numbers
    lower: Numbers
    upper: Numbers
    unbiased: Numbers


class SlicesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer about a metric by attributes of devices, for a window of event time.

    There is an entry for each combination of values of `by` that has reports, among the reports
    whose attributes have the values in `where`. Slices with most reports come first; those with a
    value that is not declared, or without a value, come last. `left_out` slices are not shown. A
    value is null if the devices sent none, and `{"other": true}` if it is not declared. The bounds
    of all `simultaneous` slices hold together with probability 1 - beta. `coverage` is the share of
    the window's reports that tables of slices have; null if unknown. The other fields are those of
    an answer.
    """

    metric: str
    unit: str
    kind: str
    by: list[str]
    where: dict[str, Value]
    status: Status
    start: Moment | None = msgspec.field(name="from")
    end: Moment | None = msgspec.field(name="to")
    updated: Moment | None
    coverage: float | None
    beta: float
    bound: str
    covers: str
    target: str
    policy: str
    simultaneous: int
    slices: list[SliceAnswer]
    left_out: int
    categories: list[str] | UnsetType = UNSET
    coordinates: list[str] | UnsetType = UNSET
    quantiles: list[str] | UnsetType = UNSET


class FinalAnswer(Answer, frozen=True, kw_only=True):
    """The answer about a final pane, as its event contains it.

    `slices` is present if a whole stretch of `by_pane` ends with this pane, and `publish.slices`
    names the metric: it has the slices of this stretch for each grouping that the setting names.
    `discovery` is present if the metric discovers strings, unless `publish.unsearched` names it.
    """

    slices: list[SlicesAnswer] | UnsetType = UNSET
    discovery: PaneDiscovery | UnsetType = UNSET


def final_answer(
    pane: Answer, groupings: Sequence[Slices], discovery: PaneDiscovery | None
) -> FinalAnswer:
    """Return the answer about a pane with its slices and its frequent strings.

    `pane`: the answer about the pane; `groupings`: the slices of the slice pane that ends with this
    pane; `discovery`: the frequent strings of the pane; None if it was not searched.
    """
    return FinalAnswer(
        **msgspec.structs.asdict(pane),
        slices=[slices_answer(grouping) for grouping in groupings] or UNSET,
        discovery=discovery or UNSET,
    )


def slices_answer(slices: Slices) -> SlicesAnswer:
    """Return the JSON form of the estimates of slices, as a struct."""
    window, query = slices.window, slices.query
    metric = window.metric
    labels, _ = metric.domain.select(query.categories)
    return SlicesAnswer(
        metric=metric.name,
        unit=metric.unit,
        kind=metric.kind,
        by=list(query.by),
        where=values(dict(query.conditions)),
        status=slices.status,  # type: ignore[arg-type]
        start=iso(window.start_ms),
        end=iso(window.end_ms),
        updated=iso(None if window.arrived_ms == NO_TIME else window.arrived_ms),
        coverage=slices.coverage,
        beta=query.beta,
        bound=slices.bound,
        covers=slices.covers,
        target=query.target,
        policy=slices.policy,
        simultaneous=slices.simultaneous,
        slices=[_slice(slice_estimate) for slice_estimate in slices.slices],
        left_out=slices.left_out,
        **named(metric, labels),
    )


def _slice(slice_estimate: SliceEstimate) -> SliceAnswer:
    estimate = None if slice_estimate.estimate is None else slice_estimate.estimate.numbers
    return SliceAnswer(
        slice=values(slice_estimate.slice),
        reports=slice_estimate.reports,
        status="too_few_reports" if estimate is None else estimate.status,  # type: ignore[arg-type]
        **plain_numbers(estimate),
    )
