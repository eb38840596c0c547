"""Bounds on the frequency of a string from reports at its points, collisions included.

A report of a whole string lies on the hyperplane of v's point in its row with probability q + (p -
q)(f + b): f is the frequency of v, and b >= 0 the share of people who hold another string with the
same point in their row. So f + b is a frequency like any other, and b is at most 1 - f.

**Above.** b >= 0, so the upper limit of f + b holds for f as it is. It does with different b at
different levels: sums of likelier coins are larger in stochastic order.

**Below.** At a level with t rows of K points let a_x be the share of rows in which x has v's point:
1/t Bin(t, 1/K), over the hashes. b / (1 - f) is a weighted mean of the a_x, so by Jensen's
inequality and Markov's P(b > (1 - f) B) <= p with

    B = min over u > 0 of [t ln(1 + (e^u - 1) / K) - ln p] / (t u).

With several levels B is the largest of theirs, each at p / L. All levels' f + b are then at most f
+ (1 - f) B, whose lower limit Lo gives f >= (Lo - B) / (1 - B). The two failures share p in halves.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from estimators.bounds import Law, limits
from estimators.estimate import Floats
from estimators.question import Question

_TILTS = np.geomspace(2.0**-12, 2.0**6, 1000)


@functools.lru_cache(maxsize=1024)
def collision_bound(rows: int, points: int, log_p: float) -> float:
    """Return B, at most 1: b exceeds (1 - f) B with probability at most p.

    Parameters
    ----------
    rows, points : int
        t and K.
    log_p : float
        ln p.

    Examples
    --------
    >>> round(collision_bound(256, 1464, np.log(0.025)) - 1 / 1464, 4)
    0.0081
    """
    cumulant = rows * np.log1p(np.expm1(_TILTS) / points)
    return min(1.0, float(((cumulant - log_p) / (rows * _TILTS)).min()))


def string_limits(
    law: Law,
    observed: Floats,
    question: Question,
    log_p: float,
    total: float,
    rows: int,
    points: Sequence[int],
) -> tuple[Floats, Floats]:
    """Return bounds on frequencies, each side failing with probability at most p.

    Parameters
    ----------
    law : Law
        Of signs of the reports of whole strings, with mean 2 (f + b) - 1.
    observed : ndarray of float64, shape (k,)
        Their weighted means.
    question : Question
    log_p : float
        ln p.
    total : float
        From :func:`estimators.weights.total_weight`, for ``anytime``.
    rows : int
        t.
    points : sequence of int
        K of each level in use.

    Returns
    -------
    lower, upper : ndarray of float64, shape (k,)
        Within [0, 1].

    Notes
    -----
    For all times at once with means of their own, the collisions of the k-th user are bounded at p
    / (k (k + 1)), as for a count sketch.
    """
    half = log_p - math.log(2)
    lower = (1 + limits(law, observed, question, half, total)[0]) / 2
    upper = (1 + limits(law, observed, question, log_p, total)[1]) / 2
    for_collisions = half - math.log(len(points))
    if question.bound == "anytime" and law.free:
        n = float(law.counts.sum())
        for_collisions -= math.log(n) + math.log1p(n)
    bias = max(collision_bound(rows, each, for_collisions) for each in points)
    return np.clip((lower - bias) / max(1 - bias, 1e-12), 0, 1), np.clip(upper, 0, 1)
