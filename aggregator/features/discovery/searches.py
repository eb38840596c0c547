"""Searches for frequent strings in the background: one at a time, and their answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec

from aggregator.clock import SYSTEM, Clock
from aggregator.errors import DitherError
from aggregator.reading.discovered_strings import (
    DiscoveryAnswer,
    SearchCancelledError,
    discover_strings,
    discovery_answer,
)
from aggregator.reading.query import Time
from aggregator.reading.windows import Window

MOST_WAITING = 8
"""Searches that may wait; each takes seconds."""
MOST_OF_ASKER = 3
"""Searches under way that one asker began: the others may begin some, too."""
MOST_KEPT, KEPT_SECONDS = 32, 600.0
"""Answers that are kept, and for how long: a recount may change what was final."""
UNASKED_SECONDS = 30.0
"""A search for which nobody has asked so long ends: whoever wanted it has gone."""


class TooManySearchesError(DitherError):
    """So many searches wait that another one would be answered too late."""


class DiscoveryProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a search is.

    `status` is ``waiting``, ``searching`` or ``cancelled``; `share` of its work is done, and
    `before` searches come first.
    """

    metric: str
    status: str
    share: float
    before: int = 0


class _Search:
    """A search that waits, runs or is over."""

    def __init__(self, clock: Clock, asker: Hashable) -> None:
        self._clock, self._share, self.asker = clock, 0.0, asker
        self.began_at = self.asked_at = clock.monotonic()
        self.is_cancelled = False
        self.future: Future[DiscoveryAnswer] = Future()

    @property
    def is_under_way(self) -> bool:
        return not self.is_cancelled and not self.future.done()

    @property
    def is_kept(self) -> bool:
        """Whether its answer is there and may still be given."""
        if self.is_cancelled or not self.future.done() or self.future.cancelled():
            return False
        return self._clock.monotonic() < self.began_at + KEPT_SECONDS

    def note(self, share: float) -> None:
        """Note how far it is; end it if nobody wants it any more."""
        if self._clock.monotonic() > self.asked_at + UNASKED_SECONDS:
            self.is_cancelled = True
        if self.is_cancelled:
            raise SearchCancelledError
        self._share = share

    def cancel(self) -> None:
        """End it at its next step, or before it begins."""
        self.is_cancelled = True
        self.future.cancel()

    def progress(self, metric: str, before: int = 0) -> DiscoveryProgress:
        """Return how far it is."""
        status = "searching" if self.future.running() else "waiting"
        return DiscoveryProgress(
            metric=metric,
            status="cancelled" if self.is_cancelled else status,
            share=self._share,
            before=before,
        )


class Searches:
    """The searches of one process.

    Parameters
    ----------
    describe : callable
        Returns the window of a search, not read, and which reading of all panes it is.
    read : callable
        Returns a window with its sums.
    clock : Clock
    """

    def __init__(
        self,
        describe: Callable[..., tuple[Window, int | None]],
        read: Callable[[Window], Window],
        clock: Clock = SYSTEM,
    ) -> None:
        self._describe, self._read, self._clock = describe, read, clock
        self._pool = ThreadPoolExecutor(1, "discovery")
        self._lock = threading.Lock()
        self._searches: dict[Hashable, _Search] = {}

    def ask(
        self,
        name: str,
        start: Time = None,
        end: Time = None,
        *,
        window: str | None = None,
        beta: float = 0.05,
        asker: Hashable = None,
    ) -> DiscoveryAnswer | DiscoveryProgress:
        """Return the answer if it is there; else begin the search, or say how far it is.

        Parameters
        ----------
        name, start, end, window, beta
            As for :meth:`aggregator.features.reader.Reader.discover`.
        asker : hashable, optional
            Who asks; None: somebody of whom nothing is known.

        Raises
        ------
        UnknownMetric
            If there is no such metric.
        ValueError
            If the metric does not discover strings, or the window is empty.
        TooManySearchesError
            If another search would wait too long.
        """
        described, reading = self._describe(name, start, end, window=window)
        if described.status != "final":  # nothing is searched
            return discovery_answer(discover_strings(self._read(described), beta, reading))
        key = _key(described, reading, beta)
        with self._lock:
            search = self._searches.get(key)
            if search is None or not (search.is_under_way or search.is_kept):
                search = self._begin(
                    key,
                    lambda progress: discovery_answer(
                        discover_strings(self._read(described), beta, reading, progress)
                    ),
                    asker,
                )
            search.asked_at = self._clock.monotonic()
            if not search.future.done():
                return search.progress(name, self._before(search))
            error = search.future.exception()
            if error is not None:
                del self._searches[key]  # it is tried again by whoever asks again
            if isinstance(error, SearchCancelledError):  # just now, after it was looked up
                search.is_cancelled = True
                return search.progress(name)
        return search.future.result()

    def cancel(
        self,
        name: str,
        start: Time = None,
        end: Time = None,
        *,
        window: str | None = None,
        beta: float = 0.05,
    ) -> DiscoveryProgress | None:
        """End a search; return how far it was, or None if there is no such search under way.

        Parameters
        ----------
        name, start, end, window, beta
            As for :meth:`ask`.
        """
        described, reading = self._describe(name, start, end, window=window)
        key = _key(described, reading, beta)
        with self._lock:
            search = self._searches.get(key)
            if search is None or not search.is_under_way:
                return None
            search.cancel()
            return search.progress(name)

    def close(self) -> None:
        """End all searches."""
        with self._lock:
            for search in self._searches.values():
                search.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _begin(
        self,
        key: Hashable,
        run: Callable[[Callable[[float], None]], DiscoveryAnswer],
        asker: Hashable,
    ) -> _Search:
        """Begin a search, or put it in line."""
        kept = {k: one for k, one in self._searches.items() if one.is_under_way or one.is_kept}
        waiting = sum(one.is_under_way for one in kept.values())
        if waiting > MOST_WAITING:
            raise TooManySearchesError(f"{waiting} searches are already waiting or under way")
        own = sum(one.is_under_way and one.asker == asker for one in kept.values())
        if asker is not None and own >= MOST_OF_ASKER:
            raise TooManySearchesError(f"{own} searches of {asker} are waiting or under way")
        over = [k for k, one in kept.items() if not one.is_under_way and k != key]
        for oldest in over[: max(0, len(over) - MOST_KEPT + 1)]:
            del kept[oldest]
        kept.pop(key, None)
        search = kept[key] = _Search(self._clock, asker)
        self._searches = kept
        search.future = self._pool.submit(run, search.note)
        return search

    def _before(self, search: _Search) -> int:
        """Return how many searches come before one that waits."""
        before = 0
        for one in self._searches.values():
            if one is search:
                break
            before += one.is_under_way
        return before


def _key(window: Window, reading: int | None, beta: float) -> Hashable:
    """Return what the answer of a closed window depends on."""
    metric = window.metric
    facts = metric.name, metric.revision, metric.minimum_reports
    return *facts, window.start_ms, window.end_ms, reading, beta
