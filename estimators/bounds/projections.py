r"""Bounds for a projection onto random signs: noise, and the interference of other values.

Value x has a column Phi[., x] of m public random signs. The device of a user who holds x draws a
row j and sends Phi[j, x] through randomized response; the sign for value v is Y = (report) Phi[j,
v].

**Noise.** Given Phi, E Y = a c(v, x), c(v, x) = (1/m) sum_j Phi[j, v] Phi[j, x] in [-1, 1] and c(v,
v) = 1. Users whose value has the frequencies f therefore have signs Y of the mean a theta,

    theta = sum_x f_x c(v, x) = f_v + bias,    bias = sum over x != v of f_x c(v, x),

with j, x and the flip drawn anew for each user: for a population of common frequencies, independent
signs of one common mean, as in randomized response with theta in [-1, 1]. If each user has
frequencies, or a value, of their own, each has a theta_i of their own in [-1, 1], and theta is
their weighted mean: the law for free means. Both hold for every Phi, and so does the interval for
theta.

**Bias.** Phi[., v] is independent of all other columns. Given these, bias = sum_j Phi[j, v] g_j / m
with g_j = sum over x != v of f_x Phi[j, x], abs(g_j) <= 1 - f_v: a sum of independent signs of m
known weights. By Hoeffding's inequality, with probability 1 - 2 exp(-m B^2 / 2),

    abs(bias) <= (1 - f_v) B.

From lower <= theta <= upper it follows that (lower - B) / (1 - B) <= f_v <= (upper + B) / (1 + B).

**Frequencies that change** (at all times at once, for `uniform` weights or users' own values): bias
changes with time, but is always (1 - f_v) times a mean of c(v, x), x != v. So B bounds all of them
if it bounds each abs(c(v, x)): a union over all possible values.

The probability beta is over the draw of the seed: the bounds do not hold for values that were
chosen so that their columns for this seed agree. As long as the seed stays, so does the bias: if it
is large, it is large in every window. Source: Bassily and Smith (2015); HLDP, Algorithm 5, has the
same two terms with looser constants.
"""

from __future__ import annotations

import math

import numpy as np

from estimators.bounds.intervals import limits
from estimators.bounds.laws.law import Law
from estimators.estimate import Floats
from estimators.question import Question

BIAS_SHARES = 0.5 ** np.arange(1.0, 13.0)
"""Of beta, for the bias: the one for which the width is least by design."""
ANYTIME_BIAS_SHARE = 1 / 8
"""The share for bounds at all times, which must not follow the number of reports."""


def projection_limits(
    law: Law,
    observed: Floats,
    question: Question,
    log_p: float,
    total: float,
    rows: int,
    log_values: float,
) -> tuple[Floats, Floats]:
    """Return bounds on frequencies f for a question.

    Parameters
    ----------
    law, observed, question, log_p, total
        As in :func:`estimators.bounds.intervals.limits`, for theta.
    rows : int
        m.
    log_values : float
        ln of the number of possible values.

    Returns
    -------
    lower, upper : ndarray of float64, shape (k,)
        Within [0, 1]. Only the noise's part is asymptotic for ``normal``.

    Examples
    --------
    >>> law = Law(counts=np.array([1e4]), coefficient=np.array([1e-4]), contrast=np.ones(1))
    >>> lower, upper = projection_limits(
    ...     law, np.array([0.5]), Question(), np.log(0.025), 1e4, 10**5, np.log(1000))
    >>> float(lower[0].round(3)), float(upper[0].round(3))
    (0.476, 0.523)
    """
    always = question.bound == "anytime"
    moves = always and not (question.target == "population" and question.weights != "uniform")
    shares = np.array([ANYTIME_BIAS_SHARE]) if always else BIAS_SHARES
    bias = np.sqrt(2 / rows * ((log_values if moves else 0.0) - log_p - np.log(shares)))
    noise = np.sqrt(2 * law.worst_variance * (-log_p - np.log1p(-shares)))
    best = int(np.argmin(bias + noise))
    lower, upper = limits(law, observed, question, log_p + math.log1p(-shares[best]), total)
    widest = float(bias[best])
    low = (lower - widest) / (1 - widest) if widest < 1 else np.zeros_like(lower)
    return np.clip(low, 0, 1), np.clip((upper + widest) / (1 + widest), 0, 1)
