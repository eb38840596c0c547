"""The domain of a distribution: a bounded value, cut into bins."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from estimators.distribution import DistributionEstimate, number_text
from estimators.errors import nearest
from estimators.estimate import Array, Estimate, Floats, Integers
from estimators.limits import MOST_BINS
from estimators.metrics.domains import Domain, Keys, as_numbers

DEFAULT_BINS = 256
BIN_SCALES = ("linear", "log")
_EXPECTED_ENDS = "two finite numbers, the lower one first"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bins(Domain):
    """Numbers of which only the bin is reported; numbers outside the range are clipped to it.

    `range`: the least and the largest value; `bins`: the number of bins, 2 to 4096; 256 by default;
    `scale`: ``"linear"`` for bins of equal width, or ``"log"`` if each bin is wider than the one
    before by the same factor, which suits durations; the range must then begin above 0; `edges`:
    instead of these three, the edges of all bins, ascending; `quantiles`: the default quantiles of
    an answer; they do not affect reports.
    """

    names: ClassVar[str] = "quantiles"
    of_numbers: ClassVar[bool] = True

    range: Sequence[float] | None = None
    bins: int | None = None
    scale: str = "linear"
    edges: Sequence[float] | None = None
    quantiles: Sequence[float] = (0.5, 0.9, 0.99)
    unit = ends = (0.0, 1.0)

    def __post_init__(self) -> None:
        if self.edges is None:
            self._check_range()
        else:
            for key in ("range", "bins"):
                if getattr(self, key) is not None:
                    self.refuse(key, f"no {key} beside edges")
            if self.scale != "linear":
                self.refuse("scale", "no scale beside edges")
            edges = [float(edge) for edge in self.edges]
            count = len(edges) - 1
            if not all(map(math.isfinite, edges)) or (edges and math.isinf(edges[-1] - edges[0])):
                self.refuse("edges", "finite numbers")
            if not 2 <= count <= MOST_BINS or any(a >= b for a, b in pairwise(edges)):
                self.refuse("edges", f"3 to {MOST_BINS + 1} ascending numbers, each once")
        if not self.quantiles or len(set(self.quantiles)) != len(self.quantiles):
            self.refuse("quantiles", "one or more quantiles, each once")
        if any(not 0 < q < 1 for q in self.quantiles):
            self.refuse("quantiles", "numbers between 0 and 1, as in [0.5, 0.9, 0.99]")
        self.set_labels([number_text(q) for q in self.quantiles])

    def _check_range(self) -> None:
        if self.range is None or len(self.range) != 2:
            self.refuse("range", f"{_EXPECTED_ENDS}; or edges of bins")
        low, high = self.range
        if not (math.isfinite(high - low) and low < high):
            self.refuse("range", _EXPECTED_ENDS)
        if self.bins is not None and not 2 <= self.bins <= MOST_BINS:
            self.refuse("bins", f"a number of bins, 2 to {MOST_BINS}")
        if self.scale not in BIN_SCALES:
            self.refuse("scale", nearest(self.scale, BIN_SCALES))
        if self.scale == "log" and low <= 0:
            self.refuse("range", "a range that begins above 0, for scale = 'log'")
        if self.scale == "log" and math.isinf(high / low):
            self.refuse("range", "ends that are at most 1e308 times apart, for scale = 'log'")
        if (np.diff(self.limits) <= 0).any():
            self.refuse("bins", "bins that are wider than the rounding of their edges")

    @functools.cached_property
    def limits(self) -> Floats:
        """The edges of the bins, shape (bins + 1,)."""
        if self.edges is not None or self.range is None:
            return np.array(self.edges, dtype=np.float64)
        low, high = (float(end) for end in self.range)
        count = DEFAULT_BINS if self.bins is None else self.bins
        share = np.arange(count + 1) / count
        limits = (
            low + (high - low) * share if self.scale == "linear" else low * (high / low) ** share
        )
        limits[0], limits[-1] = low, high
        return limits

    def merged(self, count: int) -> Bins:
        """Return this domain with its bins merged into at most `count` groups of about equal size.

        >>> Bins(metric="m", range=(0, 10), bins=5).merged(2).limits
        array([ 0.,  4., 10.])
        """
        indices = merged_edge_indices(self.limits.size - 1, count)
        return Bins(metric=self.metric, edges=self.limits[indices].tolist())

    @property
    def parameters(self) -> dict[str, int]:
        """The number of bins."""
        return {"bins": self.limits.size - 1}

    @property
    def meaning(self) -> dict[str, Any]:
        """The bins, because a report is the index of a bin."""
        if self.edges is not None:
            return {"edges": self.limits.tolist()}
        steps = {} if self.scale == "linear" else {"scale": self.scale}
        ends = [float(self.limits[0]), float(self.limits[-1])]
        return {"range": ends, "bins": self.limits.size - 1, **steps}

    @property
    def opposite(self) -> tuple[float, float]:
        """The two ends of the range, the higher one first."""
        return float(self.limits[-1]), float(self.limits[0])

    def to_unit(self, values: Array) -> Integers:
        """Return the index of each number's bin."""
        numbers = as_numbers(values, self.metric)
        return np.searchsorted(self.limits[1:-1], numbers, side="right").astype(np.int64)

    def clipped(self, values: Array) -> Array:
        """Return numbers, clipped to the range."""
        return np.clip(values, self.limits[0], self.limits[-1])

    def from_unit(self, estimate: Estimate) -> Estimate:
        """Return a mechanism's estimate with the edges of the bins in the metric's unit."""
        if not isinstance(estimate, DistributionEstimate):
            return estimate
        return estimate.moved(self.limits)

    @property
    def _default_keys(self) -> Keys:
        return np.array(self.quantiles, dtype=np.float64)

    def select(self, labels: Sequence[str | float] | None) -> tuple[tuple[str, ...], Keys | None]:
        """Return the names of quantiles, and the quantiles.

        `labels`: the quantiles, as numbers or names; None for those of the definition. Raises
        ValueError unless the quantiles are distinct numbers between 0 and 1.
        """
        if labels is None:
            return self.labels, self._default_keys
        if isinstance(labels, str | float | int):
            raise ValueError(
                f"quantiles = {labels!r} of {self.metric!r}: expected a list, as in [0.95]"
            )
        quantiles = np.array([_quantile(label) for label in labels], dtype=np.float64)
        if (
            not ((quantiles > 0) & (quantiles < 1)).all()
            or np.unique(quantiles).size != quantiles.size
        ):
            raise ValueError(
                f"quantiles = {list(labels)} of {self.metric!r}: expected numbers between 0 and 1, "
                "each once"
            )
        return tuple(map(number_text, quantiles.tolist())), quantiles


def merged_edge_indices(bins: int, max_bins: int) -> Integers:
    """Return indices of the edges, both ends included, that form at most `max_bins` wider bins.

    >>> merged_edge_indices(5, 2), merged_edge_indices(2, 5)
    (array([0, 2, 5]), array([0, 1, 2]))
    """
    count = min(bins, max_bins)
    return np.arange(count + 1) * bins // count


def _quantile(label: str | float) -> float:
    """Return a quantile's name as a number; NaN if it does not name a quantile."""
    try:
        return float(label)
    except ValueError:
        return math.nan
