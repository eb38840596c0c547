"""Comparisons: a slice against another or the rest, a window against another, two metrics."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from aggregator.features.comparisons.compared import ArmAnswer, Compared, CompareQuery
from aggregator.reading.coverage import chosen_among, covers, distinct_policies
from aggregator.reading.grouping import Slice
from aggregator.reading.plans import LocalPlan
from aggregator.reading.query import Progress, Query, unwatched
from aggregator.reading.reader import MetricReader
from aggregator.reading.windows import SliceSums, Window
from estimators import LocalMetric, Metric, compare
from estimators.comparison.arms import STANDARD_WEIGHTS
from estimators.comparison.distributions import compared_numbers, limit_indices
from estimators.estimate import Counts

Read = Callable[[str, Query], Window]
"""Reads a window of a metric."""


@dataclasses.dataclass(frozen=True)
class Arms:
    """Two arms as they were read, first arm first: windows, sums of reports, and slices."""

    windows: tuple[Window, Window]
    sums: tuple[Counts, Counts]
    where: tuple[Slice, Slice]


def compare_all(
    reader: MetricReader, name: str, query: CompareQuery, progress: Progress = unwatched
) -> list[Compared]:
    """Compare two arms, or each slice of a grouping with the rest.

    Parameters
    ----------
    reader : MetricReader
    name : str
        Of the first arm's metric.
    query : CompareQuery
    progress : callable
        Is told the share of the work that is done; what it raises ends the work.

    Raises
    ------
    UnknownMetric
        If there is no such metric.
    ValueError
        If the arms cannot be compared, with the reason.
    """
    if query.other is not None:
        reader.metric(query.other)
    return compare_arms(reader.window, reader.metric(name), query, progress)


def compare_arms(
    read: Read, metric: Metric, query: CompareQuery, progress: Progress = unwatched
) -> list[Compared]:
    """Compare two arms, or each slice with the rest.

    Parameters
    ----------
    read : callable
        Reads a window of a metric by its name.
    metric : Metric
        Of the first arm.
    query : CompareQuery
    progress : callable
        Is told the share of the work that is done; what it raises ends the work.

    Raises
    ------
    ValueError
        If the arms cannot be compared, with the reason.
    """
    name = LocalMetric.require(metric).name
    if query.a.by:
        return _each_with_the_rest(read, name, query, progress)
    return [compared(read_arms(read, name, query), query)]


def read_arms(read: Read, name: str, query: CompareQuery) -> Arms:
    """Read two arms.

    Parameters
    ----------
    read : callable
        Reads a window of a metric by its name.
    name : str
        Of the first arm's metric.
    query : CompareQuery
        Without attributes in `by`.

    Raises
    ------
    ValueError
        If the arms cannot be compared, with the reason.
    """
    if query.rest:
        wanted = dict(query.a.conditions)
        if not wanted:
            raise ValueError("against = 'rest': expected a slice to compare with it: where, or by")
        window, statistics = _read_slices(read, name, query, tuple(wanted))
        assert window.grouping is not None  # noqa: S101
        return _and_the_rest(window, statistics, window.grouping.index(wanted))
    second = query.b
    if not second.has_window:
        a = query.a
        second = dataclasses.replace(second, start=a.start, end=a.end, window=a.window)
    one, two = read(name, query.a), read(query.other or name, second)
    if one.metric is two.metric:
        _check_apart(one, two)
    return Arms((one, two), (one.sums, two.sums), (_where(one), _where(two)))


def _each_with_the_rest(
    read: Read, name: str, query: CompareQuery, progress: Progress
) -> list[Compared]:
    """Compare each slice with the rest of its window."""
    if not query.rest:
        raise ValueError("by: expected against = 'rest', to compare each slice with the rest")
    if query.a.where:
        raise ValueError("by and where: expected one of the two, to compare with the rest")
    window, statistics = _read_slices(read, name, query, tuple(query.a.by))
    assert window.grouping is not None  # noqa: S101
    reports = [int(window.metric.counts(row).sum()) for row in statistics]
    groups = window.grouping.order(reports)[: query.a.top]
    together = LocalPlan.sharing(window, query.a, reports)
    found: list[Compared] = []
    for one in groups:
        progress(len(found) / len(groups))
        found.append(compared(_and_the_rest(window, statistics, one), query, together))
    return found


def _read_slices(
    read: Read, name: str, query: CompareQuery, by: tuple[str, ...]
) -> tuple[Window, Counts]:
    """Return a window and the sums of its slices, shape (slices, cells)."""
    window = read(name, dataclasses.replace(query.a, by=by, where=()))
    if isinstance(window.content, SliceSums):
        return window, window.content.statistics
    assert window.grouping is not None  # noqa: S101
    return window, window.metric.zero()[None].repeat(window.grouping.size, axis=0)  # expired


def _and_the_rest(window: Window, statistics: Counts, group: int) -> Arms:
    assert window.grouping is not None  # noqa: S101
    one, total = statistics[group], statistics.sum(axis=0)
    return Arms((window, window), (one, total - one), (window.grouping.slice(group), {}))


def compared(arms: Arms, query: CompareQuery, simultaneous: int = 1) -> Compared:
    """Compare two arms that were read before.

    Parameters
    ----------
    arms : Arms
    query : CompareQuery
    simultaneous : int
        So many comparisons like this one share beta.

    Raises
    ------
    ValueError
        If they cannot be compared, with the reason.
    """
    (one, two), sums, where = arms.windows, arms.sums, arms.where
    ask, metrics = query.a, (LocalMetric.require(one.metric), LocalMetric.require(two.metric))
    states = {one.status, two.status}
    status = next((s for s in ("expired", "not_ready", "provisional") if s in states), "final")
    bound = ask.bound
    if bound == "auto":
        bound = "fixed" if status == "final" else "anytime"
    policy = one.policy if ask.weights is None else ask.weights
    plain = "uniform" if policy == STANDARD_WEIGHTS else policy
    among = chosen_among(one, ask)
    if among > 1 and ask.weights is not None:  # comparisons have one policy more
        policies = distinct_policies(one.metric)
        among = among // policies * (policies + 1)
    beta = ask.beta / (simultaneous * among * ask.windows * query.intervals)
    limit_indices(metrics, query.below, ask.categories, ratio=query.of == "ratio")
    estimates = [
        compared_numbers(
            metric.estimate(
                statistic,
                beta,
                plain,
                bound if query.each else "fixed",
                ask.target if query.each else "population",
                categories=ask.categories,
                simultaneous=ask.simultaneous,
                panes=window.panes,
            ),
            query.below,
        )
        for metric, statistic, window in zip(metrics, sums, (one, two), strict=True)
    ]
    few = any(e.reports < m.minimum_reports for e, m in zip(estimates, metrics, strict=True))
    comparison = None
    if status not in ("expired", "not_ready") and few:
        status = "too_few_reports"
    elif status not in ("expired", "not_ready"):
        comparison = compare(
            metrics[0],
            *sums,
            of=query.of,
            bound=bound,
            beta=beta,
            target=ask.target,
            split=query.split if bound == "anytime" else None,
            other=None if metrics[0] is metrics[1] else metrics[1],
            weights=policy,
            independent=query.independent,
            categories=ask.categories,
            below=query.below,
            pointwise=not ask.simultaneous,
            panes=(one.panes, two.panes),
        )
    told = covers(one, dataclasses.replace(estimates[0], bound=bound), ask)
    a, b = (
        ArmAnswer(*facts)
        for facts in zip((m.name for m in metrics), where, (one, two), estimates, strict=True)
    )
    return Compared(a, b, query, status, bound, comparison, told, simultaneous, among)


def _where(window: Window) -> Slice:
    return {} if window.grouping is None else window.grouping.conditions


def _check_apart(one: Window, two: Window) -> None:
    """Refuse arms of one metric that may have reports in common."""
    first, second = _where(one), _where(two)
    if any(first[name] != second[name] for name in first.keys() & second.keys()):
        return
    edges = ((one.start_ms, two.end_ms), (two.start_ms, one.end_ms))
    if all(begin is None or end is None or begin < end for begin, end in edges):
        raise ValueError(
            "the arms have reports in common: expected two values of one attribute, a slice "
            "against the rest, or two windows that do not overlap"
        )
