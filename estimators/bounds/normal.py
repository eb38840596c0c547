"""The normal law: its quantile, sums of squares, and bounds by the theorem of Berry and Esseen."""

from __future__ import annotations

import functools
import math

import numpy as np

from estimators.estimate import Floats

BERRY_ESSEEN = 0.56
"""The constant for sums of independent terms that may have different laws: Shevtsova (2010)."""


# Theorem 4 of docs/proofs/inversion.md
def log_dense_remainder(tilt: Floats, variance: Floats, third: Floats) -> Floats:
    """Return an upper bound on ln R, from bounds on moments of the tilted law.

    `tilt`, shape (k,): above 0; `variance`, `third`, shape (k,): a lower bound on the variance, and
    an upper bound on the third absolute moment, of the tilted law.
    """
    sd = np.sqrt(np.maximum(variance, 1e-60))
    remainder: Floats = 1 / (np.sqrt(2 * np.pi) * tilt * sd) + 2 * BERRY_ESSEEN * third / sd**3
    return np.log(np.minimum(remainder, 1))


def normal_quantile(log_p: float) -> float:
    """Return the z that a standard normal variable exceeds with probability p; `log_p`: ln p."""
    from scipy.special import ndtri_exp

    return -float(ndtri_exp(log_p))


def chi_square_tail(degrees: int, statistic: float) -> float:
    """Return the probability that a chi-square variable exceeds `statistic`.

    This function does not import scipy, because the import would take longer than most answers.
    `degrees`: the degrees of freedom, at least 1; `statistic`: at least 0.

    >>> round(chi_square_tail(1, 3.841459), 6), round(chi_square_tail(4, 9.487729), 6)
    (0.05, 0.05)
    """
    half = statistic / 2
    if half in {0, math.inf}:
        return float(half == 0)
    exponents, log_gammas = _chi_square_terms(degrees)
    terms = np.exp(exponents * math.log(half) - half - log_gammas)
    return math.erfc(math.sqrt(half)) * (degrees % 2) + float(terms.sum())


@functools.lru_cache(maxsize=64)
def _chi_square_terms(degrees: int) -> tuple[Floats, Floats]:
    """Return the exponents a of the terms of a tail, and ln Gamma(a + 1)."""
    exponents = np.arange(degrees // 2, dtype=np.float64) + degrees % 2 / 2
    return exponents, np.array([math.lgamma(a + 1) for a in exponents.tolist()])


def berry_esseen_deviation(variance: float, third: float, log_p: float) -> float:
    """Return how far a sum is above its mean with probability at most p, by Berry and Esseen.

    The result is infinite if their theorem gives no bound. `variance`: the variance of the sum;
    `third`: a bound on the sum of third absolute moments; `log_p`: ln p, where p is the probability
    that the bound is wrong.
    """
    from scipy.special import ndtri

    if variance <= 0:
        return np.inf
    remaining_p = np.exp(log_p) - BERRY_ESSEEN * third / variance**1.5
    return float(-ndtri(remaining_p) * np.sqrt(variance)) if remaining_p > 0 else np.inf


def log_wealth_remainder(sd: Floats, max_deviation: Floats) -> Floats:
    """Return ln R at tilt 1, by Theorem 4 of docs/proofs/differences.md.

    `sd`: the least standard deviation of W under its tilted law; `max_deviation`: the largest
    deviation of a term, of a shape that broadcasts with `sd`.
    """
    from scipy.special import erfcx

    berry_esseen = 2 * BERRY_ESSEEN * max_deviation / np.maximum(sd, 1e-300)
    remainder: Floats = erfcx(math.sqrt(2) * sd) + berry_esseen
    return np.log(np.minimum(remainder, 1.0))
