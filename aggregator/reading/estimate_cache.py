"""A cache of estimates."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable

import numpy as np

from estimators import Estimate

KEPT_NUMBERS = 3_000_000
"""24 MB of estimates."""


class EstimateCache:
    """Estimates that need not be computed again, the least recently used forgotten first.

    Parameters
    ----------
    numbers : int
        How many numbers are kept, over all estimates.
    """

    def __init__(self, numbers: int = KEPT_NUMBERS) -> None:
        self.numbers, self.kept = numbers, 0
        self._found: OrderedDict[Hashable, Estimate] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Estimate | None:
        """Return an estimate that was kept."""
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
            return self._found.get(key)

    def put(self, key: Hashable, estimate: Estimate) -> None:
        """Keep an estimate."""
        with self._lock:
            if key not in self._found:
                self._found[key] = estimate
                self.kept += _size(estimate)
            while self.kept > self.numbers:
                self.kept -= _size(self._found.popitem(last=False)[1])


def _size(estimate: Estimate) -> int:
    """Return the numbers an estimate keeps, and what its fields weigh besides."""
    return 3 * int(np.size(estimate.value)) + 2 * len(estimate.levels) + 100
