"""The law of a weighted sum of reports of which little but mean and range is known."""

from __future__ import annotations

import dataclasses

import numpy as np

from estimators.bounds.laws.law import Law, Moments
from estimators.estimate import Floats


@dataclasses.dataclass(frozen=True)
class BoundedLaw(Law):
    """Reports within [-1, 1], of mean a_l x, that need not be signs.

    Signs have the largest cumulant, variance and third moment of such reports.

    Parameters
    ----------
    least : ndarray of float64, shape (levels,)
        The least variance of one report of each level.
    """

    least: Floats = dataclasses.field(kw_only=True)

    @property
    def exact(self) -> bool:
        """Whether theta alone determines the law: never, because reports need not be signs."""
        return False

    def moments(self, theta: Floats) -> Moments:
        """Enclose the moments of S that the mean leaves possible."""
        found = super().moments(theta)
        known = float(self.counts @ (self.coefficient**2 * self.least))
        return found._replace(least_variance=np.full_like(found.least_variance, known))
