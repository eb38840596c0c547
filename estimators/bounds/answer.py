"""The one place where a question's bound and target choose how an interval is made."""

from __future__ import annotations

import numpy as np

from estimators.bounds import anytime, inversion
from estimators.bounds.deviations import Noise
from estimators.bounds.law import Law
from estimators.estimate import Floats
from estimators.question import Question


def limits(
    law: Law,
    observed: Floats,
    question: Question,
    log_p: float,
    total: float,
    noise: Noise | None = None,
) -> tuple[Floats, Floats]:
    """Return bounds on theta as the question asks for them.

    A mechanism supplies the law of its sums and has every bound.

    Parameters
    ----------
    law : Law
    observed : ndarray of float64, shape (k,)
        The sums S, one a category.
    question : Question
    log_p : float
        ln p, the failure probability of one side.
    total : float
        From :func:`estimators.weights.total_weight`, for ``anytime``.
    noise : Noise, optional
        Of S given the users' own values, for the target ``sample``. Without it, the interval is
        that of `law`, which has to be free then.

    Returns
    -------
    lower, upper : ndarray of float64, shape (k,)
        Within [-1, 1].
    """
    if not observed.size:  # an open vocabulary of which nothing is asked for
        return observed, observed
    if question.target == "sample" and noise is not None:
        if question.bound == "normal":
            margin = normal_quantile(log_p) * noise.variance**0.5
        elif question.bound == "anytime":
            margin = anytime.deviation(noise.cumulant, noise.steepest, log_p, total)
        else:
            margin = noise.deviation(log_p)
        return np.clip(observed - margin, -1, 1), np.clip(observed + margin, -1, 1)
    if question.bound == "normal":
        return normal(law, observed, log_p)
    if question.bound == "anytime":
        return anytime.interval(law, observed, log_p, total)
    return inversion.interval(law, observed, log_p)


def normal(law: Law, observed: Floats, log_p: float) -> tuple[Floats, Floats]:
    """Return the interval of the normal law: asymptotic, for comparison only.

    Its variance is the largest that the estimated mean leaves possible: exact for signs with one
    common mean.

    Examples
    --------
    >>> law = Law(counts=np.array([1e4]), coefficient=np.array([1e-4]), contrast=np.ones(1))
    >>> lower, upper = normal(law, np.array([0.5]), np.log(0.025))
    >>> float(lower[0].round(4)), float(upper[0].round(4))
    (0.483, 0.517)
    """
    margin = normal_quantile(log_p) * np.sqrt(law.largest_variance(np.clip(observed, -1, 1)))
    return np.clip(observed - margin, -1, 1), np.clip(observed + margin, -1, 1)


def normal_quantile(log_p: float) -> float:
    """Return the z that a standard normal variable exceeds with probability p."""
    from scipy.special import ndtri_exp

    return -float(ndtri_exp(log_p))
