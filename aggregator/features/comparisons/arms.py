"""Reads and compares two arms: slices, a slice and the rest, windows, or metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from aggregator.features.comparisons.query import ArmAnswer, Compared, CompareQuery
from aggregator.reading.coverage import count_alternatives, count_distinct_policies, coverage_text
from aggregator.reading.grouping import Grouping, Slice
from aggregator.reading.plans import LocalPlan
from aggregator.reading.query import Progress, Query, ignore_progress
from aggregator.reading.reader import MetricReader
from aggregator.reading.window import Window
from estimators import LocalMetric, compare
from estimators.comparison.arms import STANDARD_WEIGHTS
from estimators.comparison.distributions import compared_numbers, limit_indices, snapped_limits
from estimators.comparison.requirements import require_comparable
from estimators.estimate import Counts

Read = Callable[[Sequence[tuple[str, Query]]], list[Window]]
"""Reads windows, given by metric and query."""


@dataclasses.dataclass(frozen=True)
class Arms:
    """The two arms of a comparison: their windows, sums and slices."""

    windows: tuple[Window, Window]
    sums: tuple[Counts, Counts]
    where: tuple[Slice, Slice]


def compare_all(
    reader: MetricReader, name: str, query: CompareQuery, progress: Progress = ignore_progress
) -> list[Compared]:
    """Compare two arms, or each slice of a grouping with the rest.

    `reader`: reads the sums in Redis; `name`: the first arm's metric; `query`: the arms, and what
    is asked about them; `progress`: takes the share of the work that is done; an exception from it
    ends the work.

    Raises
    ------
    UnknownMetric
        If there is no such metric.
    ValueError
        If the arms cannot be compared, with the reason.
    """
    if query.other is not None:
        reader.metric(query.other)
    local, read = LocalMetric.require(reader.metric(name)), reader.windows
    query = dataclasses.replace(query, below=snapped_limits(local, query.below))
    if query.a.by:
        return _compare_slices_with_rest(read, name, query, progress)
    return [compared(read_arms(read, name, query), query)]


def read_arms(read: Read, name: str, query: CompareQuery) -> Arms:
    """Return the two arms of a comparison, read from Redis.

    Parameters
    ----------
    read : callable
        Reads windows, given by metric and query.
    name : str
        The first arm's metric.
    query : CompareQuery
        The query of the comparison, without attributes in `by`.

    Raises
    ------
    ValueError
        If the arms cannot be compared, with the reason.
    """
    if query.rest:
        conditions = dict(query.a.conditions)
        if not conditions:
            raise ValueError("against = 'rest': expected a slice to compare with it: where, or by")
        window, grouping = _read_slices(read, name, query, tuple(conditions))
        return _against_rest(window, grouping, grouping.index(conditions))
    query_b = query.b
    if not query_b.has_window:
        a = query.a
        query_b = dataclasses.replace(query_b, start=a.start, end=a.end, window=a.window)
    window_a, window_b = read([(name, query.a), (query.other or name, query_b)])
    if window_a.metric is window_b.metric:
        _check_disjoint(window_a, window_b)
    windows = window_a, window_b
    return Arms(windows, (window_a.sums, window_b.sums), (_where(window_a), _where(window_b)))


def _compare_slices_with_rest(
    read: Read, name: str, query: CompareQuery, progress: Progress
) -> list[Compared]:
    """Compare each slice with the rest of its window."""
    if not query.rest:
        raise ValueError("by: expected against = 'rest', to compare each slice with the rest")
    if query.a.where:
        raise ValueError("by and where: expected one of the two, to compare with the rest")
    window, grouping = _read_slices(read, name, query, tuple(query.a.by))
    reports = window.slice_reports
    groups = grouping.order(reports)[: query.a.top]
    simultaneous = LocalPlan.count_sharing_slices(window, query.a, reports)
    comparisons: list[Compared] = []
    for group in groups:
        progress(len(comparisons) / len(groups))
        comparisons.append(compared(_against_rest(window, grouping, group), query, simultaneous))
    return comparisons


def _read_slices(
    read: Read, name: str, query: CompareQuery, by: tuple[str, ...]
) -> tuple[Window, Grouping]:
    """Return the first arm's window with the sums of all slices by these attributes."""
    (window,) = read([(name, dataclasses.replace(query.a, by=by, where=()))])
    assert window.grouping is not None  # noqa: S101
    return window, window.grouping


