"""The privacy of a crowd whose reports are signs, over all values that the others may hold."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from estimators.exact.thresholds import exp_bounds
from estimators.shuffling.lattice_sums import Summands, TiltedLaw, tilted_sum

MAX_GROUPS = 400
"""The number of groups of datasets, above which nothing is proved."""

MAX_TILT, MAX_EXPONENT = 40.0, 400.0


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
    """Return the law of the ones that are reported by holders of `ones` and `zeros`.

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

    `law`: of S, the number of ones that the others report; `ratio`: p.
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
    largest = float(gains.max()) + factor * error * float(weights[0])  # and left of the window
    log_delta = law.log_scale - law.tilt * float(centre) + math.log(largest)
    return math.exp(min(0.0, log_delta)) * (1 + law.slack)
