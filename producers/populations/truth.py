"""The true values of a simulated population, to compare with estimates."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.metrics.categories import OPEN_VOCABULARY
from estimators.metrics.metric import Metric
from estimators.shapes import Shape

MOST_FREQUENT = 10
"""The number of strings that are shown for an open vocabulary without a watch."""


@dataclasses.dataclass(frozen=True)
class Truth:
    """The truth about all reports so far.

    Attributes
    ----------
    reports : int
        The number of reports.
    value : float, or ndarray of float64 of shape (categories,) or (dimension,)
        The mean of the clipped values, their frequencies, their quantiles, or the smallest or
        largest of them; NaN without reports.
    levels : ndarray of int64, shape (levels,)
        The number of reports at each of the metric's levels.
    labels : tuple of str
        An estimate's labels; for an open vocabulary without a watch, the most frequent strings.
    """

    reports: int
    value: float | NDArray[np.float64]
    levels: NDArray[np.int64]
    labels: tuple[str, ...] = ()


def true_shares(metric: Metric, truth: Truth) -> dict[str, float]:
    """Return the true shares of A among B that the definition lists, by name; NaN if B is empty."""
    frequencies, shares = np.asarray(truth.value), {}
    for name in metric.share_names:
        _, keys = metric.domain.select([name])
        for key in () if keys is None else keys:
            part, rest = (frequencies[[*members]].sum() for members in key.sets[:2])
            shares[name] = float(part / (part + rest)) if part + rest > 0 else math.nan
    return shares


class RunningTruth:
    """Accumulates the truth of one metric; any thread may read it."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self._lock = threading.Lock()
        self._levels = np.zeros(len(metric.levels), dtype=np.int64)
        self._tally = TALLIES_BY_SHAPE[metric.shape](metric)

    def add(self, values: NDArray[Any], level: NDArray[Any]) -> None:
        """Add values that were reported, and the indices of their levels."""
        with self._lock:
            self._levels += np.bincount(level, minlength=self._levels.size)
            self._tally.add(values)

    def now(self) -> Truth:
        """Return the truth of all added reports."""
        with self._lock:
            reports = int(self._levels.sum())
            value, labels = self._tally.mean(reports)
            return Truth(reports, value, self._levels.copy(), labels)


class _Means:
    """The mean of numbers or coordinates; the sums are exact until they are rounded once."""

    def __init__(self, metric: Metric) -> None:
        self.metric = metric
        self.sums: list[list[float]] = [[] for _ in metric.labels or ("",)]

    def add(self, values: NDArray[Any]) -> None:
        columns = self.metric.domain.clipped(values).reshape(-1, len(self.sums)).T.tolist()
        self.sums = [
            _precise_sum([*partial_sums, *column])
            for partial_sums, column in zip(self.sums, columns, strict=True)
        ]

    def mean(self, reports: int) -> tuple[float | NDArray[np.float64], tuple[str, ...]]:
        totals = np.array([math.fsum(partial_sums) for partial_sums in self.sums])
        means = totals / (reports or math.nan)
        labels = self.metric.labels
        return (means if labels else float(means[0])), labels


class _Extreme:
    def __init__(self, metric: Metric) -> None:
        self.domain, self.extreme = metric.domain, math.nan
        self.pick = np.fmin if metric.kind == "minimum" else np.fmax

    def add(self, values: NDArray[Any]) -> None:
        self.extreme = float(self.pick.reduce(self.domain.clipped(values), initial=self.extreme))

    def mean(self, reports: int) -> tuple[float, tuple[str, ...]]:
        """Return the extreme value."""
        return self.extreme, ()


class _Quantiles:
    """The quantiles of all numbers, all of which are stored."""

    def __init__(self, metric: Metric) -> None:
        self.domain = metric.domain
        self.values: list[NDArray[np.float64]] = []

    def add(self, values: NDArray[Any]) -> None:
        self.values.append(self.domain.clipped(values))

    def mean(self, reports: int) -> tuple[NDArray[np.float64], tuple[str, ...]]:
        """Return the quantiles."""
        if not reports:
            return np.full(len(self.domain.labels), math.nan), self.domain.labels
        values = np.concatenate(self.values, dtype=np.float64)
        quantiles = [float(q) for q in self.domain.labels]
        return np.quantile(values, quantiles, method="inverted_cdf"), self.domain.labels


class _Indices:
    def __init__(self, metric: Metric) -> None:
        self.labels = metric.labels
        self.counts = np.zeros(len(self.labels), dtype=np.int64)

    def add(self, values: NDArray[Any]) -> None:
        self.counts += np.bincount(values, minlength=self.counts.size)

    def mean(self, reports: int) -> tuple[NDArray[np.float64], tuple[str, ...]]:
        return self.counts / (reports or math.nan), self.labels


class _Strings:
    def __init__(self, metric: Metric) -> None:
        self.labels, self.domain = metric.labels, metric.domain
        self.counts: Counter[str] = Counter()

    def add(self, values: NDArray[Any]) -> None:
        self.counts.update(self.domain.reported(values).tolist())

    def mean(self, reports: int) -> tuple[NDArray[np.float64], tuple[str, ...]]:
        labels = self.labels
        if not labels:
            labels = tuple(text for text, _ in self.counts.most_common(MOST_FREQUENT))
        return np.array([self.counts[text] for text in labels]) / (reports or math.nan), labels


_Tally = _Means | _Extreme | _Quantiles | _Indices | _Strings
"""Accumulates the values of a metric, and computes the truth about them."""


def _named_numbers(metric: Metric) -> _Tally:
    if metric.categories == OPEN_VOCABULARY:
        return _Strings(metric)
    return _Indices(metric) if metric.domain.names == "categories" else _Means(metric)


TALLIES_BY_SHAPE: dict[Shape, Callable[[Metric], _Tally]] = {
    Shape.NUMBER: _Means,
    Shape.NAMED_NUMBERS: _named_numbers,
    Shape.DISTRIBUTION: _Quantiles,
    Shape.SEARCH: _Extreme,
}


def _precise_sum(numbers: list[float]) -> list[float]:
    """Return a sum and its rounding error, as two numbers with about 100 bits together."""
    total = math.fsum(numbers)
    remainder = math.fsum([*numbers, -total])
    return [total, remainder] if remainder else [total]
