r"""Bounds for a count sketch from the random signs of the string in question.

Row j of the sketch gives S_j, the weighted sum of D over its reports; S = sum S_j. Reports of users
who hold the string add V_j. Its law is known except for the string's frequency f: D is 1 with
probability p, -1 with q, else 0, and all rows have the same law, so V = sum V_j has mean f and
every V_j mean f / t. All other reports add h_j O_j, with both noise and collisions. h_j is the
string's own sign in the row, and O_j does not depend on it.

**Others.** Given everything else, h_1 to h_t are independent fair signs. By Hoeffding's inequality

    P(sum h_j O_j > x |O|) <= exp(-x^2 / 2),

where |O| is the Euclidean norm. The law of the others' values and of the bucket hashes does not
matter: the bound depends on the collisions in the data, while :mod:`estimators.bounds.collisions`
assumes the worst.

**The norm** is not observed. With U_j = V_j - f / t, C the sum of (S_j - S / t)^2 and m the largest
abs(U_j), which the signs do not change, Hoeffding's inequality for the products gives

    C + (S - f)^2 / t = sum (U_j + h_j O_j)^2 >= |O|^2 + 2 sum h_j O_j U_j >= |O|^2 - 2 x m |O|

except with probability exp(-x^2 / 2), so |O| <= x m + sqrt(x^2 m^2 + C) + abs(S - f) / sqrt(t).

**Holders.** Let v = f sum s^2 (p + q) over reports, or its bound f max(s (p + q) / c) if users have
values or distributions of their own (the sum of s c f over reports is f). By Bernstein's
inequality, except with probability e^-x each, V - f is at most sqrt(2 v x) + 2 s x / 3, s the
largest coefficient, and so is U_j on either side with v / t instead of v, because all rows have the
same law. For m, x is larger by ln(2 t): two sides of t rows.

A frequency f is rejected as too small if S - f exceeds the sum of these bounds. The difference
falls with f and the bounds grow, so all smaller ones are rejected with it. A frequency is rejected
as too large if f - S exceeds the sum. f - S minus the bounds is convex in f and not positive at 0
(a negative S is raised to 0, which rejects fewer), so all larger ones are rejected with it.

The number of reports is fixed in advance: the signs are drawn once, and not again at each time.
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
    """Return bounds on f for a number of reports that is fixed in advance.

    Parameters
    ----------
    law : DifferenceLaw
    observed, scatter : ndarray of float64, shape (k,)
        S and C, for each of k strings.
    rows : int
        t.
    log_p : float
        ln p, the failure probability of one side.

    Returns
    -------
    lower, upper : ndarray of float64, shape (k,)
        Within [0, 1]; [0, 1] itself if there are too few rows for p.
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
