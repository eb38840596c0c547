r"""A difference of two means from counts of symbols, for fixed numbers of reports.

Theorem 5 of docs/proofs/comparisons.md, with the bets of
:mod:`estimators.bounds.piecewise.limits`.
"""

from __future__ import annotations

import math

import numpy as np

from estimators.bounds.piecewise.bets import SymbolBets, log_expected_wealth
from estimators.bounds.piecewise.cells import CellBets, FourierRemainders, mean_bins_meeting
from estimators.bounds.piecewise.law import PiecewiseLaw
from estimators.bounds.piecewise.limits import mean_interval, variance_interval
from estimators.bounds.tolerances import LOG_P_SAFETY, THETA_ROUNDING
from estimators.estimate import Floats, Indices
from estimators.interruption import checkpoint

STATEMENT_SHARE = 0.005
"""The part of the failure probability for each of eight statements that the tail's bound needs."""
STATEMENTS_SHARE = 8 * STATEMENT_SHARE
MAX_MEAN_STEPS = 4  # steps of the search for the largest K; any number gives a valid bound
MEAN_TOLERANCE = 1e-10  # the largest last step, in theta
MAX_LIMIT_STEPS = 40  # the most steps of the search for a limit, which takes about eight
Box = tuple[float, float]


def limits(a: SymbolBets, b: SymbolBets, beta: float) -> tuple[float, float, float]:
    """Return limits of theta_A - theta_B, and a p-value of the hypothesis that it is 0.

    `a`, `b`: the bets of independent arms; `beta`: the largest probability that the limits are
    wrong.
    """
    log_p = math.log(beta / 2)
    inner, log_left = log_p + math.log(STATEMENT_SHARE), log_p + math.log1p(-STATEMENTS_SHARE)
    rows = [arm.rows(None) for arm in (a, b)]
    boxes = [mean_interval(arm, inner) for arm in rows]
    around = [variance_interval(arm, box, inner) for arm, box in zip(rows, boxes, strict=True)]
    joint_law = PiecewiseLaw.of(
        a.law.shapes + b.law.shapes,
        np.concatenate([a.law.counts, b.law.counts])[None],
        np.concatenate([a.law.coefficient, b.law.coefficient])[None],
        free=a.law.free or b.law.free,
    )
    ends = around[0][0] + around[1][0], around[0][1] + around[1][1]
    max_tilt = np.minimum(rows[0].max_tilt, rows[1].max_tilt)
    cells = CellBets.meeting(joint_law, ends, max_tilt, log_left)
    fourier = FourierRemainders(cells)
    box_a, box_b = ((float(low[0]), float(high[0])) for low, high in boxes)
    pair = _Pair((a, b.mirrored()), (box_a, _mirrored(box_b)), cells)
    mirrored_pair = _Pair((a.mirrored(), b), (_mirrored(box_a), box_b), cells)
    lower, tail = pair.lower_side(fourier)
    lower_of_mirror, other_tail = mirrored_pair.lower_side(fourier)
    return lower, -lower_of_mirror, 2 * min(tail, other_tail) + STATEMENTS_SHARE * beta


def _mirrored(box: Box) -> Box:
    return -box[1], -box[0]


