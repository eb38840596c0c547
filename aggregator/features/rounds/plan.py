"""The plan for searches in rounds: a window is the present state of the search."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NoReturn

from aggregator.reading.plans.base import NOT_SHARED, Plan
from aggregator.reading.query import Query, SeriesQuery
from aggregator.reading.windows import SearchState, Window
from aggregator.state.pane_keys import counted_keys
from aggregator.state.watermark import Watermark
from aggregator.storage import parsing
from aggregator.storage.progress import TopicProgress
from aggregator.storage.redis_keys import rounds_key
from estimators import Estimate, SearchMetric
from estimators.extremes import Progress
from producers.device.rounds import Round

ALL_ROUNDS = "all rounds"


class SearchPlan(Plan[SearchMetric]):
    """Reads rounds and the answers to the one that is open."""

    def describe(self, overview: TopicProgress, query: Query) -> Window:
        """Return where the search stands, without the answers to the round that is open."""
        name = self.metric.name
        if query.has_window:
            raise ValueError(
                f"{name!r} is asked in rounds, so it has no windows; leave out the window"
            )
        found, watermarks = self.open_round(overview.rounds), self.watermarks(overview)
        counted = self.counted(overview)
        facts = (self.metric.revision, found, counted, sorted(watermarks.items()))
        status = "not_ready" if found is None else "final" if found.is_over else "provisional"
        policy = self.metric.policies[0]
        return self.window(overview, query, watermarks, facts, status=status, policy=policy)

    def read(self, window: Window) -> Window:
        """Return where the search stands."""
        found, statistic = self.open_round(window.overview.rounds), self.metric.zero()
        if found is not None and not found.is_over:
            statistic = self.sums.of_round(self.metric, found.number, [*window.watermarks])
        return dataclasses.replace(window, content=SearchState(found, statistic))

    @staticmethod
    def answer(window: Window, query: Query) -> Estimate:
        """Return what is certain of the extreme: the definition says all that can be asked."""
        metric = window.metric
        assert isinstance(metric, SearchMetric)  # noqa: S101
        query.refuse_several(f"{metric.name!r} is asked in rounds, and {NOT_SHARED}")
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
        """Return the watermarks of the partitions that counted answers, of whichever round."""
        keys, found = counted_keys(self.metric), dict[int, Watermark]()
        for number, progress in overview.partitions.items():
            marks = [progress.watermarks[key] for key in keys if key in progress.watermarks]
            if marks:
                latest = (max(m.latest for m in marks), max(m.arrived for m in marks))
                found[number] = Watermark(*latest)
        return found

    def open_round(self, rounds: Mapping[str, bytes]) -> Round | None:
        """Return the round that is open, or was the last one; None before the first one.

        Parameters
        ----------
        rounds : mapping of str to bytes
            From the store.

        Raises
        ------
        StateUnreadable
            If what is stored is none.
        """
        if self.key not in rounds:
            return None
        place = f"{rounds_key(self.store.topic)}, field {self.key}"
        return parsing.open_round(place, rounds[self.key], self.metric)
