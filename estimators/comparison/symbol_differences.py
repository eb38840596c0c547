r"""A difference of two means from counts of symbols, for fixed numbers of reports.

The bets are those of :mod:`estimators.bounds.piecewise.limits`, with one tilt t for both arms: A,
and B mirrored. The gain W is the sum of both, and K = K_A(x) + K_B(y), where x + y is the
difference. R holds for the levels of both arms together, and tau^2 is the sum of both, as is its
interval. A difference delta is too small if W - K(x, delta - x) >= ln(R / p) for all x in an
interval for the mean of A with delta - x in one for that of B. Both intervals, and those for tau^2,
fail with a share of p. K is concave in x: a tangent bounds its largest value. It grows with delta,
as both means can be moved up within their intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from estimators.bounds.mixtures import RowIndices
from estimators.bounds.piecewise.bets import SymbolBets, log_expected_wealth
from estimators.bounds.piecewise.cells import (
    CellBet,
    FourierRemainders,
    cell_edges,
    cells_meeting,
    mean_bins_meeting,
)
from estimators.bounds.piecewise.law import PiecewiseLaw
from estimators.bounds.piecewise.limits import mean_interval, variance_interval
from estimators.bounds.tolerances import LOG_P_SAFETY, THETA_ROUNDING
from estimators.estimate import Floats
from estimators.interruption import checkpoint

SHARE = 0.005
"""Of the failure probability, for each of the eight statements beside the tail."""
BESIDE = 8 * SHARE
TURNS = 4  # of the search for the largest K; any is valid
SETTLED = 1e-10  # in theta
STEPS = 40  # of the search for a limit at most: it takes about eight
Box = tuple[float, float]


def limits(a: SymbolBets, b: SymbolBets, beta: float) -> tuple[float, float, float]:
    """Return limits of theta_A - theta_B and a p-value, each failing with probability beta.

    Parameters
    ----------
    a, b : SymbolBets
        Independent of each other.
    beta : float
    """
    log_p = math.log(beta / 2)
    inner, log_left = log_p + math.log(SHARE), log_p + math.log1p(-BESIDE)
    boxes = [mean_interval(arm, inner) for arm in (a, b)]
    around = [variance_interval(arm, box, inner) for arm, box in zip((a, b), boxes, strict=True)]
    both = PiecewiseLaw.of(
        a.law.shapes + b.law.shapes,
        np.concatenate([a.law.counts, b.law.counts]),
        np.concatenate([a.law.coefficient, b.law.coefficient]),
        free=a.law.free or b.law.free,
    )
    edges, max_tilt = cell_edges(both), min(a.max_tilt, b.max_tilt)
    ends = around[0][0] + around[1][0], around[0][1] + around[1][1]
    cells = [
        CellBet(both, float(edges[cell]), float(edges[cell + 1]), max_tilt, log_left)
        for cell in cells_meeting(edges, ends)
    ]
    fourier = FourierRemainders()
    above = _Pair((a, b.mirrored()), (boxes[0], _mirrored(boxes[1])), cells).lower_side(fourier)
    below = _Pair((a.mirrored(), b), (_mirrored(boxes[0]), boxes[1]), cells).lower_side(fourier)
    return above.lower, -below.lower, 2 * min(above.tail, below.tail) + BESIDE * beta


def _mirrored(box: Box) -> Box:
    return -box[1], -box[0]


class LowerSide(NamedTuple):
    """A rejected sum of means, and a bound on the tail's probability if the sum is 0."""

    lower: float
    tail: float


