"""The plan for trusted collection: a window has its latest release, and no sums."""

from __future__ import annotations

import dataclasses

import numpy as np

from aggregator.features.trusted.releases import Releases
from aggregator.reading import steps
from aggregator.reading.coverage import THIS_WINDOW
from aggregator.reading.plans.base import NOT_SHARED, Plan
from aggregator.reading.query import Query, SeriesQuery
from aggregator.reading.series_plan import SeriesPlan, Step
from aggregator.reading.windows import Release, Window
from aggregator.storage.progress import TopicProgress
from estimators import Estimate, TrustedMetric


class TrustedPlan(Plan[TrustedMetric]):
    """Reads releases."""

    @property
    def releases(self) -> Releases:
        """Those that may be shown."""
        return Releases(self.store)

    def describe(self, overview: TopicProgress, query: Query) -> Window:
        """Return a window with the latest release in it: what is counted says nothing more."""
        watermarks, metric = self.watermarks(overview), self.metric
        first, last = self.edges(query, watermarks)
        policy = self.policy(overview)
        found = self.releases.latest(metric, self.key, first, last)
        facts = (self.key, first, last, found and found.start_ms, "" if found else policy)
        return self.window(
            overview,
            query,
            watermarks,
            facts,
            start_ms=first,
            end_ms=last,
            status=found.estimate.status if found else "not_ready",
            content=found or Release(None, none_yet(metric, policy)),
            policy=policy,
        )

    def read(self, window: Window) -> Window:
        """Return the pane of the release as a window; the window as it is where there is none."""
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
        """Return a release, or some of its categories.

        Raises
        ------
        ValueError
            If anything else is asked than was drawn: a release is drawn once.
        """
        metric, release = window.metric, window.content
        assert isinstance(metric, TrustedMetric)  # noqa: S101
        assert isinstance(release, Release)  # noqa: S101
        query.refuse_several(f"{metric.name!r} is collected in trust, and {NOT_SHARED}")
        return dataclasses.replace(select(metric, release.estimate, query), covers=THIS_WINDOW)

    def series(self, window: Window, query: SeriesQuery) -> SeriesPlan:
        """Return the newest releases of a range: they cannot be added up to longer steps."""
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
        most = steps.most_points(shown)
        found = self.releases.newest(metric, self.key, window.start_ms, window.end_ms, most)
        estimates = [select(metric, one.estimate, query) for one in found]
        shown_steps = [
            Step(one.start_ms, one.start_ms + metric.pane_ms, one.estimate.status)
            for one in found
            if one.start_ms is not None
        ]
        return SeriesPlan(query, window, metric.pane_ms, shown_steps, estimates)


def none_yet(metric: TrustedMetric, policy: str) -> Estimate:
    """Return what is known of a trusted metric before its first release: its definition."""
    nothing = metric.release(metric.zero(), weights=policy)
    return dataclasses.replace(nothing, status="not_ready")


def select(metric: TrustedMetric, release: Estimate, query: Query) -> Estimate:
    """Return a release, or some of its categories, as an answer to what is asked.

    Parameters
    ----------
    metric : TrustedMetric
    release : Estimate
    query : Query

    Raises
    ------
    ValueError
        If anything else is asked than was drawn: a release is drawn once.
    """
    parameters: list[tuple[str, object, object]] = [
        ("beta", query.beta, release.beta),
        ("weights", query.weights or release.policy, release.policy),
        ("bound", "fixed" if query.bound == "auto" else query.bound, release.bound),
        ("target", query.target, release.target),
        ("pointwise", not query.simultaneous, False),
    ]
    for name, wanted, drawn in parameters:
        if wanted != drawn:
            raise ValueError(
                f"{name} = {wanted!r}: metric {metric.name!r} has trusted collection, and a "
                f"release is drawn once: expected {drawn!r}"
            )
    if query.categories is None:
        return release
    labels, _ = metric.domain.select(query.categories)
    which = [release.labels.index(label) for label in labels]
    value, lower, upper = (
        np.asarray(x)[which] for x in (release.value, release.lower, release.upper)
    )
    return dataclasses.replace(release, value=value, lower=lower, upper=upper, labels=labels)
