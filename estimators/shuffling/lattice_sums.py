"""The law of a sum of independent integer summands, tilted towards a tail, with an error bound."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from estimators.estimate import Floats, Integers

UNIT_ROUNDING = 2.0**-53
LOG_TAIL = 40.0
"""The mass on each side of the window is below e^-40, by Chernoff's inequality."""
CHERNOFF_TILTS = 40
MAX_EXPONENT = 600.0

Spectrum = NDArray[np.complex128]


@dataclasses.dataclass(frozen=True)
class Summands:
    """Independent integers with the same law.

    `values`, shape (k,): different integers; `masses`, shape (k,): their probabilities, within a
    unit of rounding; `count`: how many are added.
    """

    values: Integers
    masses: Floats
    count: int


@dataclasses.dataclass(frozen=True)
class TiltedLaw:
    """The law of a sum S in a window: P(S = s) = e^(`log_scale` - `tilt` s) x_s.

    `values`, shape (N,): s, ascending; `masses`, shape (N,): x as computed; `error`: a bound on the
    l2 norm of the error of x, which includes the mass outside the window; `slack`: a bound on the
    relative error of the probabilities that exact x would give.
    """

    values: Integers
    masses: Floats
    log_scale: float
    tilt: float
    error: float
    slack: float


def tilted_sum(all_summands: Sequence[Summands], tilt: float) -> TiltedLaw:
    """Return the law of the sum of all parts, tilted by e^(tilt s).

    Characteristic functions are raised to their powers by repeated squaring, and inverted by one
    transform. With u = 2^-53 and sines and exponentials within 8 u, an entry of a power is off by
    40 u a summand, relative to a modulus above 1/2; the transform adds 8 u log2 N of the l2 norm
    (Higham, "Accuracy and stability of numerical algorithms", 2002, theorem 24.2).
    """
    all_summands = [summands for summands in all_summands if summands.count]
    counts = [summands.count for summands in all_summands]
    count = sum(counts)
    log_scale = mean = variance = largest_exponent = 0.0
    laws: list[Floats] = []
    deviations: list[Floats] = []
    for summands in all_summands:
        exponents = tilt * summands.values
        masses = summands.masses * np.exp(exponents)
        total = float(masses.sum())
        laws.append(masses / total)
        centre = float((laws[-1] * summands.values).sum())
        deviations.append(summands.values.astype(np.float64) - centre)
        log_scale += summands.count * math.log(total)
        mean += summands.count * centre
        variance += summands.count * float((laws[-1] * deviations[-1] ** 2).sum())
        largest_exponent = max(largest_exponent, float(np.abs(exponents).max()))
    farthest = max((float(np.abs(d).max()) for d in deviations), default=0.0) or 1.0
    spread = math.sqrt(variance) or 1.0
    tilts = np.geomspace(
        min(0.5 / spread, 1 / farthest), min(40 / spread, MAX_EXPONENT / farthest), CHERNOFF_TILTS
    )
    centred = [*zip(counts, laws, deviations, strict=True)]
    below, above = _reach(centred, -tilts), _reach(centred, tilts)
    least = sum(summands.count * int(summands.values.min()) for summands in all_summands)
    greatest = sum(summands.count * int(summands.values.max()) for summands in all_summands)
    first = math.floor(max(least, mean - below))
    size = 1 << (math.ceil(min(greatest, mean + above)) - first + 1).bit_length()
    roots, frequency = _roots(size), np.arange(size // 2 + 1)
    spectrum: Spectrum = roots[-first * frequency % size]
    for summands, masses in zip(all_summands, laws, strict=True):
        turns = zip(masses, summands.values, strict=True)
        base = sum(mass * roots[value * frequency % size] for mass, value in turns)
        spectrum = spectrum * _power(base, summands.count)
    x = np.fft.irfft(spectrum, size)
    relative = 80 * count + 8 * math.log2(size)
    error = UNIT_ROUNDING * (relative * float(np.linalg.norm(x)) + 40) + 2 * math.exp(-LOG_TAIL)
    slack = UNIT_ROUNDING * count * (40 + 2 * largest_exponent) + 1e-9
    return TiltedLaw(first + np.arange(size), x, log_scale, tilt, error, slack)


def _reach(all_summands: Sequence[tuple[int, Floats, Floats]], tilts: Floats) -> float:
    """Return T such that a sum is T from its mean, to one side, with probability below e^-40.

    `all_summands`: count, masses, deviations; `tilts`: below zero for a sum below its mean.
    """
    growth = np.zeros_like(tilts)
    for count, law, deviation in all_summands:
        growth += count * np.log((law * np.exp(tilts[:, None] * deviation)).sum(axis=1))
    return float(((LOG_TAIL + growth) / np.abs(tilts)).min())


@functools.lru_cache(maxsize=8)
def _roots(size: int) -> Spectrum:
    return np.asarray(np.exp(-2j * math.pi / size * np.arange(size)))


def _power(base: Spectrum, exponent: int) -> Spectrum:
    """Return base^exponent by repeated squaring."""
    product = np.ones_like(base)
    while exponent:
        if exponent & 1:
            product = product * base
        exponent >>= 1
        if exponent:
            base = base * base
    return product
