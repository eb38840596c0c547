"""The plan for searches in rounds, whose window is the state of the search."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NoReturn

from aggregator.reading.grouping import Grouping
from aggregator.reading.plans.base import UNSHARED_BOUNDS, ReadingPlan
from aggregator.reading.query import Query, SeriesQuery
from aggregator.reading.window import SearchState, Window
from aggregator.state.pane_keys import counted_keys
from aggregator.state.watermark import Watermark
from aggregator.storage import parsing
from aggregator.storage.commands import readable
from aggregator.storage.progress import TopicProgress
from aggregator.storage.redis_keys import rounds_key
from estimators import Estimate, SearchMetric
from estimators.extremes import Progress
from producers.device.rounds import Round

ALL_ROUNDS = "all rounds"


class SearchPlan(ReadingPlan[SearchMetric]):
    """Reads the rounds of a search, and the answers to the open round."""

    def describe(self, overview: TopicProgress, query: Query, grouping: Grouping | None) -> Window:
        """Return the state of the search, without the answers to the open round."""
        name = self.metric.name
        if query.has_window:
            raise ValueError(
                f"{name!r} is asked in rounds, so it has no windows; leave out the window"
            )
        opened, watermarks = self.open_round(readable(overview.rounds)), self.watermarks(overview)
        counted = overview.count_version(name)
        facts = (self.definition_hash, opened, counted, sorted(watermarks.items()))
        status = "not_ready" if opened is None else "final" if opened.is_over else "provisional"
        return Window.described(
            self.metric, overview, watermarks, facts, status=status, policy=self.metric.policies[0]
        )

    def read(self, window: Window) -> Window:
        """Return the state of the search, with the answers to the open round."""
        opened, statistic = self.open_round(readable(window.overview.rounds)), self.metric.zero()
        if opened is not None and not opened.is_over:
            statistic = self.sums.read_round(self.metric, opened.number, [*window.watermarks])
        return dataclasses.replace(window, content=SearchState(opened, statistic))

    @staticmethod
    def answer(window: Window, query: Query) -> Estimate:
        """Return what the decided rounds prove about the minimum or maximum."""
        metric = SearchMetric.require(window.metric)
        query.refuse_several(f"{metric.name!r} is asked in rounds, and {UNSHARED_BOUNDS}")
        progress = Progress() if window.round is None else window.round.progress
        undecided = window.status == "provisional" and not progress.decisions
        return dataclasses.replace(
            metric.search.estimate(progress),
            status="too_few_reports" if undecided else window.status,
            covers=ALL_ROUNDS,
        )

    def series(self, window: Window, query: SeriesQuery) -> NoReturn:
        """Refuse a series: a search has one answer."""
        raise ValueError(f"{query.metric!r} is asked in rounds and has no series")

    def watermarks(self, overview: TopicProgress) -> dict[int, Watermark]:
        """Return the watermarks of the partitions that counted answers to any round."""
        keys, watermarks = counted_keys(self.metric), dict[int, Watermark]()
        for number, progress in overview.partitions.items():
            marks = [progress.watermarks[key] for key in keys if key in progress.watermarks]
            if marks:
                latest = (max(m.latest for m in marks), max(m.arrived for m in marks))
                watermarks[number] = Watermark(*latest)
        return watermarks

    def open_round(self, rounds: Mapping[str, bytes]) -> Round | None:
        """Return the open or last round in the store; None before the first round.

        Raises StateUnreadable if the stored round is invalid.
        """
        if self.key not in rounds:
            return None
        location = f"{rounds_key(self.store.topic)}, field {self.key}"
        return parsing.open_round(location, rounds[self.key], self.metric)


READING_PLAN = SearchPlan
