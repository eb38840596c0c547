"""Searches for frequent strings in the background, one at a time."""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from aggregator.clock import SYSTEM_CLOCK, Clock
from aggregator.errors import DitherError
from aggregator.reading.discovered_strings import (
    DiscoveryAnswer,
    SearchCancelledError,
    discover_strings,
    discovery_answer,
)
from aggregator.reading.query import Progress, ignore_progress
from aggregator.reading.window import Window

MAX_WAITING_SEARCHES = 8
"""The most searches that wait; each takes seconds."""
MAX_SEARCHES_PER_CLIENT = 3
"""The most running and waiting searches of a client, so that others can start some."""
MAX_KEPT_ANSWERS, ANSWER_LIFETIME_SECONDS = 32, 600.0
"""The number of stored answers, and their lifetime: a recount may change final answers."""
UNPOLLED_SECONDS = 30.0
"""A search ends if nobody asks for its progress for this time."""


class TooManySearchesError(DitherError):
    """Too many searches are waiting."""


class DiscoveryProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a search.

    `status` is ``waiting``, ``searching``, ``cancelled`` or ``not_searched``; `share`: the finished
    share of its work; `before`: the number of searches before it.
    """

    metric: str
    status: str
    share: float
    before: int = 0


@dataclasses.dataclass(frozen=True)
class StringsQuestion:
    """A question about the frequent strings of a window.

    Attributes
    ----------
    window : Window
        The window, without its sums.
    reading : int or None
        The number of closed panes if the window is all panes so far; None if its end is fixed.
    beta : float
        The largest probability that the answer is wrong.
    """

    window: Window
    reading: int | None
    beta: float

    @property
    def key(self) -> Hashable:
        """A key made of everything that determines the answer."""
        window, metric = self.window, self.window.metric
        facts = metric.name, metric.revision, metric.minimum_reports
        return *facts, window.start_ms, window.end_ms, self.reading, self.beta

    @property
    def subject(self) -> Hashable:
        """The subject of the question: a window, or all closed panes, however many there are."""
        metric = self.window.metric
        return self.key if self.reading is None else (metric.name, metric.revision, self.beta)

    def answer(
        self, read: Callable[[Window], Window], progress: Progress = ignore_progress
    ) -> DiscoveryAnswer:
        """Return the answer to the question.

        `read` returns a window with its sums; `progress` takes the share of the work that is done.
        """
        window = read(self.window)
        return discovery_answer(discover_strings(window, self.beta, self.reading, progress))


class _Search:
    """A search that waits, runs or has ended."""

    def __init__(self, clock: Clock, client: Hashable, question: StringsQuestion) -> None:
        self._clock, self._share, self.client, self.question = clock, 0.0, client, question
        self.began_at = self.asked_at = clock.monotonic()
        self.is_cancelled = self.is_delivered = False
        self.future: Future[DiscoveryAnswer] = Future()

    @property
    def is_under_way(self) -> bool:
        return not self.is_cancelled and not self.future.done()

    @property
    def is_usable(self) -> bool:
        """Whether the search is under way, or has an answer that has not expired."""
        is_fresh = self._clock.monotonic() < self.began_at + ANSWER_LIFETIME_SECONDS
        return not self.is_cancelled and (is_fresh or not self.future.done())

    def note(self, share: float) -> None:
        """Record the finished share of the work.

        Raises SearchCancelledError if the search was cancelled, or if nobody asks for it any more.
        """
        if self._clock.monotonic() > self.asked_at + UNPOLLED_SECONDS:
            self.is_cancelled = True
        if self.is_cancelled:
            raise SearchCancelledError
        self._share = share

    def cancel(self) -> None:
        """End the search at its next step, or before its start."""
        self.is_cancelled = True
        self.future.cancel()

    def progress(self, queued_before: int = 0) -> DiscoveryProgress:
        """Return the progress of the search; `queued_before`: how many searches come before it."""
        status = "searching" if self.future.running() else "waiting"
        return DiscoveryProgress(
            metric=self.question.window.metric.name,
            status="cancelled" if self.is_cancelled else status,
            share=self._share,
            before=queued_before,
        )


class Searches:
    """Starts searches in a thread, and keeps them and their answers until they expire.

    Parameters
    ----------
    read : callable
        Returns a window with its sums.
    """

    def __init__(self, read: Callable[[Window], Window], clock: Clock = SYSTEM_CLOCK) -> None:
        self._read, self._clock = read, clock
        self._pool = ThreadPoolExecutor(1, "discovery")
        self._lock = threading.Lock()
        self._searches: dict[Hashable, _Search] = {}
        self._latest: dict[Hashable, _Search] = {}

    def result_or_start(
        self, question: StringsQuestion, client: Hashable = None, *, search: bool = True
    ) -> DiscoveryAnswer | DiscoveryProgress:
        """Return the answer, or the progress of the search, which is started if necessary.

        `question`: the question; `client`: the client that asks; None if unknown; `search`: whether
        to search if there is no current answer. If not, the last answer is returned, or the status
        ``not_searched``; a search starts only if the last answer lacks a pane that is now closed,
        and is older than ANSWER_LIFETIME_SECONDS. Raises TooManySearchesError if too many searches
        are under way or waiting.
        """
        if question.window.status != "final":  # the answer has no strings
            return question.answer(self._read)
        subject = question.subject
        with self._lock:
            key = self._pending_key(subject) or question.key
            latest, current = self._latest.get(subject), self._searches.get(key)
            is_usable = current is not None and current.is_usable
            is_outdated = latest not in (None, current) and not latest.is_usable
            if not (is_usable or search or is_outdated):
                if latest is None:
                    name = question.window.metric.name
                    return DiscoveryProgress(metric=name, status="not_searched", share=0.0)
                return latest.future.result()
            if current is None or not is_usable:
                try:
                    current = self._start_search(key, question, client)
                except TooManySearchesError:
                    if search or latest is None:
                        raise
                    return latest.future.result()  # no new search was asked for
            current.asked_at = self._clock.monotonic()
            if not current.future.done():
                if latest is not None and not search:
                    return latest.future.result()
                return current.progress(self._queued_before(current))
            error = current.future.exception()
            if error is not None:
                del self._searches[key]  # the next request starts it again
            if isinstance(error, SearchCancelledError):  # after the lookup above
                current.is_cancelled = True
                return current.progress()
            if error is None:
                current.is_delivered = True
                self._keep_latest(subject, current)
        return current.future.result()

    def _pending_key(self, subject: Hashable) -> Hashable:
        """Return the key of a usable search about a subject if nobody got its answer; else None."""
        for key, search in self._searches.items():
            if search.question.subject == subject and search.is_usable and not search.is_delivered:
                return key
        return None

    def _keep_latest(self, subject: Hashable, search: _Search) -> None:
        self._latest.pop(subject, None)
        self._latest[subject] = search
        for oldest in [*self._latest][:-MAX_KEPT_ANSWERS]:
            del self._latest[oldest]

    def cancel(self, question: StringsQuestion) -> DiscoveryProgress | None:
        """Cancel a search, and return its progress; None if there is no such search."""
        with self._lock:
            search = self._searches.get(self._pending_key(question.subject))
            if search is None or not search.is_under_way:
                return None
            search.cancel()
            return search.progress()

    def close(self) -> None:
        """Cancel all searches."""
        with self._lock:
            for search in self._searches.values():
                search.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _start_search(self, key: Hashable, question: StringsQuestion, client: Hashable) -> _Search:
        """Start a search as soon as earlier searches end, and return it.

        Raises TooManySearchesError if too many searches are waiting or under way.
        """
        searches = {k: s for k, s in self._searches.items() if s.is_usable and k != key}
        under_way = [search for search in searches.values() if search.is_under_way]
        if (waiting := len(under_way)) > MAX_WAITING_SEARCHES:
            raise TooManySearchesError(f"{waiting} searches are already waiting or under way")
        count = sum(search.client == client for search in under_way)
        if client is not None and count >= MAX_SEARCHES_PER_CLIENT:
            raise TooManySearchesError(f"{count} searches of {client} are waiting or under way")
        finished = [k for k, search in searches.items() if not search.is_under_way]
        for oldest in finished[: max(0, len(finished) - MAX_KEPT_ANSWERS + 1)]:
            del searches[oldest]
        search = searches[key] = _Search(self._clock, client, question)
        self._searches = searches
        search.future = self._pool.submit(question.answer, self._read, search.note)
        return search

    def _queued_before(self, search: _Search) -> int:
        """Return the number of searches under way that come before a waiting search."""
        earlier = itertools.takewhile(lambda other: other is not search, self._searches.values())
        return sum(other.is_under_way for other in earlier)
