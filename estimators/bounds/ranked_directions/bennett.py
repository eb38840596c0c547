"""Bounds from the variance of reports, which is small where users hold nearly the same vector.

At epsilon 8 in the plane a report's score is nearly 1, its mean square 0.99 and its variance
0.01. Theorems 7 to 10 of docs/proofs/ranked-directions.md.
"""

from __future__ import annotations

import numpy as np

from estimators.bounds.spheres import length_bound
from estimators.estimate import Floats

BENNETT_TILTS = np.geomspace(1e-5, 20, 90)  # tilts times the largest report; 18% apart
CONVERGED_RATIO = 0.999  # ratio of a bound to the one before, from where on it is not repeated
MIN_VARIANCE = 1e-300  # of a variance
LENGTH_TILTS = np.geomspace(0.05, 4, 60)  # for a length, in units of one that is near the best
MAX_ROUNDS = 12


def bennett_growth(x: Floats) -> Floats:
    """Return (e^x - 1 - x) / x^2, which grows with x."""
    series = 0.5 + x / 6 + x**2 / 24 + x**3 / 120
    return np.where(x < 1e-2, series * (1 + 1e-9), (np.expm1(x) - x) / np.maximum(x, 1e-5) ** 2)


BENNETT_EXPONENTS = bennett_growth(BENNETT_TILTS) * BENNETT_TILTS**2


def bennett_deviation(variance: Floats, largest: float, log_p: float) -> Floats:
    """Bound sums of independent terms from above with probability 1 - p, shape (k,).

    Parameters
    ----------
    variance : ndarray of float64, shape (k,)
        Of the sums.
    largest : float
        The largest term.
    log_p : float
    """
    cumulant = variance[:, None] * (BENNETT_EXPONENTS / largest**2)
    bounds: Floats = ((cumulant - log_p) * (largest / BENNETT_TILTS)).min(axis=1)
    return bounds


def bennett_factor(tilt: Floats, largest: float) -> Floats:
    """Return k with E e^(t X) <= exp(k E X^2) for X <= largest of mean 0; inf for steep tilts."""
    usable = tilt * largest <= BENNETT_TILTS[-1]
    return np.where(usable, tilt**2 * bennett_growth(np.where(usable, tilt * largest, 0.0)), np.inf)


def bennett_length(dimension: int, variance: float, largest: float, log_beta: float) -> float:
    """Bound the length of a sum N of independent vectors of mean zero, with probability 1 - beta.

    Parameters
    ----------
    dimension : int
    variance : float
        E |N|^2.
    largest, log_beta : float
        The longest term, and ln beta.
    """
    from scipy.special import hyp1f1

    centre = np.sqrt((1 - log_beta) * dimension / variance)
    tilt = np.minimum(LENGTH_TILTS * centre, BENNETT_TILTS[-1] / largest)

    def goal(tilt: Floats) -> Floats:
        spread = tilt**2 * bennett_growth(tilt * largest) * variance
        usable = spread < 300  # beyond, 1F1 may not be a double, and the bound is of no use
        log_mean = np.log(hyp1f1(0.5, dimension / 2, np.where(usable, spread, 0.0))) * (1 + 1e-9)
        return np.where(usable, log_mean - log_beta, np.inf)

    return length_bound(dimension, tilt, goal)
