"""Privacy amplification by shuffling: bounds on a crowd's epsilon, and its largest level."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction

import numpy as np

from estimators.exact.thresholds import exp_bounds
from estimators.limits import LARGEST_LEVEL
from estimators.roots import crossing
from estimators.shuffling.lattice_sums import Summands, TiltedLaw, tilted_sum
from estimators.shuffling.set_laws import SetLaw

LEAST_EPSILON, MAX_EXCESS = 1e-6, 1.0005
"""The least epsilon above 0 that is returned; a result is at most MAX_EXCESS times the least
epsilon that can be proved."""
LEVEL_STEP = Fraction(1, 20)
MAX_GROUPS = 400
"""With more groups of datasets, nothing is proved."""
MAX_TILT, MAX_EXPONENT = 40.0, 400.0
LATTICE_STEPS, MIN_LATTICE_STEPS = 64, 4
"""How many steps the lattice has up to the largest excess, and how many it must have."""
MAX_DEVIATION = 2048
"""The standard deviation of a tilted sum, in steps, above which the lattice is made coarser."""
TILT_TOLERANCE = 2e-12
MAX_LOSS = 128
"""An excess below -128 times the largest excess is raised to that number."""


def shuffled_epsilon(laws: Sequence[SetLaw], reports: int, delta: float) -> float:
    """Return an epsilon' such that shuffled reports are (epsilon', delta)-differentially private.

    The guarantee is proved for a crowd of reports at one level, in random order, each by a
    different person.

    Parameters
    ----------
    laws : sequence of SetLaw
        The laws that the mechanism states for the level:
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
    _check_crowd(reports, delta)
    if is_private(laws, reports, 0.0, delta):
        return 0.0
    low, high = LEAST_EPSILON, max(_log_up(law.ratio) for law in laws)
    while high > low * MAX_EXCESS:
        middle = math.sqrt(low * high)
        if is_private(laws, reports, middle, delta):
            high = middle
        else:
            low = middle
    return high


def largest_level(
    laws_at: Callable[[Fraction], Sequence[SetLaw] | None],
    reports: int,
    epsilon: float,
    delta: float,
) -> Fraction:
    """Return the largest level whose shuffled reports are (epsilon, delta)-private.

    Levels are tried from above, in steps of 0.05, because a lower level may be less private than a
    higher level if the mechanism's parameters change between them. The result is at least
    `epsilon`, rounded down to the 4 decimals of a level, and at most the largest possible level; 0
    if there is none.

    Parameters
    ----------
    laws_at : callable
        The laws of a level; None if the mechanism has no such level.
    reports : int
        n: the honest reports of the crowd, at least 1.
    epsilon, delta : float
        The guarantee that the shuffled crowd must have.

    Raises
    ------
    ValueError
        If `reports` or `delta` is out of its range.
    """
    _check_crowd(reports, delta)
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
    are_signs = all(law.is_sign for law in laws)
    if are_signs and are_signs_private(laws[0].ratio, reports, epsilon, delta):
        return True
    return blanket_divergence(laws, reports, epsilon) <= delta


def _log_up(ratio: Fraction) -> float:
    """Return the logarithm of a ratio of at least 1, rounded up."""
    return math.log(ratio.numerator) - math.log(ratio.denominator) + 1e-12


def _check_crowd(reports: int, delta: float) -> None:
    if not 0 < delta <= 1:
        raise ValueError(f"delta = {delta}: expected a probability above 0")
    if reports < 1:
        raise ValueError(f"reports = {reports}: expected 1 or more")


