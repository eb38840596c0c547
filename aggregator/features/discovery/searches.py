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
        self._searches: list[_Search] = []  # in the order of their starts

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
        with self._lock:
            current, latest = self._current(question), self._latest(question)
            last_answer = None if search or latest is None else latest.future.result()
            if current is None and not search:
                if latest is None or last_answer is None:
                    name = question.window.metric.name
                    return DiscoveryProgress(metric=name, status="not_searched", share=0.0)
                if latest.is_usable or latest.question.key == question.key:
                    return last_answer
            if current is None:
                try:
                    current = self._start_search(question, client)
                except TooManySearchesError:
                    if last_answer is None:
                        raise
                    return last_answer  # no new search was asked for
            current.asked_at = self._clock.monotonic()
            if not current.future.done():
                return last_answer or current.progress(self._queued_before(current))
            error = current.future.exception()
            if error is not None:
                self._searches.remove(current)  # the next request starts it again
            if isinstance(error, SearchCancelledError):  # after the lookup above
                current.is_cancelled = True
                return current.progress()
            current.is_delivered = error is None
        return current.future.result()

    def _current(self, question: StringsQuestion) -> _Search | None:
        """Return a usable search about the subject that nobody got the answer of, or the same."""
        usable = [search for search in self._searches if search.is_usable]
        undelivered = (search for search in usable if not search.is_delivered)
        about = (s for s in undelivered if s.question.subject == question.subject)
        same = (search for search in usable if search.question.key == question.key)
        return next(itertools.chain(about, same), None)

    def _latest(self, question: StringsQuestion) -> _Search | None:
        """Return the last search about a question's subject whose answer somebody got."""
        delivered = (search for search in reversed(self._searches) if search.is_delivered)
        return next((s for s in delivered if s.question.subject == question.subject), None)

    def cancel(self, question: StringsQuestion) -> DiscoveryProgress | None:
        """Cancel a search, and return its progress; None if there is no such search."""
        with self._lock:
            search = self._current(question)
            if search is None or not search.is_under_way:
                return None
            search.cancel()
            return search.progress()

    def close(self) -> None:
        """Cancel all searches."""
        with self._lock:
            for search in self._searches:
                search.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _start_search(self, question: StringsQuestion, client: Hashable) -> _Search:
        """Start a search as soon as earlier searches end, and return it.

        Raises TooManySearchesError if too many searches are waiting or under way.
        """
        under_way = [search for search in self._searches if search.is_under_way]
        if (waiting := len(under_way)) > MAX_WAITING_SEARCHES:
            raise TooManySearchesError(f"{waiting} searches are already waiting or under way")
        count = sum(search.client == client for search in under_way)
        if client is not None and count >= MAX_SEARCHES_PER_CLIENT:
            raise TooManySearchesError(f"{count} searches of {client} are waiting or under way")
        ended = [s for s in self._searches if s.future.done() and not s.is_cancelled]
        search = _Search(self._clock, client, question)
        self._searches = [*ended[1 - MAX_KEPT_ANSWERS :], *under_way, search]
        search.future = self._pool.submit(question.answer, self._read, search.note)
        return search

    def _queued_before(self, search: _Search) -> int:
        """Return the number of searches under way that come before a waiting search."""
        earlier = itertools.takewhile(lambda other: other is not search, self._searches)
        return sum(other.is_under_way for other in earlier)
