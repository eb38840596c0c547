"""A cache of estimates."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Hashable

import numpy as np

from estimators import Estimate

MAX_CACHED_NUMBERS = 3_000_000
"""The most numbers in the cache: 24 MB of estimates."""


class EstimateCache:
    """A cache of estimates with up to `max_numbers` numbers; it drops the least recently used."""

    def __init__(self, max_numbers: int = MAX_CACHED_NUMBERS) -> None:
        self.max_numbers, self.cached_numbers = max_numbers, 0
        self._estimates: OrderedDict[Hashable, Estimate] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Estimate | None:
        """Return a cached estimate; None if it is not in the cache."""
        with self._lock:
            if key in self._estimates:
                self._estimates.move_to_end(key)
            return self._estimates.get(key)

    def put(self, key: Hashable, estimate: Estimate) -> None:
        """Cache an estimate; its arrays become read-only."""
        for number in (getattr(estimate, field.name) for field in dataclasses.fields(estimate)):
            if isinstance(number, np.ndarray):
                number.flags.writeable = False
        with self._lock:
            if key not in self._estimates:
                self._estimates[key] = estimate
                self.cached_numbers += _size(estimate)
            while self.cached_numbers > self.max_numbers:
                self.cached_numbers -= _size(self._estimates.popitem(last=False)[1])


def _size(estimate: Estimate) -> int:
    """Return how many numbers an estimate counts as, the overhead of its fields included."""
    return 3 * int(np.size(estimate.value)) + 2 * len(estimate.levels) + 100
