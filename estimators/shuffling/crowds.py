"""Bounds on the epsilon of a shuffled crowd, and the largest level that a crowd allows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from estimators.limits import LARGEST_LEVEL
from estimators.shuffling.blankets import blanket_divergence
from estimators.shuffling.set_laws import SetLaw
from estimators.shuffling.signs import are_signs_private, other_ones, sign_divergence

EPSILON_STEP, SIGN_EPSILON_STEP = 5e-5, 2e-3
"""By how much of itself an epsilon is increased that is not proved."""
LEAST_EPSILON_STEP = 1e-5
LEVEL_STEP = Fraction(1, 20)


def shuffled_epsilon(laws: Sequence[SetLaw], reports: int, delta: float) -> float:
    """Return an epsilon' such that shuffled reports are (epsilon', delta)-differentially private.

    A proved upper bound for a crowd of reports at one level, each of another person, in random
    order.

    Parameters
    ----------
    laws : sequence of SetLaw
        What the mechanism states of the level:
        :meth:`estimators.mechanisms.mechanism.Mechanism.set_laws`.
    reports : int
        n: the honest reports of the crowd, at least 1.
    delta : float
        In (0, 1].

    Raises
    ------
    ValueError
        If `reports` or `delta` is out of its range.

    Examples
    --------
    >>> round(shuffled_epsilon([SetLaw(Fraction(3))], 10_000, 1e-6), 3)
    0.049
    """
    _check(reports, delta)
    from scipy.optimize import brentq

    if _are_signs(laws):
        general = [dataclasses.replace(law, is_sign=False) for law in laws]
        largest = shuffled_epsilon(general, reports, delta)
    else:
        largest = max(_log(law.ratio) for law in laws)
    divergence, step = _first_divergence(laws, reports, delta)
    if divergence(largest) > delta:  # errors of rounding exceed a tiny delta
        return largest
    epsilon = 0.0
    if divergence(0.0) > delta:

        def excess(trial: float) -> float:
            return math.log(max(divergence(trial), 1e-300) / delta)

        epsilon = float(brentq(excess, 0.0, largest, xtol=1e-9, rtol=EPSILON_STEP / 2))
    while epsilon < largest and not is_private(laws, reports, epsilon, delta):
        epsilon += max(epsilon * step, largest * LEAST_EPSILON_STEP)
    return min(epsilon, largest)


def largest_level(
    laws_at: Callable[[Fraction], Sequence[SetLaw] | None],
    reports: int,
    epsilon: float,
    delta: float,
) -> Fraction:
    """Return the largest level whose shuffled reports are (epsilon, delta)-private.

    Levels are tried from above, in steps of 0.05, because a lower level may be less private than a
    higher one where a mechanism changes its shape. The result is at least `epsilon`, rounded down
    to the 4 decimals of a level, and at most the largest level; 0: there is none.

    Parameters
    ----------
    laws_at : callable
        The laws of a level; None if the mechanism has no such level.
    reports : int
        n: the honest reports of the crowd, at least 1.
    epsilon, delta : float
        What the shuffled crowd shall keep.

    Raises
    ------
    ValueError
        If `reports` or `delta` is out of its range.
    """
    _check(reports, delta)
    level = math.ceil((math.log(reports) + 2) / LEVEL_STEP) * LEVEL_STEP
    while level > epsilon:
        laws = laws_at(level)
        if laws is not None and is_private(laws, reports, epsilon, delta):
            return level
        level -= LEVEL_STEP
    units = math.floor(Fraction(str(epsilon)) * 10_000)
    return min(Fraction(LARGEST_LEVEL), Fraction(units, 10_000))


def is_private(laws: Sequence[SetLaw], reports: int, epsilon: float, delta: float) -> bool:
    """Return whether shuffled reports are proved to be (epsilon, delta)-private.

    `laws`, `reports`, `epsilon`, `delta`: as for :func:`shuffled_epsilon`.
    """
    if _are_signs(laws) and are_signs_private(laws[0].ratio, reports, epsilon, delta):
        return True
    return blanket_divergence(laws, reports, epsilon) <= delta


def _first_divergence(
    laws: Sequence[SetLaw], reports: int, delta: float
) -> tuple[Callable[[float], float], float]:
    """Return a bound on delta, of signs for one dataset only, and the step from its epsilon."""
    if not _are_signs(laws):
        return lambda epsilon: blanket_divergence(laws, reports, epsilon), EPSILON_STEP
    ratio = laws[0].ratio
    law = other_ones(ratio, 0, reports - 1, delta)
    return lambda epsilon: sign_divergence(law, ratio, epsilon), SIGN_EPSILON_STEP


def _are_signs(laws: Sequence[SetLaw]) -> bool:
    return all(law.is_sign for law in laws)


def _log(ratio: Fraction) -> float:
    """Return the logarithm of a ratio of at least 1, rounded up."""
    return math.log(ratio.numerator) - math.log(ratio.denominator) + 1e-12


def _check(reports: int, delta: float) -> None:
    if not 0 < delta <= 1:
        raise ValueError(f"delta = {delta}: expected a probability above 0")
    if reports < 1:
        raise ValueError(f"reports = {reports}: expected 1 or more")
