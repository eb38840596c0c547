"""Releases of trusted collection: their stored form, written and read.

A release is drawn once. The final event on the estimates topic is its durable record. Redis has a
copy of the event's data, and readers show only this copy. Nothing here reads a sum.
"""

from __future__ import annotations

import msgspec

from aggregator.errors import StateUnreadable
from aggregator.reading.serialization import Answer, estimate_of
from aggregator.reading.windows import Release
from aggregator.storage import parsing
from aggregator.storage.redis_keys import final_key, publisher_key, release_key
from aggregator.storage.store import Store
from estimators import Metric
from producers.wire.decoding import decode_json


def decode_release(key: str, start_ms: int, data: bytes, metric: Metric) -> Release:
    """Return the release that an event's data is.

    Parameters
    ----------
    key : str
        Where the data is.
    start_ms : int
        Where its pane begins.
    data : bytes
    metric : Metric

    Raises
    ------
    StateUnreadable
        If it is none of this metric.
    """
    try:
        found = estimate_of(decode_json(data, Answer), metric)
    except msgspec.DecodeError as error:
        raise StateUnreadable(key, str(error), "a release") from None
    except ValueError as error:
        raise StateUnreadable(key, str(error), f"a release of {metric.name!r}") from None
    return Release(start_ms, found)


class Releases:
    """The releases of a deployment that may be shown: those that are on the estimates topic.

    Parameters
    ----------
    store : Store
    """

    def __init__(self, store: Store) -> None:
        self._store, self._prefix = store, publisher_key(store.topic)

    def latest(
        self, metric: Metric, key: str, start_ms: int | None = None, end_ms: int | None = None
    ) -> Release | None:
        """Return the latest release of a metric whose pane begins in [start, end).

        Parameters
        ----------
        metric : Metric
            Collected in trust.
        key : str
            Name and revision, as in keys.
        start_ms, end_ms : int, optional
            Ms since the epoch; None: without an edge.
        """
        return next(iter(self.newest(metric, key, start_ms, end_ms, 1)), None)

    def newest(
        self, metric: Metric, key: str, start_ms: int | None, end_ms: int | None, most: int
    ) -> list[Release]:
        """Return the newest releases of panes that begin in [start, end), the oldest first.

        Those that have expired are left out.

        Parameters
        ----------
        metric : Metric
            Collected in trust.
        key : str
            Name and revision, as in keys.
        start_ms, end_ms : int or None
            Ms since the epoch; None: without an edge.
        most : int
            How many at most.
        """
        finals = final_key(self._prefix, key)
        low, high = _edges(start_ms, end_ms)
        words = (high, low, "BYSCORE", "REV", "LIMIT", 0, most)
        (members,) = self._store.ask([("ZRANGE", finals, *words)])
        starts = [parsing.integer(finals, one, 0) for one in reversed(members)]
        if not starts:
            return []
        names = [release_key(self._prefix, key, start) for start in starts]
        (found,) = self._store.ask([("MGET", *names)])
        return [
            decode_release(name, start, data, metric)
            for name, start, data in zip(names, starts, found, strict=True)
            if data is not None
        ]


def _edges(start_ms: int | None, end_ms: int | None) -> tuple[str, str]:
    low = "-inf" if start_ms is None else str(start_ms)
    return low, "+inf" if end_ms is None else f"({end_ms}"
