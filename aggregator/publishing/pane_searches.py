"""Searches panes for frequent strings in its own thread, one pane at a time.

A search takes a second or two of a core, which would delay heartbeats, releases and other events in
the publisher's thread. The pane's statistic, the definition and beta determine its strings, so
another publisher finds the same strings.

A failed search is retried with growing delays, because an event never changes: a pane that is
published without its list would never get one.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import Counter
from collections.abc import Collection
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import structlog

from aggregator.clock import SYSTEM_CLOCK, Clock
from aggregator.reading.discovered_strings import (
    DiscoveryAnswer,
    SearchCancelledError,
    discover_strings,
    discovery_answer,
)
from aggregator.reading.window import Window
from aggregator.timestamps import iso

PANE_LIST_BETA = 0.05
"""The largest probability that a pane's list is wrong."""
FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 300.0
"""The delay after a failed search, which doubles with each failure."""

log = structlog.get_logger("dither.publisher")


class PaneSearchFailedError(Exception):
    """Raised if the search of a pane failed; the search is retried later."""


@dataclasses.dataclass(frozen=True)
class _Search:
    window: Window
    answer: Future[DiscoveryAnswer]

    def is_of(self, window: Window) -> bool:
        """Return whether this search is about a window's pane, with the same sums."""
        searched = self.window
        is_pane = searched.metric is window.metric and searched.start_ms == window.start_ms
        return is_pane and np.array_equal(searched.sums, window.sums)


@dataclasses.dataclass(frozen=True)
class _Retry:
    """The time of a search's next retry, in monotonic seconds, and the delay before it."""

    at: float
    seconds: float


class PaneSearches:
    """The current or last search, and the retries of failed searches."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._pool = ThreadPoolExecutor(1, "discovery-of-panes")
        self._closing = threading.Event()
        self._search: _Search | None = None
        self._retries: dict[tuple[str, int], _Retry] = {}

    @property
    def is_under_way(self) -> bool:
        """Whether a search is running."""
        return self._search is not None and not self._search.answer.done()

    @property
    def failed(self) -> Counter[str]:
        """The number of panes that wait for a retry or are being retried, by metric."""
        return Counter(name for name, _ in self._retries)

    def postponed(self, metric: str) -> set[int]:
        """Return the starts of the panes of a metric whose failed search waits for its retry."""
        now, retries = self._clock.monotonic(), self._retries.items()
        return {start for (name, start), retry in retries if name == metric and now < retry.at}

    def drop_vanished_panes(self, metric: str, postponed: Collection[int]) -> None:
        """Drop a metric's retries whose time has come, because their panes are no longer due.

        `postponed`: the starts of the panes whose retries stay, from :meth:`postponed`.
        """
        for name, start in [*self._retries]:
            if name == metric and start not in postponed:
                del self._retries[name, start]

    def result_or_start(self, window: Window) -> DiscoveryAnswer | None:
        """Return the strings of a final pane; None until its search has ended.

        If no search is running, the search of this pane is started. Raises PaneSearchFailedError if
        the search of this pane has failed; it will be retried later.
        """
        search = self._search
        if search is not None and not search.answer.done():
            return None
        self._search = None
        if search is not None:
            error = search.answer.exception()
            if error is not None:
                self._postpone(search.window, error)
            if search.is_of(window):
                if error is not None:
                    raise PaneSearchFailedError from error
                self._retries.pop(_pane(window), None)
                return search.answer.result()
        self._search = _Search(window, self._pool.submit(self._run, window))
        return None

    def close(self) -> None:
        """Cancel the running search, which ends at its next step."""
        self._closing.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _postpone(self, window: Window, error: BaseException) -> None:
        pane = _pane(window)
        previous_retry = self._retries.get(pane)
        seconds = FIRST_RETRY_SECONDS if previous_retry is None else 2 * previous_retry.seconds
        seconds = min(seconds, MAX_RETRY_SECONDS)
        self._retries[pane] = _Retry(self._clock.monotonic() + seconds, seconds)
        log.error(
            "cannot search a pane for strings: its final event waits",
            metric=window.metric.name,
            pane=iso(window.start_ms),
            again_in=seconds,
            exc_info=error,
        )

    def _run(self, window: Window) -> DiscoveryAnswer:
        return discovery_answer(discover_strings(window, PANE_LIST_BETA, None, self._step))

    def _step(self, share: float) -> None:
        if self._closing.is_set():
            raise SearchCancelledError


def _pane(window: Window) -> tuple[str, int]:
    assert window.start_ms is not None  # noqa: S101
    return window.metric.name, window.start_ms
