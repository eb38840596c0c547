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

**At all times.** Given the past, report i is s (Y - E Y) = X_i with X_i <= M and a variance v_i, at
a level and from a user that may depend on the past. So both E exp(t X_i) <= exp(r_i), r_i the bound
of :mod:`.growth`, and E exp(t X_i) <= exp(k v_i), k = t^2 growth(t M): their factors are at most
one, and so is that with the smaller exponent. Hence for each fixed t on the scale of single reports
exp(t N - sum of min(r_i, k v_i)) is a supermartingale, and so is the mixture over t. The sum is at
most the smaller of sum r_i and k sum v_i: no part of beta is needed to choose. Whatever the order
of users and levels, at each time sum v_i is at most the sum of mean squares, of which q has a bound
at all times, minus the sum of the squares of the means s m <x_i, e>. By Cauchy's and Schwarz's
inequality the latter is at least :meth:`.lengths.RankedNoise.steady` at gamma, the mean of <x, e> so
far. So by Ville's inequality the true gamma is within D(gamma) of S at all times, D from the
mixture with these sums, and r is found as above for each time by itself.

For the length the same holds along each direction e, with v_i = s^2 e' Cov(Y_i) e. The mean over e
is at least M(t |N|) times the exponential of minus the mean of the sum under the law of e that is
tilted by N (:meth:`.lengths.RankedNoise.anytime_radius`). Its matrix of second moments has the largest
eigenvalue a along N, so the mean of e' Cov e is at most a times the trace, which is at most E |Y|^2
- m^2 |x_i|^2.
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
    cumulant = variance[:, None] * (BENNETT_EXPONENTS / largest**2)
    bounds: Floats = ((cumulant - log_p) * (largest / BENNETT_TILTS)).min(axis=1)
    return bounds


def bennett_factor(tilt: Floats, largest: float) -> Floats:
    """Return k with E e^(t X) <= exp(k E X^2) for X <= M with mean zero; inf for steep tilts.

    Parameters
    ----------
    tilt : ndarray of float64, shape (tilts,)
        t, above 0.
    largest : float
        M.
    """
    usable = tilt * largest <= BENNETT_TILTS[-1]
    return np.where(usable, tilt**2 * bennett_growth(np.where(usable, tilt * largest, 0.0)), np.inf)


def bennett_length(dimension: int, variance: float, largest: float, log_beta: float) -> float:
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
    tilt = np.minimum(LENGTH_TILTS * centre, BENNETT_TILTS[-1] / largest)

    def goal(tilt: Floats) -> Floats:
        spread = tilt**2 * bennett_growth(tilt * largest) * variance
        usable = spread < 300  # beyond, 1F1 may not be a double, and the bound is of no use
        log_mean = np.log(hyp1f1(0.5, dimension / 2, np.where(usable, spread, 0.0))) * (1 + 1e-9)
        return np.where(usable, log_mean - log_beta, np.inf)

    return length_bound(dimension, tilt, goal)
