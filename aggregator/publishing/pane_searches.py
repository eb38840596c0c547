"""Searches panes for frequent strings beside the publisher: one at a time, in a thread of its own.

A search takes a second or two of a core. In the publisher's thread it would hold up heartbeats,
releases and the events of other metrics. What it finds is a function of the pane's statistic, of
the definition and of beta: a publisher that takes over searches again, and finds the same.
"""

from __future__ import annotations

import dataclasses
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from aggregator.reading.discovery.answers import (
    DiscoveryAnswer,
    discover_strings,
    discovery_answer,
)
from aggregator.reading.discovery.searches import SearchCancelledError
from aggregator.reading.windows import Window

BETA = 0.05
"""Of each pane's list."""


@dataclasses.dataclass(frozen=True)
class _Search:
    window: Window
    answer: Future[DiscoveryAnswer]

    def is_of(self, window: Window) -> bool:
        """Whether it is of this pane, with these sums."""
        mine = self.window
        is_place = mine.metric is window.metric and mine.start_ms == window.start_ms
        return is_place and np.array_equal(mine.sums, window.sums)


class PaneSearches:
    """The search that is under way, or that has an answer nobody took yet."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "discovery-of-panes")
        self._closing = threading.Event()
        self._search: _Search | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether a search has not ended yet."""
        return self._search is not None and not self._search.answer.done()

    def take(self, window: Window) -> DiscoveryAnswer | None:
        """Return what was found in a final pane; None if it is not known yet.

        If no search is under way, that of this pane begins.

        Parameters
        ----------
        window : Window
            With its sums.

        Raises
        ------
        Exception
            If the search of this pane failed. Whoever asks again begins it anew.
        """
        search = self._search
        if search is not None and not search.answer.done():
            return None
        self._search = None
        if search is not None and search.is_of(window):
            return search.answer.result()
        self._search = _Search(window, self._pool.submit(self._run, window))
        return None

    def close(self) -> None:
        """End the search that is under way at its next step; its answer is lost."""
        self._closing.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, window: Window) -> DiscoveryAnswer:
        return discovery_answer(discover_strings(window, BETA, None, self._step))

    def _step(self, share: float) -> None:
        if self._closing.is_set():
            raise SearchCancelledError
