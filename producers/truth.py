"""What a simulated population really reported: the truth that an estimate is compared with."""

from __future__ import annotations

import dataclasses
import math
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.metric import Metric


@dataclasses.dataclass(frozen=True)
class Truth:
    """The truth over everything reported so far.

    Attributes
    ----------
    reports : int
    value : float, or ndarray of float64 of shape (categories,)
        The mean after clipping to the metric's range, or the categories' frequencies; NaN as long
        as there are no reports.
    levels : ndarray of int64, shape (levels,)
        Reports at each of the metric's levels.
    """

    reports: int
    value: float | NDArray[np.float64]
    levels: NDArray[np.int64]


class RunningTruth:
    """Keeps the truth of one metric; may be read while another thread adds to it.

    Examples
    --------
    >>> metric = Metric(name="m", kind="mean", mechanism="laplace", range=(0, 10), levels=[1, 2])
    >>> truth = RunningTruth(metric)
    >>> truth.add(np.array([4.0, 99.0]), metric.level_of([1, 2]))
    >>> truth.now()
    Truth(reports=2, value=7.0, levels=array([1, 1]))
    """

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._lock = threading.Lock()
        self._levels = np.zeros(len(metric.levels), dtype=np.int64)
        self._counts = np.zeros(len(metric.category_names), dtype=np.int64)
        self._sum: list[float] = []  # a rounded sum and what the rounding lost

    def add(self, values: NDArray[Any], level: NDArray[Any]) -> None:
        """Add what was reported: values, or indices of categories, and their levels."""
        with self._lock:
            self._levels += np.bincount(level, minlength=self._levels.size)
            if self.metric.kind == "frequency":
                self._counts += np.bincount(values, minlength=self._counts.size)
            elif self.metric.range is not None:
                low, high = self.metric.range
                self._sum = _precise_sum([*self._sum, *np.clip(values, low, high).tolist()])

    def now(self) -> Truth:
        """Return the truth of everything added so far."""
        with self._lock:
            reports = int(self._levels.sum())
            value: float | NDArray[np.float64]
            if self.metric.kind == "frequency":
                value = self._counts / reports if reports else np.full(self._counts.size, np.nan)
            else:
                value = math.fsum(self._sum) / reports if reports else float("nan")
            return Truth(reports, value, self._levels.copy())


def _precise_sum(numbers: list[float]) -> list[float]:
    """Return the sum, rounded once, and what the rounding lost: about 100 bits in all."""
    total = math.fsum(numbers)
    rest = math.fsum([*numbers, -total])
    return [total, rest] if rest else [total]
