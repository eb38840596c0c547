"""The sums of a pane as a weighted mean with a law, for one number of a metric."""

from __future__ import annotations

import dataclasses

import numpy as np

from estimators.bounds import Law
from estimators.comparison.arms import arm_of
from estimators.estimate import Counts, Floats
from estimators.metrics.local import LocalMetric
from estimators.question import Question
from estimators.weights import level_weights

LEAST_SHARE = 0.01
"""A level whose share of the baseline's weights is smaller has none: a pane may well lack it."""


@dataclasses.dataclass(frozen=True)
class PaneMean:
    """The weighted mean of a pane, on the scale of signs: S, with mean theta in [-1, 1].

    Parameters
    ----------
    mean : float
        S.
    law : Law
    precision : float
        V: the inverse of the largest variance that the signs of S can have.
    """

    mean: float
    law: Law
    precision: float

    @classmethod
    def of(
        cls, metric: LocalMetric, statistic: Counts, shares: Floats | None, category: int | None
    ) -> PaneMean | None:
        """Return the mean of a statistic; None if it lacks reports at a level that has a share.

        Parameters
        ----------
        metric : LocalMetric
        statistic : ndarray of int64
        shares : ndarray of float64, shape (levels,), optional
            The share of each level; every level may then have a mean of its own. None: optimal
            shares of the pane, and all levels have one mean.
        category : int or None
            Which of the named numbers.

        Raises
        ------
        TypeError
            If its mechanism has no law: see :func:`estimators.alarms.check_watchable`.
        """
        counts = metric.counts(statistic)
        if not counts.any() or (shares is not None and not counts[shares > 0].all()):
            return None
        asked = None if category is None else np.array([category])
        weights = "optimal" if shares is None else "uniform"
        arm = arm_of(metric, statistic, Question(weights=weights, asked=asked), shares)
        law = arm.law
        if not isinstance(law, Law):
            raise TypeError(f"metric {metric.name!r} has no law: see check_watchable")
        return cls(float(arm.observed[0]), law, 1 / law.proxy)

    def log_e_value(self, theta: Floats, tilt: Floats, sign: int) -> Floats:
        """Return ln of the e-value against a mean: sign tilt S - K(theta; sign tilt).

        K bounds the cumulant of S from above at every mean up to theta (for the sign -1: down to
        theta), so the e-value's expectation is at most 1 there.

        Parameters
        ----------
        theta : ndarray of float64, shape (k,)
        tilt : ndarray of float64, shape (k,)
            Above 0.
        sign : int
            1 for evidence that the mean is above theta, -1 for below.
        """
        law = self.law if sign > 0 else self.law.mirrored()
        steep = np.minimum(tilt, law.steepest)
        value, _ = law.tangent(np.clip(sign * theta, -1.0, 1.0), steep)
        result: Floats = steep * (sign * self.mean) - value
        return result


def baseline_shares(metric: LocalMetric, baseline: Counts) -> Floats:
    """Return the shares of the levels that all panes have: the optimal ones of the baseline.

    Parameters
    ----------
    metric : LocalMetric
    baseline : ndarray of int64
        Its sums, with a report at least.

    Returns
    -------
    ndarray of float64, shape (levels,)
        Sums to one; none below :data:`LEAST_SHARE` but zero.
    """
    shares = level_weights("optimal", metric.counts(baseline), metric.randomizer.facts)
    kept = np.where(shares >= LEAST_SHARE, shares, 0.0)
    result: Floats = kept / kept.sum()
    return result
