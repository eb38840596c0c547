"""An estimate of a metric: its value, its bounds, and their basis."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
"""An array of any type."""
Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Integers = NDArray[np.int64]
AnyIntegers = NDArray[np.integer[Any]]
Indices = NDArray[np.intp]
Bools = NDArray[np.bool_]
Limits = tuple[Floats, Floats]  # lower and upper


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """An estimate with its confidence bounds, in the metric's own unit.

    Attributes
    ----------
    value, lower, upper : float or ndarray of shape (categories,) or (dimension,)
        The estimate and its two-sided bounds. The value is not clipped: an unbiased frequency can
        be slightly negative, or outside its bounds if reports are few; `shown` is within them.
        Without reports the value is NaN, and the bounds are the whole domain.
    reports : int
        Number of reports in the estimate.
    effective_reports : float
        How many reports without privacy noise would have the same worst-case variance.
    beta : float
        Failure probability of the bounds; simultaneous over categories or coordinates unless
        pointwise bounds were requested.
    bound, target, policy : str
        The bound and the target as in :class:`estimators.question.Question`, and the name of the
        weights.
    levels : tuple of float
        The metric's privacy levels, ascending.
    counts : ndarray of int64, shape (levels,)
        Reports per level.
    weights : ndarray of float64, shape (levels,)
        The share of each level in the estimate; sums to one unless there are no reports.
    heterogeneity : float or None
        p-value of the hypothesis that the values are independent of the privacy level (Cochran's
        Q); None if fewer than two levels have enough reports. If it is tiny, values depend on the
        level: weights other than ``uniform`` then estimate the mean of a different population.
    radius : float, optional
        For a vector: the estimate is within this l2 distance of the mean with probability at least
        1 - beta, separately from `lower` and `upper`. NaN without reports.
    privacy : ndarray of float64, shape (levels,), optional
        For a release: the privacy loss of one report of each level, at most the level's epsilon;
        zero for a level without reports. A person with m reports loses up to m times as much: see
        docs/trusted.md.
    saturation : float, optional
        For a release: levels above this epsilon do not improve it; their users lose no more than
        this.
    labels : tuple of str
        The names of the numbers: categories, or coordinates; empty if there is only one number.
    status : str
        ``not_ready``, ``too_few_reports``, ``provisional``, ``final`` or ``expired``; empty without
        a window.
    covers : str
        What the bounds cover together with probability at least 1 - beta: ``this window``,
        ``720 windows``, ``all times from ...``; empty without a window.
    chosen_among : int
        The number of answers that share `beta`, because the reader may have looked at all of them
        and then chosen this one.
    weights_fixed : bool
        Whether the caller stated that weights and target were chosen before seeing the reports.
    basis : ndarray of int64, shape (levels,), or None
        The reports per level that the numbers are computed from, if these are not all reports.
    denominators : ndarray of float64, shape (categories,), or None
        For shares among, such as ``"A / B"``: the estimated share of users in B; 1 for a category.
    shares : Estimate or None
        In a reader's answer for all categories: the estimates of the shares among that the
        definition names. Their bounds share a second beta.
    """

    value: float | Floats
    lower: float | Floats
    upper: float | Floats
    reports: int
    effective_reports: float
    beta: float
    bound: str
    target: str
    policy: str
    levels: tuple[float, ...]
    counts: Counts
    weights: Floats
    heterogeneity: float | None = None
    radius: float | None = None
    privacy: Floats | None = None
    saturation: float | None = None
    labels: tuple[str, ...] = ()
    status: str = ""
    covers: str = ""
    chosen_among: int = 1
    weights_fixed: bool = False
    basis: Counts | None = None
    denominators: Floats | None = None
    shares: Estimate | None = None

    @property
    def shown(self) -> float | Floats:
        """The value, clipped to its bounds, for display.

        If the bounds contain the truth, the clipped value is at least as near to the truth as
        `value`. But it is biased: use `value` for sums and means of several estimates.

        >>> from estimators import define
        >>> metric = define(name="m", kind="frequency", mechanism="grr", categories=3, levels=[1])
        >>> estimate = metric.estimate(np.array([20, 11, 9, 0]))
        >>> estimate.value.round(3), estimate.shown.round(3)
        (array([ 0.928,  0.654, -0.582]), array([0.928, 0.654, 0.   ]))
        """
        if not np.ndim(self.value):
            return float(np.clip(self.value, self.lower, self.upper))
        return np.clip(self.value, self.lower, self.upper)

    def unknown(self, status: str) -> Self:
        """Return the estimate with this `status`, and NaN in place of its value and all bounds."""

        def nan(x: Any) -> Any:
            return float("nan") if not np.ndim(x) else np.full(np.shape(x), np.nan)

        radius = None if self.radius is None else nan(self.radius)
        return dataclasses.replace(self._mapped(nan), radius=radius, status=status)

    def rescaled(self, offset: float, scale: float) -> Estimate:
        """Return the estimate for values ``offset + scale * x`` in place of x; `scale` > 0."""
        radius = None if self.radius is None else scale * self.radius
        return dataclasses.replace(self._mapped(lambda x: offset + scale * x), radius=radius)

    def _mapped(self, change: Callable[[Any], Any]) -> Self:
        """Return the estimate with `change` applied to its value and its bounds."""
        changed = {name: change(getattr(self, name)) for name in ("value", "lower", "upper")}
        return dataclasses.replace(self, **changed)

    @property
    def numbers(self) -> Estimate:
        """The estimate of the numbers that are displayed: for a distribution, its quantiles."""
        return self

    def largest(self, size: int) -> Indices:
        """Return the indices of the `size` largest numbers; of coordinates, by absolute value."""
        value = np.asarray(self.value)
        order = np.argsort(-(value if self.radius is None else np.abs(value)), kind="stable")
        return order[: max(0, size)]

    def top(self, size: int) -> Estimate:
        """Return the estimate of the `size` numbers that :meth:`largest` selects, largest first.

        The bounds remain those of all numbers; simultaneous bounds also hold for the largest ones.

        >>> from estimators import SeededBits, define
        >>> metric = define(name="m", kind="frequency", mechanism="grr", categories=5, levels=[3])
        >>> level = np.zeros(1000, dtype=int)
        >>> reports = metric.randomize([3] * 600 + [1] * 400, level, SeededBits(1))
        >>> statistic = metric.zero()
        >>> metric.accumulate(statistic, level, reports)
        >>> metric.estimate(statistic).top(2).labels
        ('3', '1')
        """
        if not np.ndim(self.value):
            return self
        largest = self.largest(size)
        return dataclasses.replace(
            self._mapped(lambda numbers: np.asarray(numbers)[largest]),
            labels=tuple(self.labels[index] for index in largest.tolist()),
            denominators=None if self.denominators is None else self.denominators[largest],
        )
