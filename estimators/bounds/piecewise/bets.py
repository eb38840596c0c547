"""Bets on symbols, a fair game for any data: Theorems 1 and 2 of docs/proofs/bets.md."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import numpy as np

from estimators.bounds.piecewise.law import PiecewiseLaw
from estimators.bounds.tolerances import THETA_ROUNDING
from estimators.estimate import Counts, Floats, Indices
from estimators.interruption import checkpoint

MAX_STAKE = 0.95
"""The largest share of the wealth that a report can lose; more helps only if reports are few."""
MAX_NEWTON_STEPS = 60  # the most steps of Newton's method, which takes about four
NEWTON_TOLERANCE = 1e-8
"""The largest last step, in theta: the error is about its square times a tilt, at most 1e-10."""


# Theorem 1 of docs/proofs/bets.md
@dataclasses.dataclass(frozen=True)
class SymbolBets:
    """Bets on the reports of one window, or of many windows in rows.

    `law`: with sum n_l s_l = 1, of shape (levels,) or (windows, levels); all results have its
    leading axes; `counts`, shape (..., levels, symbols): N_lj, how often each symbol was reported;
    zero beyond a level's last symbol.
    """

    law: PiecewiseLaw
    counts: Counts | Floats

    def mirrored(self) -> SymbolBets:
        """Return the bets on -Y, whose mean is -theta."""
        counts = np.zeros_like(self.counts)
        for row, shape in enumerate(self.law.shapes):
            symbols = slice(shape.symbols)
            counts[..., row, symbols] = self.counts[..., row, symbols][..., ::-1]
        return SymbolBets(self.law, counts)

    def rows(self, windows: Any) -> SymbolBets:
        """Return the bets that a numpy index of windows selects; None makes one window a row."""
        return SymbolBets(self.law.rows(windows), self.counts[windows])

    @functools.cached_property
    def max_tilt(self) -> Floats:
        """The largest tilt t of a bet."""
        largest: Floats = (self.law.coefficient * self.law.symbols.largest).max(axis=-1)
        return MAX_STAKE / largest

    @functools.cached_property
    def mean(self) -> Floats:
        """S, the estimate of theta."""
        return self._total(self.law.coefficient[..., None] * self.law.symbols.values)

    def observed_variance(self, theta: Floats | float) -> Floats:
        """Return the observed variance of S if its mean is theta, at least that of the noise."""
        squares = self._total((self.law.coefficient[..., None] * self.law.symbols.values) ** 2)
        return np.maximum(squares - self.square_weight * theta**2, self.law.least_variances)

    def _total(self, terms: Floats) -> Floats:
        """Return the sum over all reports of terms of shape (..., levels, symbols)."""
        total: Floats = np.vecdot(self.counts, terms).sum(axis=-1)
        return total

    @functools.cached_property
    def square_weight(self) -> Floats:
        """The factor of theta^2 in the variance: sum n s^2 with one mean, 1 / n with free means."""
        if self.law.free:
            users: Floats = self.law.counts.sum(axis=-1)
            return 1 / users
        weight: Floats = (self.law.counts * self.law.coefficient**2).sum(axis=-1)
        return weight

    @functools.cached_property
    def reported(self) -> tuple[Floats, Indices, Floats]:
        """The counts of these bets and of the mirrored ones, and the symbols that they are of.

        Counts have the shape (2, ..., kinds); the levels and the numbers y of the symbols have the
        shape (kinds,). Symbols that nobody reported are left out.
        """
        counts = np.stack([self.counts, self.mirrored().counts], dtype=np.float64)
        counts = counts.reshape(*counts.shape[:-2], -1)
        kinds = np.flatnonzero(counts.any(axis=tuple(range(counts.ndim - 1))))
        levels, values = kinds // self.counts.shape[-1], self.law.symbols.values.ravel()[kinds]
        return counts[..., kinds], levels, values

    def gains(self, tilts: Floats) -> Floats:
        """Return W, the log wealth, for each of m tilts up to `max_tilt`, shape (..., m)."""
        gains: Floats = self.gains_of_both_sides(tilts)[0]
        return gains

    def gains_of_both_sides(self, tilts: Floats, windows: Any = ...) -> Floats:
        """Return W for each tilt, of these bets and of the mirrored ones, shape (2, ..., m).

        `windows`: a numpy index of the windows that they are computed for.
        """
        counts, levels, values = self.reported
        stakes = tilts[..., None] * (self.law.coefficient[windows][..., None, levels] * values)
        gains: Floats = np.vecdot(np.log1p(stakes), counts[:, windows][..., None, :])
        return gains

    def lower_limits(self, tilts: Floats, cost: Floats) -> Floats:
        """Return the lower limits of theta and of -theta, in [-1, 1], shape (2, ...).

        Up to a limit, sum exp(W - cost - K) is at least 1, unless the limit is -1. `tilts`, `cost`,
        shape (..., m): the tilts of the bets, and by how much the W of each has to exceed K; the
        cost is infinite for a tilt that is not used.
        """
        usable = np.minimum(tilts, self.max_tilt[..., None])
        gains = self.gains_of_both_sides(usable) - cost
        return solve_lower_limits(self.law, usable, gains)


class ExpectedWealth(NamedTuple):
    """K, its slope in theta, the slope for one report of each level, and the numbers of reports."""

    value: Floats
    slope: Floats
    rate: Floats
    counts: Floats

    @property
    def curvature(self) -> Floats:
        """The second derivative of K by theta."""
        curvature: Floats = -np.vecdot(self.rate**2, self.counts)
        return curvature


def log_expected_wealth(law: PiecewiseLaw, tilts: Floats, theta: Floats | float) -> ExpectedWealth:
    """Return K and its derivatives, for tilts and means that broadcast to the shape (..., m).

    `law`: the law of the reports, of shape (..., levels); `tilts`: the tilts of the bets; `theta`:
    the means of S.
    """
    counts, coefficient = law.counts[..., None, :], law.coefficient[..., None, :]
    if law.free:
        counts = counts.sum(axis=-1, keepdims=True)
        coefficient = 1 / counts
    stakes = tilts[..., None] * coefficient
    grown = stakes * np.asarray(theta)[..., None]
    rate = stakes / (1 + grown)
    value, slope = np.vecdot(np.log1p(grown), counts), np.vecdot(rate, counts)
    return ExpectedWealth(value, slope, rate, counts)


# Theorem 2 of docs/proofs/bets.md
def solve_lower_limits(law: PiecewiseLaw, tilts: Floats, gains: Floats) -> Floats:
    """Return thetas up to which sum exp(gains - K) is at least 1, shape (...).

    They are in [-1, 1], and -1 if there is no such theta. `law`: the law of the reports; `tilts`,
    shape (..., m): the tilts of the bets; `gains`, shape (..., m): W minus the cost that it must
    exceed.
    """
    theta = np.clip((gains / tilts).max(axis=-1), -1.0, 1.0)  # because K is at most t theta
    for _ in range(MAX_NEWTON_STEPS):
        checkpoint()
        value, slope, *_ = log_expected_wealth(law, tilts, theta[..., None])
        excess = gains - value
        if gains.shape[-1] > 1:
            largest = np.maximum(excess.max(axis=-1, keepdims=True), -1e300)
            share = np.exp(excess - largest)
            total = np.maximum(share.sum(axis=-1, keepdims=True), 1e-300)
            excess, slope = largest + np.log(total), np.vecdot(share, slope)[..., None] / total
        next_theta = np.clip(theta + (excess / np.maximum(slope, 1e-300))[..., 0], -1.0, 1.0)
        converged = np.abs(next_theta - theta) <= NEWTON_TOLERANCE
        theta = next_theta
        if converged.all():
            break
    limits: Floats = np.maximum(theta - THETA_ROUNDING, -1.0)
    return limits
