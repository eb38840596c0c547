r"""Differences of two arms of a Hadamard mechanism, for a fixed number of reports.

Theorem 4 of docs/proofs/comparisons.md, in its symbols. The levels of both arms are one
:class:`DifferenceLaw`: the bounds on its moments hold for D and for -D alike.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from estimators.bounds.block_differences import limits
from estimators.bounds.block_differences.law import (
    DifferenceLaw,
    exponents,
    self_normalised_interval,
)
from estimators.bounds.tolerances import LOG_P_SAFETY
from estimators.comparison.streams import DifferenceStream, difference_cumulant, joined
from estimators.estimate import Floats
from estimators.interruption import checkpoint

INTERVAL_STATEMENTS = 6
STATEMENTS_SHARE = INTERVAL_STATEMENTS * limits.CELL_CHOICE_SHARE
"""The part of p for the case that a statement on which the bound on the tail relies is wrong."""
LIMIT_HALVINGS, FREQUENCY_HALVINGS = 32, 20


def lower_side(a: DifferenceStream, b: DifferenceStream, log_p: float) -> tuple[Floats, Floats]:
    """Return the largest difference of frequencies that is rejected as too small.

    It is -1 if none is rejected. It also returns a bound on the tail's probability if the
    difference is 0, which is to be compared with p minus STATEMENTS_SHARE of p. `a`, `b`: the arms'
    reports; `log_p`: ln p, the failure probability.
    """
    log_share = log_p + math.log(limits.CELL_CHOICE_SHARE)
    log_left = log_p + math.log1p(-STATEMENTS_SHARE)
    near_a, near_b = (
        self_normalised_interval(x.law, x.sums, x.sizes, log_share, refined=False) for x in (a, b)
    )
    law = dataclasses.replace(a.law, free=a.law.free or b.law.free, **joined(a.law, b.law))
    weight = law.counts * law.coefficient**2
    top = float(weight @ law.largest_share)
    floor = -limits.MIN_CELL_REPORTS * log_p * float(law.coefficient.max()) ** 2
    number = max(1, math.ceil(math.log(top / floor) / math.log(limits.BLOCK_CELL_RATIO)))
    edges = floor * limits.BLOCK_CELL_RATIO ** np.arange(number + 1, dtype=np.float64)
    tilts, costs = limits.cell_tilts(law, edges, log_left)
    # the first cell uses R = 1, which is valid for every law
    tilts = np.append(math.sqrt(-2 * log_left / edges[0]), tilts)
    costs = np.append(LOG_P_SAFETY - log_left, costs)
    sizes = np.concatenate([a.sizes, b.sizes])
    low, high = limits.square_sum_interval(law, sizes, log_share)
    low = low - a.law.explained_variance(near_a[1]) - b.law.explained_variance(near_b[1])
    high = high - a.law.explained_variance(near_a[0]) - b.law.explained_variance(near_b[0])
    first = np.minimum(np.searchsorted(edges, low - 1e-12 * top, side="right"), number)
    last = np.minimum(np.searchsorted(edges, high + 1e-12 * top, side="right"), number)
    lower, tail = np.ones(sizes.shape[1]), np.zeros(sizes.shape[1])
    for cell in range(int(first.min(initial=0)), int(last.max(initial=0)) + 1):
        rows = np.flatnonzero((first <= cell) & (cell <= last))
        if not rows.size:
            continue
        tilt = tilts[cell : cell + 1]
        a_rows, b_rows = a.at(rows), b.at(rows)
        exponent = exponents(a.law, tilt, a_rows.sums, a_rows.sizes)[0][0]
        exponent = exponent + exponents(b.law, tilt, b_rows.sums, b_rows.sizes)[1][0]
        test = _Test(a.law, b.law, tilt, near_b[0][rows], near_b[1][rows])
        centre = np.clip(a.law.coefficient @ a_rows.sums - b.law.coefficient @ b_rows.sums, -1, 1)
        lower[rows] = np.minimum(lower[rows], test.solve(exponent - costs[cell], centre))
        log_tail = costs[cell] + log_left - exponent + test.largest(np.zeros(rows.size))
        tail[rows] = np.maximum(tail[rows], np.exp(np.minimum(log_tail, 0)))
    return np.maximum(lower, near_a[0] - near_b[1]), tail


class _Test(NamedTuple):
    """The cumulant K of theorem 4 at one tilt, if the frequency f_B is within [low, high]."""

    a: DifferenceLaw
    b: DifferenceLaw
    tilt: Floats
    low: Floats
    high: Floats

    def largest(self, delta: Floats) -> Floats:
        """Return an upper bound on K for all f_B; -inf if no f_A = f_B + delta is in [0, 1]."""
        low, high = np.maximum(self.low, -delta), np.minimum(self.high, 1.0)
        empty = low > high
        low, high = np.minimum(low, 1.0), np.maximum(low, high)
        for _ in range(FREQUENCY_HALVINGS):
            middle = (low + high) / 2
            rises = self.at(middle, delta)[1] >= 0
            low, high = np.where(rises, middle, low), np.where(rises, high, middle)
        value, slope = self.at(low, delta)
        bound = value + np.maximum(slope, 0) * (high - low)
        value, slope = self.at(high, delta)
        bound = np.minimum(bound, value + np.maximum(-slope, 0) * (high - low))
        return np.where(empty, -np.inf, bound)

    def at(self, f: Floats, delta: Floats) -> tuple[Floats, Floats]:
        """Return K and its slope in f if b has the frequency f and a has min(f + delta, 1)."""
        a_frequency = np.minimum(f + delta, 1.0)
        of_a = difference_cumulant(self.a, self.tilt, 1.0, a_frequency)
        of_b = difference_cumulant(self.b, self.tilt, -1.0, f)
        return of_a[0] + of_b[0], np.where(f + delta > 1, 0, of_a[1]) + of_b[1]

    def solve(self, goal: Floats, centre: Floats) -> Floats:
        """Return a delta up to `centre` for which the largest K is at most `goal`; -1 if none."""
        low, high = np.full_like(goal, -1.0), centre
        for _ in range(LIMIT_HALVINGS):
            checkpoint()
            middle = (low + high) / 2
            reached = self.largest(middle) <= goal
            low, high = np.where(reached, middle, low), np.where(reached, high, middle)
        return low
