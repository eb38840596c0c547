"""Bounds from the variance of reports, which is small where users hold nearly the same vector.

Other bounds of this package have the mean square of a report in place of its variance. For users
who hold nearly the same vector v that is far too much: at epsilon 8 in the plane a report's score
is nearly 1, its mean square 0.99 and its variance 0.01.

**The variance** of a report is its mean square minus the square of its mean, m <x, e> along e. So
over a level's users the mean of it is at most E <u, e>^2 - m^2 gamma^2, gamma the mean of <x, e>
(Jensen's inequality), and that of the whole vector at most E |u|^2 - m^2 |x|^2, x their mean
vector.

**A bound depends on the truth.** For a true gamma let D(gamma) be a bound on |S - gamma| that fails
with probability 2 p. So gamma is in the set of all g with |S - g| <= D(g), but for that
probability. D does not grow with |g|. If r is at least the distance of every g in the set from S,
so is D(max(|S| - r, 0)), because |g| >= |S| - r. That is repeated, from a first bound on. D may be
the smaller of several such bounds: which one it is depends on gamma alone, and not on the data.
"""

from __future__ import annotations

import numpy as np

from estimators.bounds.spheres import longest
from estimators.estimate import Floats

STEEP = np.geomspace(1e-5, 20, 90)  # tilts times the largest report; 18% apart
TILTS = np.geomspace(0.05, 4, 60)  # for a length, in units of one that is near the best
ROUNDS = 12


def growth(x: Floats) -> Floats:
    """Return (e^x - 1 - x) / x^2, which grows with x."""
    series = 0.5 + x / 6 + x**2 / 24 + x**3 / 120
    return np.where(x < 1e-2, series * (1 + 1e-9), (np.expm1(x) - x) / np.maximum(x, 1e-5) ** 2)


GROWN = growth(STEEP) * STEEP**2


def deviation(variance: Floats, largest: float, log_p: float) -> Floats:
    """Bound sums of independent terms from above by Bennett's inequality, with probability 1 - p.

    E e^(t X) <= exp(t^2 growth(t M) E X^2) for a term X <= M with mean zero, because growth grows.

    Parameters
    ----------
    variance : ndarray of float64, shape (k,)
        Of the sums.
    largest : float
        M.
    log_p : float
    """
    cumulant = variance[:, None] * (GROWN / largest**2)
    found: Floats = ((cumulant - log_p) * (largest / STEEP)).min(axis=1)
    return found


def length(dimension: int, variance: float, largest: float, log_beta: float) -> float:
    """Bound the length of a sum N of independent vectors of mean zero, with probability 1 - beta.

    With e uniform on the sphere and Z a coordinate of it, E M(t |N|) <= E_e exp(k e'Ce), M(x) = E
    cosh(x Z), k = t^2 growth(t M), C the covariance of N. For a given trace V the right side is a
    convex function of the eigenvalues, so the largest one is that of rank one, E exp(k V Z^2) =
    1F1(1 / 2; d / 2; k V). Markov's inequality gives the bound for each t.

    Parameters
    ----------
    dimension : int
        d.
    variance : float
        V = E |N|^2.
    largest : float
        The longest term.
    log_beta : float
    """
    from scipy.special import hyp1f1

    centre = np.sqrt((1 - log_beta) * dimension / variance)
    tilt = np.minimum(TILTS * centre, STEEP[-1] / largest)

    def goal(tilt: Floats) -> Floats:
        spread = tilt**2 * growth(tilt * largest) * variance
        usable = spread < 300  # beyond, 1F1 may not be a double, and the bound is of no use
        log_mean = np.log(hyp1f1(0.5, dimension / 2, np.where(usable, spread, 0.0))) * (1 + 1e-9)
        return np.where(usable, log_mean - log_beta, np.inf)

    return longest(dimension, tilt, goal)
