"""Upper bounds on how far data point along a coordinate, from the sums of squares of reports.

The mean of u_j^2 over a level's users is low + (high - low) q, q their mean of c^2, and rounding
only adds to it. Let V be w times the square of a report's coordinate, w > 0. For independent V_i >=
0, P(sum V <= sum E V - y) <= exp(-y^2 / (2 sum E V^2)), because e^-x <= 1 - x + x^2 / 2 (Maurer,
2003); and E V^2 is at most a linear function of q. At all times at once: exp(h (sum E V - sum V) -
h^2 sum E V^2 / 2) is a supermartingale for each h > 0, and Ville's inequality holds for each of
some h with a share of p.
"""

from __future__ import annotations

import numpy as np

from estimators.bounds import anytime
from estimators.bounds.caps.growth import ReportLaw
from estimators.estimate import Floats


def bound_mean_squares(
    law: ReportLaw, n: float, squares: Floats, unit: float, log_p: float, *, at_all_times: bool
) -> Floats:
    """Bound a level's q from above, of each coordinate with probability 1 - p.

    Parameters
    ----------
    law : ReportLaw
    n : float
        The number of reports.
    squares : ndarray of float64, shape (d,)
        The observed mean square of each coordinate.
    unit : float
        The step of the grid.
    log_p : float
        ln p.
    at_all_times : bool
        Whether the bound holds at all times at once. The weight w is a constant.

    Returns
    -------
    ndarray of float64, shape (d,)
        In [0, 1].
    """
    d, (low, high), (base, slope) = law.dimension, law.mean_squares, law.fourth_moment_line(unit)
    rise = max(high - low, 1e-12 / d)
    base, slope = base + slope * low, slope * rise  # E V^2 <= base + slope q, for w = 1
    weight = rise / (d * base)
    gain, square_base, square_rise = n * weight * rise, n * weight**2 * base, n * weight**2 * slope
    excess = n * weight * (squares - low)
    if not at_all_times:
        half = -log_p * square_rise / gain
        root = np.maximum(half**2 - 2 * log_p * (square_base + square_rise * excess / gain), 0.0)
        limits_once: Floats = np.clip((excess + half + np.sqrt(root)) / gain, 0.0, 1.0)
        return limits_once
    h = d * anytime.MIXTURE_TILTS[:, None]
    log_p = log_p + anytime.LOG_MIXTURE_WEIGHTS[:, None]
    descent = gain - h * square_rise / 2
    limit = (excess + h * square_base / 2 - log_p / h) / np.where(descent > 0, descent, 1.0)
    limits: Floats = np.clip(np.where(descent > 0, limit, 1.0).min(axis=0), 0.0, 1.0)
    return limits
