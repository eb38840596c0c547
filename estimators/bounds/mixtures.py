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
TILT_RATIO = 2.0  # ratio of neighbouring tilts: finer steps narrow a width by less than 2%
TILTS_PER_SIDE = 20  # steps up and down: they suit from one report to more than 10^12
LOG_TILT_SPREAD = 2.0  # the width of the law of the weights, in units of ln(lambda)
MAX_DEVIATION_STEPS = 30
LINE_NEWTON_STEPS = 5
_LOG_TILT_OFFSETS = np.arange(-TILTS_PER_SIDE, TILTS_PER_SIDE + 1) * np.log(TILT_RATIO)
MIXTURE_TILTS = CENTRAL_TILT * np.exp(_LOG_TILT_OFFSETS)
"""The tilts lambda of the mixture, on the scale of T."""
# like a Cauchy density in ln(lambda), which is good for all numbers of reports
LOG_MIXTURE_WEIGHTS = -np.log1p((_LOG_TILT_OFFSETS / LOG_TILT_SPREAD) ** 2)
LOG_MIXTURE_WEIGHTS -= np.log(np.exp(LOG_MIXTURE_WEIGHTS).sum())


# Theorem 11 of docs/proofs/inversion.md
class LinearMixture(NamedTuple):
    """A mixture whose cumulants are replaced by lines that touch them at `theta`.

    Each row has the terms for one sum; `value`, `slope`: of the lines, at `theta`.
    """

    theta: Floats
    tilts: Floats
    log_weights: Floats
    value: Floats
    slope: Floats

    def of_rows(self, rows: Indices) -> LinearMixture:
        """Return some rows of the mixture."""
        return LinearMixture(*(part[rows] for part in self))

    def plane(self, theta: Floats, observed: Floats, goal: float) -> tuple[Floats, Floats]:
        """Return the theta at which a plane that touches ln of the mixture has the value `goal`.

        It also returns how fast this theta rises with the sum. Up to this theta the mixture reaches
        `goal`, because it is convex in theta and the sum. The theta is not clipped to [-1, 1].
        `theta`, `observed`: the point at which the plane touches; `goal`: the value that the plane
        must have.
        """
        touched, share, fall = self._step(theta, self._terms_at_zero(observed), goal)
        return touched, np.vecdot(share, self.tilts) / fall

    def solve(self, observed: Floats, goal: float) -> Floats:
        """Return thetas in [-1, 1] at which ln of the mixture is at least `goal`; -1 if none."""
        theta, at_zero = self.theta, self._terms_at_zero(observed)
        for _ in range(LINE_NEWTON_STEPS):
            theta, _, _ = self._step(theta, at_zero, goal)
        return np.clip(theta, -1.0, 1.0)

    def _terms_at_zero(self, observed: Floats) -> Floats:
        """Return the logarithms of the mixture's terms at theta = 0, for a sum in each row."""
        lines = self.value - self.slope * self.theta[:, None]
        return np.asarray(self.log_weights + self.tilts * observed[:, None] - lines)

    def _step(self, theta: Floats, at_zero: Floats, goal: float) -> tuple[Floats, Floats, Floats]:
        """Return the next theta of Newton's method, each term's share, and how fast ln falls."""
        terms = at_zero - self.slope * theta[:, None]
        largest = terms.max(axis=1)
        # with hardly any reports all tilts are too large, and nothing is rejected
        terms -= np.where(np.isfinite(largest), largest, 0.0)[:, None]
        share = np.exp(terms, out=terms)
        mass = np.maximum(share.sum(axis=1), 1e-300)
        share /= mass[:, None]
        fall = np.maximum(np.vecdot(share, self.slope), 1e-300)
        return theta + (largest + np.log(mass) - goal) / fall, share, fall


def deviation_bound(
    cumulant: Callable[[Floats], Floats], max_tilt: float, log_p: float, total: float
) -> float:
    """Return a bound on |S - E S| that holds at all times with probability >= 1 - 2 p.

    The law of S - E S must not depend on the mean. The bound is infinite for very few reports.
    `cumulant`: upper bounds on ln E exp(+-tilt (S - E S)) for an array of tilts up to `max_tilt`;
    `max_tilt`: the largest tilt of `cumulant`; `log_p`: ln p, where p is the failure probability of
    each side; `total`: N, from :func:`estimators.weights.total_weight`.
    """
    tilts, log_weights = usable_tilts(max_tilt, total)
    if not tilts.size:
        return np.inf
    return float(deviation_bounds(cumulant(tilts)[None], tilts, log_weights, log_p)[0])


def usable_tilts(max_tilt: float, total: float) -> tuple[Floats, Floats]:
    """Return the mixture's tilts on the scale of S, up to `max_tilt`, and their log weights.

    `total`: from :func:`estimators.weights.total_weight`.
    """
    tilts = MIXTURE_TILTS * total
    allowed = tilts <= max_tilt
    return tilts[allowed], LOG_MIXTURE_WEIGHTS[allowed]


def deviation_bounds(value: Floats, tilts: Floats, log_weights: Floats, log_p: float) -> Floats:
    """Return bounds on the deviations of sums, as :func:`deviation_bound` does, shape (...).

    `value`, shape (..., tilts): bounds on the cumulants; `tilts`, `log_weights`: of a shape that
    broadcasts with it, as from :func:`usable_tilts`; not empty; a tilt with the weight 0 is not
    used; `log_p`: ln p, where p is the failure probability of each side.
    """
    goal = LOG_P_SAFETY - log_p
    # the best term alone gives a valid bound; from there Newton's method descends to the root
    bound = np.min((goal - log_weights + value) / tilts, axis=-1)
    for _ in range(MAX_DEVIATION_STEPS):
        checkpoint()
        terms = log_weights + tilts * bound[..., None] - value
        largest = terms.max(axis=-1)
        chance = np.exp(terms - largest[..., None])
        total = chance.sum(axis=-1)
        excess = largest + np.log(total) - goal
        if (excess <= LOG_P_TOLERANCE).all():
            break
        step = (excess - LOG_P_TOLERANCE / 2) * (total / np.vecdot(chance, tilts))
        bound = np.where(excess <= LOG_P_TOLERANCE, bound, bound - step)
    return np.asarray(bound * (1 + THETA_ROUNDING))
