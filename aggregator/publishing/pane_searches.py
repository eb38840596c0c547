"""Searches panes for frequent strings beside the publisher: one at a time, in a thread of its own.

A search takes a second or two of a core. In the publisher's thread it would hold up heartbeats,
releases and the events of other metrics. What it finds is a function of the pane's statistic, of
the definition and of beta: a publisher that takes over searches again, and finds the same.

A search that fails is tried again, later and later: an event never changes, so that a pane whose
event went out without its list because memory was short would never have one.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import structlog

from aggregator.clock import SYSTEM, Clock
from aggregator.reading.discovered_strings import (
    DiscoveryAnswer,
    SearchCancelledError,
    discover_strings,
    discovery_answer,
)
from aggregator.reading.windows import Window
from aggregator.timestamps import iso

BETA = 0.05
"""Of each pane's list."""
FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 1.0, 300.0
"""After a search that failed; each time twice as long."""

log = structlog.get_logger("dither.publisher")


class PaneSearchFailedError(Exception):
    """The search of a pane failed, and is tried again later."""


@dataclasses.dataclass(frozen=True)
class _Search:
    window: Window
    answer: Future[DiscoveryAnswer]

    def is_of(self, window: Window) -> bool:
        """Whether it is of this pane, with these sums."""
        mine = self.window
        is_place = mine.metric is window.metric and mine.start_ms == window.start_ms
        return is_place and np.array_equal(mine.sums, window.sums)


@dataclasses.dataclass(frozen=True)
class _Retry:
    """When a search that failed is tried again, by the monotonic clock, and how long that is."""

    at: float
    seconds: float


class PaneSearches:
    """The search that is under way, or that has an answer nobody took yet; and those that failed.

    Parameters
    ----------
    clock : Clock
    """

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._pool = ThreadPoolExecutor(1, "discovery-of-panes")
        self._closing = threading.Event()
        self._search: _Search | None = None
        self._retries: dict[tuple[str, int], _Retry] = {}

    @property
    def is_under_way(self) -> bool:
        """Whether a search has not ended yet."""
        return self._search is not None and not self._search.answer.done()

    @property
    def failed(self) -> Counter[str]:
        """How many panes of each metric wait for another search, or have it now."""
        return Counter(name for name, _ in self._retries)

    def postponed(self, metric: str) -> set[int]:
        """Return where the panes of a metric begin whose search failed and is not due again yet."""
        now = self._clock.monotonic()
        return {
            start
            for (name, start), retry in self._retries.items()
            if name == metric and now < retry.at
        }

    def keep(self, metric: str, postponed: Collection[int]) -> None:
        """Forget the panes of a metric that were not postponed, and were not there to search.

        Parameters
        ----------
        metric : str
        postponed : collection of int
            What :meth:`postponed` returned before the panes were looked for.
        """
        for name, start in [*self._retries]:
            if name == metric and start not in postponed:
                del self._retries[name, start]

    def take(self, window: Window) -> DiscoveryAnswer | None:
        """Return what was found in a final pane; None if it is not known yet.

        If no search is under way, that of this pane begins.

        Parameters
        ----------
        window : Window
            With its sums.

        Raises
        ------
        PaneSearchFailedError
            If the search of this pane failed: ask for others, until it is not postponed any more.
        """
        search = self._search
        if search is not None and not search.answer.done():
            return None
        self._search = None
        if search is not None:
            error = search.answer.exception()
            if error is not None:  # also of a pane whose turn this is not
                self._postpone(search.window, error)
            if search.is_of(window):
                if error is not None:
                    raise PaneSearchFailedError from error
                self._retries.pop(_place(window), None)
                return search.answer.result()
        self._search = _Search(window, self._pool.submit(self._run, window))
        return None

    def close(self) -> None:
        """End the search that is under way at its next step; its answer is lost."""
        self._closing.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _postpone(self, window: Window, error: BaseException) -> None:
        place = _place(window)
        before = self._retries.get(place)
        seconds = FIRST_RETRY_SECONDS if before is None else 2 * before.seconds
        seconds = min(seconds, LAST_RETRY_SECONDS)
        self._retries[place] = _Retry(self._clock.monotonic() + seconds, seconds)
        log.error(
            "cannot search a pane for strings: its final event waits",
            metric=window.metric.name,
            pane=iso(window.start_ms),
            again_in=seconds,
            exc_info=error,
        )

    def _run(self, window: Window) -> DiscoveryAnswer:
        return discovery_answer(discover_strings(window, BETA, None, self._step))

    def _step(self, share: float) -> None:
        if self._closing.is_set():
            raise SearchCancelledError


def _place(window: Window) -> tuple[str, int]:
    assert window.start_ms is not None  # noqa: S101
    return window.metric.name, window.start_ms
