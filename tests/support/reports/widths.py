"""How wide the bounds are, as a multiple of the normal law's width.

Reports are spread evenly over levels 0.25, 0.5, 1, 2 and 4, weights are optimal, beta is 0.05. The
sums are put at their expectation; the normal width takes the true standard deviation there.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from estimators.bounds import Law, interval
from estimators.exact.thresholds import WORD, flip_threshold
from tests.support.reports.cases import exact

LEVELS = np.array([0.25, 0.5, 1, 2, 4])
BETA = 0.05


def signs(n: int, part: int, k: int, *, free: bool) -> Law:
    """Return the law of randomized response (part 1) or RAPPOR (part 2), free: uniform weights."""
    flip = np.array([flip_threshold(exact(e) / part) / WORD for e in LEVELS])
    contrast, counts = 1 - 2 * flip, np.full(5, n / 5)
    share = counts / (flip * (1 - flip) / contrast**2 + (1 - 1 / k) / k)
    if free:
        share = counts
    return Law(counts, share / share.sum() / (counts * contrast), contrast, free=free)


def ratio(law: Law, theta: float, k: int = 1, *, ever: bool = False) -> float:
    """Return the width of the interval over the normal one, the domain's ends taken off both.

    `ever`: of the bound that holds at all times at once.
    """
    log_p = np.log(BETA / 2 / k)
    total = float(1 / law.coefficient.max()) if ever else None
    lower, upper = interval(law, np.array([theta]), log_p, total)
    half = -ndtri(np.exp(log_p)) * np.sqrt(law.largest_variance(np.array([theta])))[0]
    normal = min(1.0, theta + half) - max(-1.0, theta - half)
    return float((upper - lower)[0] / normal)


def anytime_ratio(law: Law, theta: float, k: int = 1) -> float:
    """Return the same for the bound that holds at all times at once."""
    return ratio(law, theta, k, ever=True)