def _against_rest(window: Window, grouping: Grouping, group: int) -> Arms:
    """Return a slice of a window, and the rest of the window."""
    statistic, everywhere = window.of_slice(group).sums, dict[str, str | None]()
    sums = statistic, window.sums - statistic
    return Arms((window, window), sums, (grouping.slice(group), everywhere))


def compared(arms: Arms, query: CompareQuery, simultaneous: int = 1) -> Compared:
    """Compare two arms; raise ValueError if they cannot be compared.

    `arms`: the arms; `query`: what is asked about them; `simultaneous`: the number of comparisons
    that share beta.
    """
    (window_a, window_b), sums, where = arms.windows, arms.sums, arms.where
    query_a = query.a
    other = None if window_a.metric is window_b.metric else window_b.metric
    metrics = require_comparable(
        window_a.metric, other, query.of, "fixed", "uniform", "population", None
    )
    states = {window_a.status, window_b.status}
    status = next((s for s in ("expired", "not_ready", "provisional") if s in states), "final")
    bound = query_a.bound
    if bound == "auto":
        bound = "fixed" if status == "final" else "anytime"
    policy = window_a.policy if query_a.weights is None else query_a.weights
    arm_policy = "uniform" if policy == STANDARD_WEIGHTS else policy
    alternatives = count_alternatives(window_a, query_a)
    if alternatives > 1 and query_a.weights is not None:  # comparisons also have "standard"
        policies = count_distinct_policies(window_a.metric)
        alternatives = alternatives // policies * (policies + 1)
    beta = query_a.beta / (simultaneous * alternatives * query_a.windows * query.intervals)
    limit_indices(metrics, query.below, query_a.categories, ratio=query.of == "ratio")
    estimates = [
        compared_numbers(
            metric.estimate(
                statistic,
                beta,
                arm_policy,
                bound if query.each else "fixed",
                query_a.target if query.each else "population",
                categories=query_a.categories,
                simultaneous=query_a.simultaneous,
                panes=window.panes,
            ),
            query.below,
        )
        for metric, statistic, window in zip(metrics, sums, (window_a, window_b), strict=True)
    ]
    has_too_few = any(
        e.reports < m.minimum_reports for e, m in zip(estimates, metrics, strict=True)
    )
    comparison = None
    if status not in ("expired", "not_ready") and has_too_few:
        status = "too_few_reports"
    elif status not in ("expired", "not_ready"):
        comparison = compare(
            metrics[0],
            *sums,
            of=query.of,
            bound=bound,
            beta=beta,
            target=query_a.target,
            split=query.split if bound == "anytime" else None,
            other=other,
            weights=policy,
            independent=query.independent,
            categories=query_a.categories,
            below=query.below,
            pointwise=not query_a.simultaneous,
            panes=(window_a.panes, window_b.panes),
        )
    coverage = coverage_text(window_a, dataclasses.replace(estimates[0], bound=bound), query_a)
    a, b = (
        ArmAnswer(*facts)
        for facts in zip((m.name for m in metrics), where, arms.windows, estimates, strict=True)
    )
    return Compared(a, b, query, status, bound, comparison, coverage, simultaneous, alternatives)


def _where(window: Window) -> Slice:
    return {} if window.grouping is None else window.grouping.conditions


def _check_disjoint(window_a: Window, window_b: Window) -> None:
    """Refuse arms of one metric that may share reports."""
    slice_a, slice_b = _where(window_a), _where(window_b)
    if any(slice_a[name] != slice_b[name] for name in slice_a.keys() & slice_b.keys()):
        return
    edges = ((window_a.start_ms, window_b.end_ms), (window_b.start_ms, window_a.end_ms))
    if all(begin is None or end is None or begin < end for begin, end in edges):
        raise ValueError(
            "the arms have reports in common: expected two values of one attribute, a slice "
            "against the rest, or two windows that do not overlap"
        )
