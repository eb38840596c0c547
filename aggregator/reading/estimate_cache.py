"""A cache of estimates."""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Hashable

import numpy as np

from estimators import Estimate

MAX_CACHED_NUMBERS = 3_000_000
"""24 MB of estimates."""


class EstimateCache:
    """A least-recently-used cache of at most `max_numbers` numbers, over all estimates."""

    def __init__(self, max_numbers: int = MAX_CACHED_NUMBERS) -> None:
        self.max_numbers, self.cached_numbers = max_numbers, 0
        self._estimates: OrderedDict[Hashable, Estimate] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Estimate | None:
        """Return a cached estimate."""
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
    """Return the number of numbers of an estimate, with its fields' overhead."""
    return 3 * int(np.size(estimate.value)) + 2 * len(estimate.levels) + 100
