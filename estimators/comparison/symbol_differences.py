r"""A difference of two means from counts of symbols, for fixed numbers of reports.

The bets are those of :mod:`estimators.bounds.bets.symbol_limits`, with one tilt t for both arms: A,
and B mirrored. The gain W is the sum of both, and K = K_A(x) + K_B(y), where x + y is the
difference. R holds for the levels of both arms together, and tau^2 is the sum of both, as is its
interval. A difference delta is too small if W - K(x, delta - x) >= ln(R / p) for all x in an
interval for the mean of A with delta - x in one for that of B. Both intervals, and those for tau^2,
fail with a share of p. K is concave in x: a tangent bounds its largest value. It grows with delta,
as both means can be moved up within their intervals.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from estimators.bounds.bets.symbol_bets import HALVINGS, SymbolBets
from estimators.bounds.bets.symbol_limits import (
    BINS,
    Bet,
    at_all_times,
    cell_edges,
    cells_of,
    spread,
)
from estimators.bounds.inversion import ROUNDING, SAFETY
from estimators.bounds.laws.window_law import WindowLaw

SHARE = 0.005
"""Of the failure probability, for each of the eight statements beside the tail."""
BESIDE = 8 * SHARE
TURNS = 14  # of the search for the largest K; any is valid


class LowerSide(NamedTuple):
    """A rejected difference, and a bound on the tail's probability if the means are equal."""

    lower: float
    tail: float


def lower_side(a: SymbolBets, b: SymbolBets, log_p: float) -> LowerSide:
    """Return a sum of means that is rejected as too small, with all smaller ones, or -2.

    Parameters
    ----------
    a, b : SymbolBets
        Independent of each other; for a difference, B is mirrored.
    log_p : float
        ln p, the failure probability.
    """
    inner, log_left = log_p + math.log(SHARE), log_p + math.log1p(-BESIDE)
    boxes = [_box(arm, inner) for arm in (a, b)]
    around = [spread(arm, box, inner) for arm, box in zip((a, b), boxes, strict=True)]
    both = WindowLaw.of(
        a.law.shapes + b.law.shapes,
        np.concatenate([a.law.counts, b.law.counts]),
        np.concatenate([a.law.coefficient, b.law.coefficient]),
        free=a.law.free or b.law.free,
    )
    edges = cell_edges(both)
    steepest = min(a.steepest, b.steepest)
    lower, tail = 2.0, 0.0
    for cell in cells_of(edges, (around[0][0] + around[1][0], around[0][1] + around[1][1])):
        bet = Bet(both, float(edges[cell]), float(edges[cell + 1]), steepest, log_left)
        pair = _Pair(a, b, boxes, bet.tilt)
        log_r = _largest_remainder(bet, a, boxes)
        lower = min(lower, pair.lower_limit(SAFETY - log_left + log_r))
        tail = max(tail, math.exp(min(pair.largest(0.0) - pair.gain + log_r + SAFETY, 0.0)))
    return LowerSide(max(lower - 2 * ROUNDING, -2.0), tail)


def _box(bets: SymbolBets, log_p: float) -> tuple[float, float]:
    """Return an interval for the mean, each end of which fails with probability p."""
    total = float(bets.law.counts.sum())
    return at_all_times(bets, log_p, total), -at_all_times(bets.mirrored(), log_p, total)


def _largest_remainder(bet: Bet, a: SymbolBets, boxes: list[tuple[float, float]]) -> float:
    """Return ln R for all means in the boxes: the largest one of the bins that these meet."""
    if bet.law.free:
        return bet.log_remainder(-1.0, 1.0)
    edges = np.linspace(-1, 1, BINS + 1)
    met = [
        [
            (low, high)
            for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
            if low <= box[1] and high >= box[0]
        ]
        for box in boxes
    ]
    sizes = len(a.law.shapes), len(bet.law.shapes) - len(a.law.shapes)
    return max(
        bet.log_remainder(*(np.repeat(ends, sizes) for ends in zip(one, two, strict=True)))
        for one in met[0]
        for two in met[1]
    )


class _Pair:
    """The gain and K of both arms, at one tilt."""

    def __init__(
        self, a: SymbolBets, b: SymbolBets, boxes: list[tuple[float, float]], tilt: float
    ) -> None:
        self.arms, self.boxes, self.tilt = (a, b), boxes, np.array([tilt])
        self.gain = float((a.gains(self.tilt) + b.gains(self.tilt))[0])

    def largest(self, delta: float) -> float:
        """Return an upper bound on K(x, delta - x) for all x that the boxes allow."""
        (first, last), (least, most) = self.boxes
        low, high = max(first, delta - most), min(last, delta - least)
        if low > high:
            return -math.inf if delta < first + least else math.inf
        begin, end = low, high
        for _ in range(TURNS):
            x = (low + high) / 2
            low, high = (x, high) if self._slope(x, delta) > 0 else (low, x)
        x = (low + high) / 2
        slope = self._slope(x, delta)
        value = sum(
            float(arm.fair(self.tilt, mean)[0])
            for arm, mean in zip(self.arms, (x, delta - x), strict=True)
        )
        return value + max(slope * (end - x), slope * (begin - x))

    def _slope(self, x: float, delta: float) -> float:
        a, b = self.arms
        return a.fair_slope(float(self.tilt[0]), x) - b.fair_slope(float(self.tilt[0]), delta - x)

    def lower_limit(self, cost: float) -> float:
        """Return the largest delta that is found to be rejected, or the least of the boxes."""
        low, high = (self.boxes[0][end] + self.boxes[1][end] for end in (0, 1))
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            rejected = self.gain - self.largest(middle) >= cost
            low, high = (middle, high) if rejected else (low, middle)
        return low


def limits(a: SymbolBets, b: SymbolBets, beta: float) -> tuple[float, float, float]:
    """Return limits of theta_A - theta_B and a p-value, each failing with probability beta.

    Parameters
    ----------
    a, b : SymbolBets
        Independent of each other.
    beta : float
    """
    log_p = math.log(beta / 2)
    above = lower_side(a, b.mirrored(), log_p)
    below = lower_side(b, a.mirrored(), log_p)
    return above.lower, -below.lower, 2 * min(above.tail, below.tail) + BESIDE * beta
