"""Bounds for a count sketch from the random signs of the string in question.

Theorem 10 of docs/proofs/differences.md. The number of reports is fixed in advance: the signs are
drawn once, and not again at each time.
"""

from __future__ import annotations

import math

import numpy as np

from estimators.bounds.laws.difference_law import DifferenceLaw
from estimators.estimate import Floats

BISECTION_STEPS = 45
INTERFERENCE_SHARE, STATEMENT_SHARE = 0.7, 0.1
"""Shares of the failure probability: others; and their norm, the holders' sum, their rows."""


def own_sign_limits(
    law: DifferenceLaw, observed: Floats, scatter: Floats, rows: int, log_p: float
) -> tuple[Floats, Floats]:
    """Return bounds on f, shape (k,); [0, 1] if there are too few rows for p.

    Parameters
    ----------
    law : DifferenceLaw
    observed, scatter : ndarray of float64, shape (k,)
        S and C, for each of k strings.
    rows : int
        t.
    log_p : float
        ln p, the failure probability of one side.
    """
    interference_factor = math.sqrt(-2 * (log_p + math.log(INTERFERENCE_SHARE)))
    log_inverse_p = -(log_p + math.log(STATEMENT_SHARE))
    remaining_slope = 1 - interference_factor / math.sqrt(rows)
    if remaining_slope <= 0:
        return np.zeros_like(observed), np.ones_like(observed)
    largest = float(law.coefficient.max())
    if law.free:
        unit = float((law.coefficient * law.largest_share / law.contrast).max())
    else:
        unit = float(law.counts @ (law.coefficient**2 * law.largest_share))

    def allowed(f: Floats) -> Floats:
        total = np.sqrt(2 * log_inverse_p * unit * f) + 2 / 3 * largest * log_inverse_p
        in_rows = log_inverse_p + math.log(2 * rows)
        row = np.sqrt(2 * in_rows * unit / rows * f) + 2 / 3 * largest * in_rows
        row *= math.sqrt(2 * log_inverse_p)
        return total + interference_factor * (row + np.sqrt(row**2 + scatter))

    lower, upper_of_lower = np.zeros_like(observed), np.clip(observed, 0, 1)
    start = np.maximum(observed, 0)
    lower_of_upper, upper = np.clip(start, 0, 1), np.ones_like(observed)
    for _ in range(BISECTION_STEPS):
        middle = (lower + upper_of_lower) / 2
        rejected = (observed - middle) * remaining_slope > allowed(middle)
        lower, upper_of_lower = (
            np.where(rejected, middle, lower),
            np.where(rejected, upper_of_lower, middle),
        )
        middle = (lower_of_upper + upper) / 2
        rejected = (middle - start) * remaining_slope > allowed(middle)
        lower_of_upper, upper = (
            np.where(rejected, lower_of_upper, middle),
            np.where(rejected, middle, upper),
        )
    return lower, upper
