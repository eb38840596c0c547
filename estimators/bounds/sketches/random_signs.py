"""Bounds for a projection onto random signs: noise, and the interference of other values.

Theorems 14 and 15 of docs/proofs/differences.md. beta is over the draw of the seed: the bounds do
not hold for values that were chosen so that their columns for this seed agree.
"""

from __future__ import annotations

import math

import numpy as np

from estimators.bounds.signs.law import Law
from estimators.bounds.signs.limits import limits
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
    """Return bounds on frequencies in [0, 1], shape (k,), for a question.

    Only the noise's part is asymptotic for ``normal``.

    Parameters
    ----------
    law, observed, question, log_p, total
        As in :func:`estimators.bounds.limits`, for theta.
    rows : int
        m.
    log_values : float
        ln of the number of possible values.

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
