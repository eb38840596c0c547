"""The mixture over tilts for bounds at all times at once: Theorem 9 of docs/proofs/inversion.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from estimators.bounds.tolerances import LOG_P_SAFETY, LOG_P_TOLERANCE, THETA_ROUNDING
from estimators.estimate import Floats, Indices
from estimators.interruption import checkpoint

CENTRAL_TILT = 2.0**-6
"""The tilt with the largest weight: the best one for some 40,000 reports of variance 1."""
TILT_RATIO = 2.0  # between neighbours: with finer steps, no width gains more than 2%
TILTS_PER_SIDE = 20  # steps either way: from below one report to beyond 10^12
LOG_TILT_SPREAD = 2.0  # of the weights, in units of ln(lambda)
MAX_DEVIATION_STEPS = 30
LINE_NEWTON_STEPS = 5
_LOG_TILT_OFFSETS = np.arange(-TILTS_PER_SIDE, TILTS_PER_SIDE + 1) * np.log(TILT_RATIO)
MIXTURE_TILTS = CENTRAL_TILT * np.exp(_LOG_TILT_OFFSETS)
"""lambda, on the scale of T."""
# like a Cauchy density in ln(lambda): not tuned for one number of reports at others' cost
LOG_MIXTURE_WEIGHTS = -np.log1p((_LOG_TILT_OFFSETS / LOG_TILT_SPREAD) ** 2)
LOG_MIXTURE_WEIGHTS -= np.log(np.exp(LOG_MIXTURE_WEIGHTS).sum())


# Theorem 11 of docs/proofs/inversion.md
class LinearMixture(NamedTuple):
    """A mixture whose cumulants are lines: rows of terms, and `theta`, where the lines touch."""

    theta: Floats
    tilts: Floats
    log_weights: Floats
    value: Floats
    slope: Floats

    def of_rows(self, rows: Indices) -> LinearMixture:
        """Return the lines of these rows."""
        return LinearMixture(*(part[rows] for part in self))

    def log_mixture(self, theta: Floats, observed: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the logarithm of the mixture, its fall with theta, and its rise with the sum.

        Each has the shape (rows,).
        """
        moved = self.value + self.slope * (theta - self.theta)[:, None]
        terms = self.log_weights + self.tilts * observed[:, None] - moved
        largest = terms.max(axis=1)
        # all terms are too steep only if there is hardly a report: nothing is rejected then
        shifted = np.exp(terms - np.where(np.isfinite(largest), largest, 0.0)[:, None])
        mass = np.maximum(shifted.sum(axis=1), 1e-300)
        fall, rise = (np.vecdot(shifted, x) / mass for x in (self.slope, self.tilts))
        return largest + np.log(mass), np.maximum(fall, 1e-300), rise

    def plane(self, theta: Floats, observed: Floats, goal: float) -> tuple[Floats, Floats]:
        """Return where the plane that touches at theta and a sum has the value `goal`.

        It is a theta for this sum, and how fast it rises with the sum. Up to there, not clipped to
        [-1, 1], the mixture has reached `goal`, as it is convex in both.

        Parameters
        ----------
        theta, observed : ndarray of float64
            Where the plane touches.
        goal : float
        """
        value, fall, rise = self.log_mixture(theta, observed)
        return theta + (value - goal) / fall, rise / fall

    def solve(self, observed: Floats, goal: float) -> Floats:
        """Return thetas in [-1, 1] at which the mixture has reached `goal`, or -1."""
        theta = self.theta
        for _ in range(LINE_NEWTON_STEPS):
            theta, _ = self.plane(theta, observed, goal)
        return np.clip(theta, -1.0, 1.0)


def deviation_bound(
    cumulant: Callable[[Floats], Floats], max_tilt: float, log_p: float, total: float
) -> float:
    """Bound |S - E S| at all times with probability 1 - 2 p, for noise independent of the mean.

    The bound is infinite for very few reports.

    Parameters
    ----------
    cumulant : callable
        Bounds ln E exp(tilt (S - E S)), for an array of tilts up to `max_tilt`.
    max_tilt : float
    log_p : float
    total : float
        N, from :func:`estimators.weights.total_weight`.
    """
    tilts, log_weights = usable_tilts(max_tilt, total)
    if not tilts.size:
        return np.inf
    return float(deviation_bounds(cumulant(tilts)[None], tilts, log_weights, log_p)[0])


def usable_tilts(max_tilt: float, total: float) -> tuple[Floats, Floats]:
    """Return the mixture's tilts on the scale of S, up to `max_tilt`, and their log weights."""
    tilts = MIXTURE_TILTS * total
    allowed = tilts <= max_tilt
    return tilts[allowed], LOG_MIXTURE_WEIGHTS[allowed]


def deviation_bounds(value: Floats, tilts: Floats, log_weights: Floats, log_p: float) -> Floats:
    """Return :func:`deviation_bound` of k sums, shape (k,).

    Parameters
    ----------
    value : ndarray of float64, shape (k, tilts)
        Bounds on the cumulants.
    tilts, log_weights : ndarray of float64, shape (tilts,)
        From :func:`usable_tilts`; not empty.
    log_p : float
    """
    goal = LOG_P_SAFETY - log_p
    # the best single term is enough; from there Newton's method falls to the root of a convex sum
    bound = np.min((goal - log_weights + value) / tilts, axis=1)
    for _ in range(MAX_DEVIATION_STEPS):
        checkpoint()
        terms = log_weights + tilts * bound[:, None] - value
        largest = terms.max(axis=1)
        chance = np.exp(terms - largest[:, None])
        total = chance.sum(axis=1)
        excess = largest + np.log(total) - goal
        if (excess <= LOG_P_TOLERANCE).all():
            break
        step = (excess - LOG_P_TOLERANCE / 2) * (total / (chance @ tilts))
        bound = np.where(excess <= LOG_P_TOLERANCE, bound, bound - step)
    deviation_bounds: Floats = bound * (1 + THETA_ROUNDING)
    return deviation_bounds