class _Pair:
    """The bets on the sum of two means: each cell has a tilt, a gain, and K of both arms."""

    def __init__(
        self, arms: tuple[SymbolBets, SymbolBets], boxes: tuple[Box, Box], cells: CellBets
    ) -> None:
        self.arms, self.boxes, self.cells, self.tilts = arms, boxes, cells, cells.tilt
        self.gains = arms[0].gains(self.tilts) + arms[1].gains(self.tilts)
        bins = [mean_bins_meeting(*box) for box in boxes]
        sizes = [len(arm.law.shapes) for arm in arms]
        # all pairs of a bin of A's mean and a bin of B's, shape (pairs, levels)
        low, high = (
            np.array([np.repeat([x, y], sizes) for x in bins[0][end] for y in bins[1][end]])
            for end in (0, 1)
        )
        self.log_parts = cells.log_berry_esseen(low, high)

    def lower_side(self, fourier: FourierRemainders) -> tuple[float, float]:
        """Return a sum of means that is rejected, with all smaller sums, and a bound on the tail.

        The bound is on the tail's probability if the sum is 0. The rejected sum is -2 if none is
        rejected. As in :func:`.cells.limits_in_all_cells`, Fourier integrals are computed only for
        cells that can decide the result. `fourier`: the remainders of the cells.
        """
        every = np.arange(self.tilts.size)
        at_zero = self.largest(every, np.zeros(every.size))[0]

        def side_limits(cell_indices: Indices) -> tuple[Floats, Floats]:
            log_r = self.cells.combine_remainders(cell_indices, self.log_parts, fourier)
            cost = log_r.max(axis=-1) + LOG_P_SAFETY
            excess = at_zero[cell_indices] - self.gains[cell_indices] + cost
            lower = self.lower_limit(cell_indices, cost - self.cells.log_p)
            return lower, np.exp(np.minimum(excess, 0.0))

        above, below = side_limits(every)
        lower, tail = 2.0, 0.0
        for cell in np.argsort(above, kind="stable").tolist():
            if above[cell] < lower or below[cell] > tail:
                cell_indices = every[[cell]]
                fourier.refine(cell_indices)
                cell_lower, chance = side_limits(cell_indices)
                lower, tail = min(lower, float(cell_lower[0])), max(tail, float(chance[0]))
        return max(lower - 2 * THETA_ROUNDING, -2.0), tail

    def largest(self, cell_indices: Indices, delta: Floats) -> tuple[Floats, Floats]:
        """Return a bound on K(x, delta - x) for all x that the boxes allow, and its slope in delta.

        K is the sum of both arms' bounds on the log wealth. `cell_indices`, shape (k,): the cells;
        `delta`, shape (k,). The bounds are upper bounds, of shape (k,); if no x is allowed, the
        bound is -inf for a delta that is too small, and inf for one too large.
        """
        (first, last), (b_low, b_high) = self.boxes
        a_law, b_law, tilts = self.arms[0].law, self.arms[1].law, self.tilts[cell_indices]
        begin, end = np.maximum(first, delta - b_high), np.minimum(last, delta - b_low)
        x = (begin + end) / 2
        for turn in range(MAX_MEAN_STEPS + 1):
            checkpoint()
            a = log_expected_wealth(a_law, tilts, x)
            b = log_expected_wealth(b_law, tilts, delta - x)
            rise = a.slope - b.slope
            if turn < MAX_MEAN_STEPS:
                x = np.clip(x - rise / (a.curvature + b.curvature), begin, end)
        value = a.value + b.value + np.maximum(rise * (end - x), rise * (begin - x))
        # if the mean of B is at an end of its box, only the mean of A changes with delta
        fixed = ((rise > 0) & (end < last)) | ((rise < 0) & (begin > first))
        value = np.where(begin > end, np.where(delta < first + b_low, -np.inf, np.inf), value)
        return value, np.where(fixed, a.slope, b.slope)

    def lower_limit(self, cell_indices: Indices, cost: Floats) -> Floats:
        """Return nearly the largest rejected delta, or the least delta that the boxes allow.

        `cell_indices`, shape (k,): the cells; `cost`, shape (k,): by how much the gain has to
        exceed K. The largest K is concave in delta, so Newton's method approaches the limit
        from below.
        """
        low, high = (np.full(cost.shape, self.boxes[0][end] + self.boxes[1][end]) for end in (0, 1))
        delta = np.clip(self.arms[0].mean + self.arms[1].mean, low, high)
        for _ in range(MAX_LIMIT_STEPS):
            value, slope = self.largest(cell_indices, delta)
            left = self.gains[cell_indices] - cost - value
            low = np.where(left >= 0, np.maximum(low, delta), low)
            high = np.where(left < 0, np.minimum(high, delta), high)
            moved = delta + left / slope
            moved = np.where((moved > low) & (moved < high), moved, (low + high) / 2)
            if (np.abs(moved - delta) <= MEAN_TOLERANCE).all():
                break
            delta = moved
        return low
