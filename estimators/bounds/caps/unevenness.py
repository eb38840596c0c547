"""Upper bounds on how far data point along a coordinate, from the sums of squares of reports."""

from __future__ import annotations

import numpy as np

from estimators.bounds import anytime
from estimators.bounds.caps.growth import ReportLaw
from estimators.estimate import Floats


def bound_mean_squares(
    law: ReportLaw, n: float, squares: Floats, unit: float, log_p: float, *, at_all_times: bool
) -> Floats:
    """Bound a level's q from above, each coordinate with probability 1 - p; in [0, 1], shape (d,).

    Theorem 3 of docs/proofs/ranked-directions.md.

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
    at_all_times : bool
        Whether the bound holds at all times at once.
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
