"""The privacy of a crowd whose reports are partly drawn from a law that all values share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import numpy as np

from estimators.exact.thresholds import exp_bounds
from estimators.roots import crossing
from estimators.shuffling.lattice_sums import Summands, tilted_sum
from estimators.shuffling.set_laws import SetLaw

LATTICE_STEPS, MIN_LATTICE_STEPS = 64, 4
"""How many steps the lattice has up to the largest excess, and how many it must have."""
MAX_DEVIATION = 2048
"""The standard deviation of a tilted sum, in steps, above which the lattice is made coarser."""
TILT_TOLERANCE = 2e-12
MAX_LOSS = 128
"""An excess below -128 times the largest excess is raised to that number."""


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