def are_signs_private(ratio: Fraction, reports: int, epsilon: float, delta: float) -> bool:
    """Return whether a crowd of n signs is proved to be (epsilon, delta)-private.

    Datasets with similar numbers of holders of +1 are compared with one smaller dataset (theorem 3
    of docs/proofs/crowds.md): groups of datasets grow as long as that proves enough.

    `ratio`: p; `reports`: n; `epsilon`, `delta`: what is to be proved.
    """
    ones = 0
    width = least_width = max(1, reports // MAX_GROUPS)
    while ones < reports:
        law = other_ones(ratio, ones, max(0, reports - ones - width), delta)
        if sign_divergence(law, ratio, epsilon) <= delta:
            ones += width
            width *= 2
        elif width == least_width:
            return False
        else:
            width = max(least_width, width // 2)
    return True


def other_ones(ratio: Fraction, ones: int, zeros: int, delta: float) -> TiltedLaw:
    """Return the law of how many ones are reported by `ones` holders of one and `zeros` of zero.

    `ratio`: p; `delta`: the law is tilted towards a tail of about this mass, where
    :func:`sign_divergence` looks.
    """
    flip = 1 / (ratio + 1)
    masses = np.array([float(flip), float(1 - flip)])
    deviation = math.sqrt(max(1, ones + zeros) * masses[0] * masses[1])
    values = np.arange(2)
    holders = [Summands(values, masses, ones), Summands(values, masses[::-1], zeros)]
    tilt = math.sqrt(2 * math.log(2 / delta)) / deviation
    return tilted_sum(holders, -min(tilt, MAX_TILT))


def sign_divergence(law: TiltedLaw, ratio: Fraction, epsilon: float) -> float:
    """Return an upper bound on delta at `epsilon` for a sign among others.

    It is the largest c P(S = K) - (E - 1) P(S <= K) with c = (p E - 1) / (p + 1), which rises with
    K, and then falls.

    `law`: the law of S, the number of ones that the others report; `ratio`: p.
    """
    growth = exp_bounds(Fraction(epsilon), 128)[0]
    if growth >= ratio:
        return 0.0
    rise, fall = float(ratio - growth), float(ratio * growth - 1)
    factor, loss = float((ratio * growth - 1) / (ratio + 1)), float(growth - 1)
    centre, x, error = law.values[int(law.masses.argmax())], law.masses, law.error
    weights = np.exp(np.minimum(-law.tilt * (law.values - centre), MAX_EXPONENT))
    falls = (x[1:] + error) * weights[1:] * rise < (x[:-1] - error) * weights[:-1] * fall
    if not falls.any():
        return 1.0
    end = 1 + int(falls.argmax())
    x, weights = x[:end], weights[:end]
    below = np.cumsum(x * weights) - error * np.cumsum(weights)
    gains = factor * (x + error) * weights * (1 + law.slack)
    gains -= loss * np.maximum(below, 0) * (1 - law.slack)
    largest = float(gains.max()) + factor * error * float(weights[0])  # plus that left of it
    log_delta = law.log_scale - law.tilt * float(centre) + math.log(largest)
    return math.exp(min(0.0, log_delta)) * (1 + law.slack)


def blanket_divergence(laws: Sequence[SetLaw], reports: int, epsilon: float) -> float:
    """Return an upper bound on delta at `epsilon` for a crowd of n reports.

    It is E(l_1 + ... + l_n)+ / n (theorem 1 of docs/proofs/crowds.md), with the law of l in
    :func:`excess_masses`. Rounding l without changing its mean can only increase it. `laws`: the
    laws of the mechanism's reports; `reports`: n.
    """
    growth = exp_bounds(Fraction(epsilon), 128)[0]
    masses = excess_masses(laws, growth)
    if max(masses) <= 0:
        return 0.0
    unit, summands, tilt = _tilted_lattice(masses, growth, LATTICE_STEPS, reports)
    law = tilted_sum([summands], tilt)
    is_gain = law.values > 0
    gains = law.values[is_gain].astype(np.float64)
    weights = gains * np.exp(-tilt * gains)
    mean = float((weights * np.maximum(law.masses[is_gain], 0)).sum())
    mean += float(np.linalg.norm(weights)) * law.error
    delta = math.exp(law.log_scale) * mean * float(unit) / reports
    return min(1.0, delta * (1 + 2 * law.slack))


def excess_masses(laws: Iterable[SetLaw], growth: Fraction) -> dict[Fraction, Fraction]:
    """Return the law of l = (R0 - E R1) / b for a report drawn from the blanket b.

    R0 and R1 are the laws of a report under two values with the least overlap. The missing mass is
    that of reports that are not drawn from b, where l = 0. `laws`: the laws of the mechanism's
    reports; `growth`: E = e^epsilon.

    >>> masses = excess_masses([SetLaw(Fraction(3))], Fraction(2))
    >>> {str(excess): str(mass) for excess, mass in masses.items()}
    {'1': '1/4', '-5': '1/4'}
    """
    masses: dict[Fraction, Fraction] = {}
    for law in laws:
        p, single = law.ratio, law.inside - law.overlap
        blanket = law.chance / (1 + law.inside * (p - 1))
        for excess, share in (
            (p - growth, single),
            (1 - p * growth, single),
            (p * (1 - growth), law.overlap),
            (1 - growth, 1 - 2 * single - law.overlap),
        ):
            if share:
                masses[excess] = masses.get(excess, Fraction(0)) + blanket * share
    return masses


def _tilted_lattice(
    masses: Mapping[Fraction, Fraction], growth: Fraction, steps: int, reports: int
) -> tuple[Fraction, Summands, float]:
    """Return a unit, the excesses as multiples of it, and the tilt that makes their mean zero."""
    unit, summands = _on_lattice(masses, growth, steps, reports)
    tilt = _centring_tilt(summands)
    tilted = summands.masses * np.exp(tilt * summands.values)
    square = float((tilted * summands.values**2).sum() / tilted.sum())
    fitting = int(steps * MAX_DEVIATION / math.sqrt(reports * square))
    if fitting < steps > MIN_LATTICE_STEPS:
        return _tilted_lattice(masses, growth, max(fitting, MIN_LATTICE_STEPS), reports)
    return unit, summands, tilt


def _on_lattice(
    masses: Mapping[Fraction, Fraction], growth: Fraction, steps: int, reports: int
) -> tuple[Fraction, Summands]:
    """Return a unit, and the excesses, rounded at random to its multiples with unchanged means."""
    largest = max(masses)
    unit = largest / steps
    if 4 * (growth - 1) > unit:  # so that 1 - E, the most frequent excess, is a multiple
        unit = (growth - 1) / math.ceil((growth - 1) / unit)
    lattice = {0: 1 - sum(masses.values())}
    for excess, mass in masses.items():
        quotient = max(excess, -MAX_LOSS * largest) / unit
        below = math.floor(quotient)
        for value, share in ((below, below + 1 - quotient), (below + 1, quotient - below)):
            lattice[value] = lattice.get(value, Fraction(0)) + mass * share
    values = [value for value, mass in lattice.items() if mass]
    return unit, Summands(np.array(values), np.array([float(lattice[v]) for v in values]), reports)


def _centring_tilt(summands: Summands) -> float:
    """Return the tilt under which the mean is zero; zero if the untilted mean is not negative."""

    def mean(tilt: float) -> float:
        return float((summands.masses * np.exp(tilt * summands.values) * summands.values).sum())

    high = 1 / float(summands.values.max())
    while mean(high) < 0:
        high *= 2
    return crossing(mean, 0.0, high, TILT_TOLERANCE) if mean(0.0) < 0 else 0.0
