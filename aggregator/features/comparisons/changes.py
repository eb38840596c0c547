"""The change of a metric against the period before, with one beta for all shown changes."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Hashable
from typing import Literal, get_args

from aggregator.features.comparisons.arms import compared, read_arms
from aggregator.features.comparisons.query import ArmAnswer, Compared, CompareQuery
from aggregator.reading.coverage import coverage_text
from aggregator.reading.query import Query
from aggregator.reading.reader import MetricReader
from aggregator.reading.window import Release, last_edges
from aggregator.state.pane_keys import metric_key
from aggregator.state.watermark import NO_TIME
from aggregator.storage.progress import TopicProgress
from estimators import LocalMetric, Metric, TrustedMetric
from estimators.comparison.comparison import compare_releases
from estimators.durations import milliseconds
from estimators.metrics.shares import ShareBoundsError

Period = Literal["1h", "24h", "7d", "30d", "90d"]
OFFERED_PERIODS: tuple[str, ...] = get_args(Period)


class Changes:
    """Compares the last closed panes of metrics with as many panes before them.

    Releases cannot be added: the latest release is compared with the release a period before it.
    The bounds of all changes that a reader can choose at one time hold together: all metrics that
    can be compared, their shares among, and all periods share beta. A change is computed again only
    if its sums have changed.
    """

    def __init__(self, reader: MetricReader) -> None:
        self.reader = reader
        self._last: dict[tuple[str, str | None], tuple[Hashable, list[Compared]]] = {}

    def read(self, name: str, period: str | None) -> list[Compared]:
        """Return the change of a metric, and the change of the shares that its definition lists.

        The list is empty if no pane is closed, or if the panes do not cover any period twice.
        `name`: the metric's name; `period`: one of :data:`OFFERED_PERIODS`, widened to whole panes;
        None for the longest that the metric's panes cover twice.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the metric cannot be compared.
        """
        metric = self.reader.metric(name)
        if isinstance(metric, TrustedMetric):
            return _change_of_releases(self.reader, metric, period)
        progress = self.reader.progress(name)
        query = _change_query(self.reader, progress, LocalMetric.require(metric), period)
        if query is None:
            return []
        arms = read_arms(functools.partial(self.reader.windows, overview=progress), name, query)
        sums_keys = [window.sums_key for window in arms.windows]
        key = self.reader.definition_hash(metric), query, *sums_keys
        if (name, period) not in self._last or self._last[name, period][0] != key:
            changes = [compared(arms, query)]
            with contextlib.suppress(ShareBoundsError):
                if metric.share_names:
                    a = dataclasses.replace(query.a, categories=metric.share_names)
                    changes.append(compared(arms, dataclasses.replace(query, a=a)))
            self._last[name, period] = key, changes
        return self._last[name, period][1]


def _change_of_releases(
    reader: MetricReader, metric: TrustedMetric, period: str | None
) -> list[Compared]:
    name, latest = metric.name, reader.window(metric.name)
    for start in _period_starts(metric, period, latest.end_ms) if latest.end_ms else ():
        before = reader.window(name, _between(start - metric.pane_ms, start))
        releases = [w.content.estimate for w in (latest, before) if isinstance(w.content, Release)]
        if all(release.status == "final" for release in releases):
            query = _query(reader, *(_between(w.start_ms, w.end_ms) for w in (latest, before)))
            release_a, release_b = releases
            beta = query.a.beta / query.a.windows
            comparison = compare_releases(metric, release_a, release_b, beta)
            a, b = (
                ArmAnswer(name, {}, window, release)
                for window, release in zip((latest, before), releases, strict=True)
            )
            covers = coverage_text(latest, releases[0], query.a)
            return [Compared(a, b, query, "final", "fixed", comparison, covers, 1, 1)]
    return []


def _change_query(
    reader: MetricReader, progress: TopicProgress, metric: LocalMetric, period: str | None
) -> CompareQuery | None:
    key = metric_key(metric.name, metric.revision)
    progress.require_readable()
    extent, closed = progress.extent(key, progress.partitions), progress.closed(key)
    if extent is None or closed == NO_TIME:
        return None
    end = min(extent[1] + metric.pane_ms, metric.pane_start(closed))
    for start in _period_starts(metric, period, end):
        if period is not None or 2 * start - end >= extent[0]:
            return _query(reader, _between(start, end), _between(2 * start - end, start))
    return None


def _period_starts(metric: Metric, period: str | None, end_ms: int) -> list[int]:
    """Return the start of a period that ends at `end_ms`, in ms since the epoch.

    If `period` is None, return the starts of all offered periods, the longest first.
    """
    periods = reversed(OFFERED_PERIODS) if period is None else (period,)
    newest = end_ms - metric.pane_ms
    return [last_edges(metric, milliseconds(length), newest)[0] for length in periods]


def _between(start_ms: int | None, end_ms: int | None) -> Query:
    start, end = (None if at is None else at / 1000 for at in (start_ms, end_ms))
    return Query(start, end)


def _query(reader: MetricReader, a: Query, b: Query) -> CompareQuery:
    comparisons = sum(
        1 + bool(metric.share_names)
        for metric in reader.metrics.values()
        if isinstance(metric, LocalMetric | TrustedMetric)
    )
    return CompareQuery(a=dataclasses.replace(a, windows=comparisons * len(OFFERED_PERIODS)), b=b)