class _Pair:
    """The bets on the sum of two means: all cells have a tilt, a gain and K of both arms."""

    def __init__(
        self, arms: tuple[SymbolBets, SymbolBets], boxes: tuple[Box, Box], cells: Sequence[CellBet]
    ) -> None:
        self.arms, self.boxes, self.cells = arms, boxes, cells
        self.tilts = np.array([cell.tilt for cell in cells])
        self.gains = arms[0].gains(self.tilts) + arms[1].gains(self.tilts)
        bins = [mean_bins_meeting(*box) for box in boxes]
        sizes = [len(arm.law.shapes) for arm in arms]
        # every pair of a bin of the one mean and a bin of the other, shape (pairs, levels)
        low, high = (
            np.array([np.repeat([x, y], sizes) for x in bins[0][end] for y in bins[1][end]])
            for end in (0, 1)
        )
        self.own = [cell.log_berry_esseen(low, high) for cell in cells]

    def lower_side(self, fourier: FourierRemainders) -> LowerSide:
        """Return a sum of means that is rejected as too small, with all smaller ones, or -2.

        As in :func:`.cells.narrowest_common`, a cell that cannot decide has no Fourier integral.

        Parameters
        ----------
        fourier : Fourier
            Of the cells.
        """
        at_zero = self.largest(np.arange(len(self.cells)), np.zeros(len(self.cells)))[0]

        def found(chosen: list[int], remainders: list[float]) -> tuple[Floats, Floats]:
            log_r = np.array(
                [
                    self.cells[i].combine_remainders(self.own[i], x).max()
                    for i, x in zip(chosen, remainders, strict=True)
                ]
            )
            log_p = self.cells[0].log_p
            excess = at_zero[chosen] - self.gains[chosen] + log_r + LOG_P_SAFETY
            lower = self.lower_limit(np.array(chosen), LOG_P_SAFETY - log_p + log_r)
            return lower, np.exp(np.minimum(excess, 0.0))

        every = list(range(len(self.cells)))
        above, below = found(every, [0.0] * len(every))
        lower, tail = 2.0, 0.0
        for cell in np.argsort(above, kind="stable").tolist():
            if above[cell] < lower or below[cell] > tail:
                one, chance = found([cell], [fourier.remainder_of(self.cells[cell])])
                lower, tail = min(lower, float(one[0])), max(tail, float(chance[0]))
        return LowerSide(max(lower - 2 * THETA_ROUNDING, -2.0), tail)

    def largest(self, chosen: RowIndices, delta: Floats) -> tuple[Floats, Floats]:
        """Return an upper bound on K(x, delta - x) for all x that the boxes allow, and its slope.

        Parameters
        ----------
        chosen : ndarray of int, shape (k,)
            Cells.
        delta : ndarray of float64, shape (k,)

        Returns
        -------
        value, slope : ndarray of float64, shape (k,)
            Where no x is allowed, the value is infinite: -inf for a delta that is too small.
        """
        (first, last), (least, most) = self.boxes
        one, two, tilts = self.arms[0].law, self.arms[1].law, self.tilts[chosen]
        begin, end = np.maximum(first, delta - most), np.minimum(last, delta - least)
        x = (begin + end) / 2
        for turn in range(TURNS + 1):
            checkpoint()
            a, b = log_expected_wealth(one, tilts, x), log_expected_wealth(two, tilts, delta - x)
            rise = a.slope - b.slope
            if turn < TURNS:
                x = np.clip(x - rise / (a.curvature + b.curvature), begin, end)
        value = a.value + b.value + np.maximum(rise * (end - x), rise * (begin - x))
        # where the mean of B is at an end of its box, only that of A moves with delta
        fixed = ((rise > 0) & (end < last)) | ((rise < 0) & (begin > first))
        value = np.where(begin > end, np.where(delta < first + least, -np.inf, np.inf), value)
        return value, np.where(fixed, a.slope, b.slope)

    def lower_limit(self, chosen: RowIndices, cost: Floats) -> Floats:
        """Return the largest delta that is found to be rejected, or the least of the boxes.

        Parameters
        ----------
        chosen : ndarray of int, shape (k,)
            Cells.
        cost : ndarray of float64, shape (k,)
            What the gain has to exceed K by.

        Notes
        -----
        The largest K is concave in delta, so that Newton's method comes from below.
        """
        low, high = (np.full(cost.shape, self.boxes[0][end] + self.boxes[1][end]) for end in (0, 1))
        delta = np.clip(self.arms[0].mean + self.arms[1].mean, low, high)
        for _ in range(STEPS):
            value, slope = self.largest(chosen, delta)
            left = self.gains[chosen] - cost - value
            low = np.where(left >= 0, np.maximum(low, delta), low)
            high = np.where(left < 0, np.minimum(high, delta), high)
            moved = delta + left / slope
            moved = np.where((moved > low) & (moved < high), moved, (low + high) / 2)
            if (np.abs(moved - delta) <= SETTLED).all():
                break
            delta = moved
        return low
