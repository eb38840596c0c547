r"""Bets on the symbols that users report: a fair game whatever their data are.

A report of the symbol j of a level l stands for y_lj, and is unbiased: E Y = x. So for every t > 0

    E (1 + t s_l Y) = 1 + t s_l x,

whatever the law of the user's value is: no variance and no worst case. With the counts N_lj of
symbols, the gain W = sum N_lj ln(1 + t s_l y_lj) has

    E e^W = prod_i (1 + t s_l(i) m_i) <= e^K(theta),

where m_i are the users' means (or their values, if these are fixed) and sum s_l(i) m_i = theta.

**One mean**: K = sum n_l ln(1 + t s_l theta), exactly. **Free means**: ln(1 + t u) is concave in
u = s m, so by Jensen's inequality over all n users K = n ln(1 + t theta / n). Both grow with theta.
So a theta is too small if W - K(theta) is too large, and with it every smaller one. An upper limit
is a lower one of the mirrored reports: the numbers of symbols are antisymmetric.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from estimators.bounds.inversion import ROUNDING
from estimators.bounds.laws.window_law import WindowLaw
from estimators.estimate import Counts, Floats

BOLDEST = 0.95
"""Of what can be lost with one report. Bolder bets gain nothing for more than a few reports."""
HALVINGS = 50


@dataclasses.dataclass(frozen=True)
class SymbolBets:
    """The reports that bets are on.

    Parameters
    ----------
    law : WindowLaw
        With sum n_l s_l = 1.
    counts : ndarray of int64 or float64, shape (levels, symbols)
        N_lj: how often each symbol was reported; zero beyond the last symbol of a level.
    """

    law: WindowLaw
    counts: Counts | Floats

    def mirrored(self) -> SymbolBets:
        """Return the bets on -Y, whose mean is -theta."""
        counts = np.zeros_like(self.counts)
        for row, shape in enumerate(self.law.shapes):
            counts[row, : shape.symbols] = self.counts[row, : shape.symbols][::-1]
        return SymbolBets(self.law, counts)

    @functools.cached_property
    def steepest(self) -> float:
        """The largest t."""
        return BOLDEST / float((self.law.coefficient * self.law.symbols.largest).max())

    @functools.cached_property
    def mean(self) -> float:
        """S, the estimate of theta."""
        law = self.law
        return float(np.einsum("lj,lj,l->", self.counts, law.symbols.values, law.coefficient))

    def spread(self, theta: float) -> float:
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
        """Return W for each t.

        Parameters
        ----------
        tilts : ndarray of float64, shape (m,)
            At most `steepest`.
        """
        stakes = self.law.coefficient[:, None] * self.law.symbols.values
        each = np.log1p(tilts[:, None, None] * stakes)
        gained: Floats = np.einsum("mlj,lj->m", each, self.counts)
        return gained

    def fair(self, tilts: Floats, theta: float) -> Floats:
        """Return K for each t, shape (m,)."""
        law = self.law
        if law.free:
            users = float(law.counts.sum())
            shared: Floats = users * np.log1p(tilts * (theta / users))
            return shared
        common: Floats = np.log1p(tilts[:, None] * (law.coefficient * theta)) @ law.counts
        return common

    def fair_slope(self, tilt: float, theta: float) -> float:
        """Return the derivative of K by theta."""
        law = self.law
        if law.free:
            return tilt / (1 + tilt * theta / float(law.counts.sum()))
        stake = tilt * law.coefficient
        return float(law.counts @ (stake / (1 + stake * theta)))

    def lower_limit(self, tilts: Floats, gains: Floats) -> float:
        """Return a theta in [-1, 1] with sum exp(gains - K) >= 1 up to there, or -1.

        Parameters
        ----------
        tilts, gains : ndarray of float64, shape (m,)
            t, and W less what it has to exceed.
        """

        def rejected(theta: float) -> bool:
            terms = gains - self.fair(tilts, theta)
            most = float(terms.max(initial=-np.inf))
            return most >= 0 or (most > -50 and float(np.exp(terms).sum()) >= 1)

        low, high = -1.0, 1.0
        if not rejected(low):
            return low
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if rejected(middle) else (low, middle)
        return max(low - ROUNDING, -1.0)
