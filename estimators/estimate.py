"""What is known about a metric: a value, its bounds, and what they rest on."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

BOUNDS = ("fixed",)
TARGETS = ("population", "sample")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of a statistic: the failure probability, the weights, the bound and its target.

    Parameters
    ----------
    beta : float
        Failure probability of the two-sided bound, in (0, 1).
    weights : str
        A policy of :data:`estimators.weights.POLICIES`.
    bound : str
        ``"fixed"``: holds for a number of reports that was fixed in advance, as in a closed window.
    target : str
        ``"population"``: bounds cover the distribution that the users come from;
        ``"sample"``: they cover the users' own realised values, so only the noise counts.

    Notes
    -----
    Population bounds take the level to be independent of the value, as every policy but
    ``"uniform"`` does: all levels then share one mean. With ``"uniform"`` each level may have a
    mean of its own, and what is covered is the mean of all reporting users' distributions. The
    target ``"sample"`` is the mean of the users' values weighted as the policy says: their plain
    mean for ``"uniform"``.
    """

    beta: float = 0.05
    weights: str = "optimal"
    bound: str = "fixed"
    target: str = "population"

    def __post_init__(self) -> None:
        """Refuse a question that has no answer."""
        from estimators.weights import POLICIES

        if not 0 < self.beta < 1:
            raise ValueError(f"beta = {self.beta!r}: expected a probability between 0 and 1")
        for key, known in (("weights", POLICIES), ("bound", BOUNDS), ("target", TARGETS)):
            if getattr(self, key) not in known:
                raise ValueError(f"{key} = {getattr(self, key)!r}: expected one of {sorted(known)}")

    def one_mean(self, levels: int) -> bool:
        """Return whether the values of all `levels` in use may be taken to have the same mean."""
        return self.target == "population" and (self.weights != "uniform" or levels == 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimate:
    """An estimate with its confidence bounds, in the metric's own unit.

    Attributes
    ----------
    value, lower, upper : float or ndarray of shape (categories,)
        The estimate and its two-sided bounds. Unclipped: an unbiased frequency can be slightly
        negative. NaN where no report has arrived; the bounds are then the whole domain.
    reports : int
        Number of reports that the estimate rests on.
    effective_reports : float
        How many reports without privacy noise would have the same worst-case variance.
    beta : float
        Failure probability of the bounds; simultaneous over categories.
    bound, target, policy : str
        As asked: see :class:`Question`; `policy` is the name of the weights.
    levels : tuple of float
        The metric's privacy levels, ascending.
    counts : ndarray of int64, shape (levels,)
        Reports per level.
    weights : ndarray of float64, shape (levels,)
        The share of each level in the estimate; sums to one unless there is no report.
    status : str
        ``not_ready``, ``too_few_reports``, ``provisional`` or ``final``; empty where no window is
        meant.
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
    status: str = ""

    def rescaled(self, offset: float, scale: float) -> Estimate:
        """Return the estimate of ``offset + scale * x``; `scale` is positive."""

        def to_unit(x: Any) -> Any:
            return offset + scale * x

        return dataclasses.replace(
            self, value=to_unit(self.value), lower=to_unit(self.lower), upper=to_unit(self.upper)
        )
