"""The plan for trusted collection, whose window has its latest release, and no sums.

A release is drawn once. The final event on the estimates topic is its durable record. Redis has a
copy of the event's data, and readers show only this copy, never a sum.
"""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np

from aggregator.errors import StateUnreadable
from aggregator.reading import steps
from aggregator.reading.coverage import THIS_WINDOW
from aggregator.reading.grouping import Grouping
from aggregator.reading.plans.base import UNSHARED_BOUNDS, ReadingPlan, SeriesPlan
from aggregator.reading.query import Query, SeriesQuery
from aggregator.reading.serialization import Answer, estimate_of
from aggregator.reading.window import Release, Window, edges
from aggregator.storage import parsing
from aggregator.storage.progress import TopicProgress
from aggregator.storage.redis_keys import final_key, publisher_key, release_key
from aggregator.storage.store import Store
from estimators import Estimate, Metric, TrustedMetric
from producers.wire.decoding import decode_json


def decode_release(key: str, start_ms: int, data: bytes, metric: Metric) -> Release:
    """Return the release that an event's data describes.

    `key`: the Redis key of the data; `start_ms`: the start of the release's pane, in ms since the
    epoch; `data`: the event's data; `metric`: the metric. Raises StateUnreadable if the data is not
    a release of this metric.
    """
    try:
        return Release(start_ms, estimate_of(decode_json(data, Answer), metric))
    except msgspec.DecodeError as error:
        raise StateUnreadable(key, str(error), "a release") from None
    except (ValueError, OverflowError) as error:
        raise StateUnreadable(key, str(error), f"a release of {metric.name!r}") from None


def newest_releases(
    store: Store,
    metric: Metric,
    key: str,
    start_ms: int | None = None,
    end_ms: int | None = None,
    max_releases: int = 1,
) -> list[Release]:
    """Return the newest unexpired releases of panes that begin in [start, end), the oldest first.

    `store`: the store of the topic; `metric`: the metric; `key`: the metric's key; `start_ms`,
    `end_ms`: the bounds, in ms since the epoch; None for no bound; `max_releases`: the most
    releases to return.
    """
    publisher = publisher_key(store.topic)
    finals = final_key(publisher, key)
    low, high = "-inf" if start_ms is None else start_ms, "+inf" if end_ms is None else f"({end_ms}"
    words = (high, low, "BYSCORE", "REV", "LIMIT", 0, max_releases)
    (members,) = store.ask([("ZRANGE", finals, *words)])
    starts = [parsing.integer(finals, start, 0) for start in reversed(members)]
    if not starts:
        return []
    names = [release_key(publisher, key, start) for start in starts]
    (documents,) = store.ask([("MGET", *names)])
    return [
        decode_release(name, start, data, metric)
        for name, start, data in zip(names, starts, documents, strict=True)
        if data is not None
    ]


class TrustedPlan(ReadingPlan[TrustedMetric]):
    """Reads the releases of a metric with trusted collection."""

    def describe(self, overview: TopicProgress, query: Query, grouping: Grouping | None) -> Window:
        """Return a window with the latest release in it."""
        watermarks, metric = overview.watermarks(self.key), self.metric
        first, last = edges(metric, query, lambda: self.sums.extent(overview, self.key, watermarks))
        policy = overview.policy(metric)
        release = next(iter(newest_releases(self.store, metric, self.key, first, last)), None)
        shown = (release and release.start_ms, "" if release else policy)
        facts = (self.definition_hash, first, last, *shown)
        return Window.described(
            metric,
            overview,
            watermarks,
            facts,
            start_ms=first,
            end_ms=last,
            status=release.estimate.status if release else "not_ready",
            content=release or Release(None, none_yet(metric, policy)),
            policy=policy,
            slides=query.window is not None,
        )

    def read(self, window: Window) -> Window:
        """Return the pane of the window's release; if there is no release, return the window."""
        release = window.content
        assert isinstance(release, Release)  # noqa: S101
        if release.start_ms is None:
            return window
        return Window(
            metric=self.metric,
            start_ms=release.start_ms,
            end_ms=release.start_ms + self.metric.pane_ms,
            status="final",
            content=release,
            policy=release.estimate.policy,
        )

    @staticmethod
    def answer(window: Window, query: Query) -> Estimate:
        """Return a release, or only the categories that the query selects.

        Raises ValueError if the query has other parameters, such as beta, than the release was
        drawn with.
        """
        metric, release = TrustedMetric.require(window.metric), window.content
        assert isinstance(release, Release)  # noqa: S101
        query.refuse_several(f"{metric.name!r} is collected in trust, and {UNSHARED_BOUNDS}")
        return dataclasses.replace(select(metric, release.estimate, query), covers=THIS_WINDOW)

    def series(self, window: Window, query: SeriesQuery) -> SeriesPlan:
        """Return a series of a range's newest releases, one a pane, as they cannot be added."""
        metric = self.metric
        labels, _ = metric.domain.select(query.categories)
        if query.all_points:
            raise ValueError(
                f"simultaneous = points: metric {metric.name!r} has trusted collection, and its "
                "releases have no simultaneous bounds"
            )
        step = query.step and steps.whole_panes(metric, query.step)
        if step not in (None, metric.pane_ms):
            raise ValueError(
                f"step = {query.step!r}: metric {metric.name!r} has trusted collection, and "
                "releases cannot be added: expected the width of its panes, "
                f"{steps.duration(metric.pane_ms)}"
            )
        shown = len(labels) if query.top is None else min(len(labels), query.top)
        max_points = steps.max_series_points(shown)
        edges_ms = window.start_ms, window.end_ms
        releases = newest_releases(self.store, metric, self.key, *edges_ms, max_points)
        estimates = [select(metric, release.estimate, query) for release in releases]
        windows = [
            window.between(start, start + metric.pane_ms, release.estimate.status)
            for release in releases
            if (start := release.start_ms) is not None
        ]
        return SeriesPlan(self, query, window, metric.pane_ms, windows, estimates)


READING_PLAN = TrustedPlan


def none_yet(metric: TrustedMetric, policy: str) -> Estimate:
    """Return the estimate before the first release, without reports."""
    release = metric.release(metric.zero(), weights=policy)
    return dataclasses.replace(release, status="not_ready")


def select(metric: TrustedMetric, release: Estimate, query: Query) -> Estimate:
    """Return a release, or the categories of it that a query selects.

    `metric`: the metric; `release`: the release; `query`: the parameters of the query. Raises
    ValueError if the query has other parameters, such as beta, than the release was drawn with.
    """
    parameters: list[tuple[str, object, object]] = [
        ("beta", query.beta, release.beta),
        ("weights", query.weights or release.policy, release.policy),
        ("bound", "fixed" if query.bound == "auto" else query.bound, release.bound),
        ("target", query.target, release.target),
        ("pointwise", not query.simultaneous, False),
    ]
    for name, requested, drawn in parameters:
        if requested != drawn:
            raise ValueError(
                f"{name} = {requested!r}: metric {metric.name!r} has trusted collection, and a "
                f"release is drawn once: expected {drawn!r}"
            )
    if query.categories is None:
        return release
    labels, keys = metric.domain.select(query.categories)
    if keys is not None and keys.dtype == object:
        raise ValueError(
            f"metric {metric.name!r} has trusted collection, which answers no shares among: "
            "expected categories"
        )
    indices = [release.labels.index(label) for label in labels]
    bounds = (release.value, release.lower, release.upper)
    value, lower, upper = (np.asarray(x)[indices] for x in bounds)
    return dataclasses.replace(release, value=value, lower=lower, upper=upper, labels=labels)
