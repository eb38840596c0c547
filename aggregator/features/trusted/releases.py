"""Reads the releases of trusted collection.

A release is drawn once. The final event on the estimates topic is its durable record. Redis has a
copy of the event's data, and readers show only this copy, never a sum.
"""

from __future__ import annotations

import msgspec

from aggregator.errors import StateUnreadable
from aggregator.reading.serialization import Answer, estimate_of
from aggregator.reading.window import Release
from aggregator.storage import parsing
from aggregator.storage.redis_keys import final_key, publisher_key, release_key
from aggregator.storage.store import Store
from estimators import Metric
from producers.wire.decoding import decode_json


def decode_release(key: str, start_ms: int, data: bytes, metric: Metric) -> Release:
    """Return the release that an event's data describes.

    Parameters
    ----------
    key : str
        The Redis key of the data.
    start_ms : int
        The start of the release's pane, in ms since the epoch.
    data : bytes
    metric : Metric

    Raises
    ------
    StateUnreadable
        If the data is not a release of this metric.
    """
    try:
        estimate = estimate_of(decode_json(data, Answer), metric)
    except msgspec.DecodeError as error:
        raise StateUnreadable(key, str(error), "a release") from None
    except (ValueError, OverflowError) as error:
        raise StateUnreadable(key, str(error), f"a release of {metric.name!r}") from None
    return Release(start_ms, estimate)


class Releases:
    """The published releases of a deployment."""

    def __init__(self, store: Store) -> None:
        self._store, self._prefix = store, publisher_key(store.topic)

    def latest(
        self, metric: Metric, key: str, start_ms: int | None = None, end_ms: int | None = None
    ) -> Release | None:
        """Return the latest release of a metric whose pane begins in [start, end).

        Parameters
        ----------
        metric : Metric
        key : str
            The metric's key.
        start_ms, end_ms : int, optional
            In ms since the epoch; None for no bound.
        """
        return next(iter(self.newest(metric, key, start_ms, end_ms, 1)), None)

    def newest(
        self, metric: Metric, key: str, start_ms: int | None, end_ms: int | None, max_releases: int
    ) -> list[Release]:
        """Return the newest unexpired releases of panes that begin in [start, end), in order.

        Parameters
        ----------
        metric : Metric
        key : str
            The metric's key.
        start_ms, end_ms : int or None
            In ms since the epoch; None for no bound.
        max_releases : int
        """
        finals = final_key(self._prefix, key)
        low, high = _edges(start_ms, end_ms)
        words = (high, low, "BYSCORE", "REV", "LIMIT", 0, max_releases)
        (members,) = self._store.ask([("ZRANGE", finals, *words)])
        starts = [parsing.integer(finals, start, 0) for start in reversed(members)]
        if not starts:
            return []
        names = [release_key(self._prefix, key, start) for start in starts]
        (documents,) = self._store.ask([("MGET", *names)])
        return [
            decode_release(name, start, data, metric)
            for name, start, data in zip(names, starts, documents, strict=True)
            if data is not None
        ]


def _edges(start_ms: int | None, end_ms: int | None) -> tuple[str, str]:
    low = "-inf" if start_ms is None else str(start_ms)
    return low, "+inf" if end_ms is None else f"({end_ms}"
