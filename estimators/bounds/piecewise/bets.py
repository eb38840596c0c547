"""Bets on symbols, a fair game for any data: Theorems 1 and 2 of docs/proofs/bets.md."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np

from estimators.bounds.piecewise.law import PiecewiseLaw
from estimators.bounds.tolerances import THETA_ROUNDING
from estimators.estimate import Counts, Floats
from estimators.interruption import checkpoint

MAX_STAKE = 0.95
"""Of what can be lost with one report. Bolder bets gain nothing for more than a few reports."""
MAX_NEWTON_STEPS = 60  # of Newton's method at most: it takes about five


# Theorem 1 of docs/proofs/bets.md
@dataclasses.dataclass(frozen=True)
class SymbolBets:
    """The reports that bets are on.

    Parameters
    ----------
    law : PiecewiseLaw
        With sum n_l s_l = 1.
    counts : ndarray of int64 or float64, shape (levels, symbols)
        N_lj: how often each symbol was reported; zero beyond the last symbol of a level.
    """

    law: PiecewiseLaw
    counts: Counts | Floats

    def mirrored(self) -> SymbolBets:
        """Return the bets on -Y, whose mean is -theta."""
        counts = np.zeros_like(self.counts)
        for row, shape in enumerate(self.law.shapes):
            counts[row, : shape.symbols] = self.counts[row, : shape.symbols][::-1]
        return SymbolBets(self.law, counts)

    @functools.cached_property
    def max_tilt(self) -> float:
        """The largest t."""
        return MAX_STAKE / float((self.law.coefficient * self.law.symbols.largest).max())

    @functools.cached_property
    def mean(self) -> float:
        """S, the estimate of theta."""
        law = self.law
        return float(np.einsum("lj,lj,l->", self.counts, law.symbols.values, law.coefficient))

    def observed_variance(self, theta: float) -> float:
        """Return the observed variance of S if its mean is theta, at least that of the noise."""
        law, symbols = self.law, self.law.symbols
        squares = np.einsum("lj,lj,l->", self.counts, symbols.values**2, law.coefficient**2)
        return max(float(squares) - self.square_weight * theta**2, law.least_variance)

    @functools.cached_property
    def square_weight(self) -> float:
        """What K accounts for of theta^2: sum n s^2 with one mean, 1 / n with free means."""
        if self.law.free:
            return 1 / float(self.law.counts.sum())
        return float(self.law.counts @ self.law.coefficient**2)

    def gains(self, tilts: Floats) -> Floats:
        """Return W for each tilt, at most `max_tilt`, shape (m,)."""
        return self._log_growth(tilts) @ self.counts.ravel()

    def gains_of_both_sides(self, tilts: Floats) -> Floats:
        """Return W for each tilt, of these bets and of the mirrored ones, shape (2, m)."""
        grown = self._log_growth(tilts)
        return np.stack([grown @ side.counts.ravel() for side in (self, self.mirrored())])

    def _log_growth(self, tilts: Floats) -> Floats:
        """Return ln(1 + t s y), shape (m, levels * symbols)."""
        stakes = self.law.coefficient[:, None] * self.law.symbols.values
        log_growth: Floats = np.log1p(tilts[:, None] * stakes.ravel())
        return log_growth

    def fair(self, tilts: Floats, theta: Floats | float) -> Floats:
        """Return K for each t and theta, which broadcast."""
        return log_expected_wealth(self.law, tilts, theta).value

    def lower_limit(self, tilts: Floats, gains: Floats) -> float:
        """Return a theta in [-1, 1] with sum exp(gains - K) >= 1 up to there, or -1.

        The gains, one a tilt, are W less what it has to exceed.
        """
        return float(solve_lower_limits(self.law, tilts, gains[None])[0])


class ExpectedWealth(NamedTuple):
    """K, and its first two derivatives by theta."""

    value: Floats
    slope: Floats
    curvature: Floats


def log_expected_wealth(law: PiecewiseLaw, tilts: Floats, theta: Floats | float) -> ExpectedWealth:
    """Return K and its derivatives, for tilts and means that broadcast.

    Parameters
    ----------
    law : PiecewiseLaw
    tilts : ndarray of float64
    theta : float or ndarray of float64
    """
    if law.free:
        users = float(law.counts.sum())
        grown = tilts * (theta / users)
        slope = tilts / (1 + grown)
        return ExpectedWealth(users * np.log1p(grown), slope, -(slope**2) / users)
    stakes = tilts[..., None] * law.coefficient
    grown = stakes * np.asarray(theta)[..., None]
    rate = stakes / (1 + grown)
    return ExpectedWealth(np.log1p(grown) @ law.counts, rate @ law.counts, -(rate**2) @ law.counts)


# Theorem 2 of docs/proofs/bets.md
def solve_lower_limits(law: PiecewiseLaw, tilts: Floats, gains: Floats) -> Floats:
    """Return thetas in [-1, 1] with sum exp(gains - K) >= 1 up to there, or -1, shape (k,).

    Parameters
    ----------
    law : PiecewiseLaw
    tilts : ndarray of float64, shape (m,) or (k, m)
    gains : ndarray of float64, shape (k, m)
        W less what it has to exceed.
    """
    if not gains.size:
        return np.full(len(gains), -1.0)
    theta = np.zeros(len(gains))
    for _ in range(MAX_NEWTON_STEPS):
        checkpoint()
        value, slope, _ = log_expected_wealth(law, tilts, theta[:, None])
        terms = gains - value
        largest = terms.max(axis=1)
        share = np.exp(terms - largest[:, None])
        total = share.sum(axis=1)
        descent = (share * slope).sum(axis=1) / total
        next_theta = np.clip(theta + (largest + np.log(total)) / descent, -1.0, 1.0)
        converged = np.abs(next_theta - theta) <= THETA_ROUNDING / 8
        theta = next_theta
        if converged.all():
            break
    limits: Floats = np.maximum(theta - THETA_ROUNDING, -1.0)
    return limits
