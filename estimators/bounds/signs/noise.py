"""Bounds on the noise alone, for the users' own values: Theorem 7 of docs/proofs/inversion.md."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Protocol

import numpy as np

from estimators.bounds.fourier.deviation import sharpened_deviation
from estimators.bounds.fourier.remainder import frequency_nodes, log_remainder
from estimators.bounds.normal import berry_esseen_deviation, log_dense_remainder
from estimators.bounds.signs.law import MAX_SIGN_TILT, tilted_sign_extremes
from estimators.estimate import Floats
from estimators.exact import discrete_laplace

FLIP_TILTS = np.geomspace(0.05, 4, 400)[:, None]  # in units of the normal law's; 1.1% apart


class Noise(Protocol):
    """The noise S - E S of an estimate, given the users' own values."""

    @property
    def variance(self) -> float:
        """The largest variance of the noise."""

    @property
    def max_tilt(self) -> float:
        """The largest tilt for :meth:`cumulant`."""

    def cumulant(self, tilt: Floats) -> Floats:
        """Bound ln E exp(tilt noise), on either side, for tilts of shape (tilts,)."""

    def deviation(self, log_p: float) -> float:
        """Bound |noise| with probability 1 - 2 p."""


@dataclasses.dataclass(frozen=True)
class FlipNoise:
    """The noise of flipped signs: see :func:`flip_noise_deviation`."""

    counts: Floats
    coefficient: Floats
    flip: Floats

    @functools.cached_property
    def variance(self) -> float:
        """The same for all data."""
        return float(self.counts @ (self.coefficient**2 * 4 * self.flip * (1 - self.flip)))

    @functools.cached_property
    def max_tilt(self) -> float:
        """A steeper tilt gains nothing."""
        return MAX_SIGN_TILT / float(self.coefficient.max())

    def cumulant(self, tilt: Floats) -> Floats:
        """Bound ln E exp(tilt noise), on either side."""
        return _flip_cumulant(self.counts, self.coefficient, self.flip, tilt[:, None])

    def deviation(self, log_p: float) -> float:
        """Bound |noise| with probability 1 - 2 p."""
        return flip_noise_deviation(self.counts, self.coefficient, self.flip, log_p)


@dataclasses.dataclass(frozen=True)
class LaplaceNoise:
    """Discrete Laplace noise and random rounding to its grid.

    Parameters
    ----------
    counts, coefficient, rate : ndarray of float64, shape (levels,)
        n_l, s_l and the noise's rate, for levels with reports only.
    unit : float
        The step of grid and noise.
    """

    counts: Floats
    coefficient: Floats
    rate: Floats
    unit: float

    @property
    def _step(self) -> Floats:
        return self.unit * self.coefficient

    @functools.cached_property
    def variance(self) -> float:
        """The variance of the noise, plus the largest of the rounding."""
        return float(self.counts @ (self._step**2 * (discrete_laplace.variance(self.rate) + 1 / 4)))

    @functools.cached_property
    def max_tilt(self) -> float:
        """Just below the rate, where the generating function becomes infinite."""
        return 0.999 * float((self.rate / self._step).min())

    def cumulant(self, tilt: Floats) -> Floats:
        """Bound ln E exp(tilt noise), on either side."""
        noise = discrete_laplace.cumulant(self.rate, tilt[:, None] * self._step)[0] @ self.counts
        return noise + float(self.counts @ self._step**2) / 8 * tilt**2

    def deviation(self, log_p: float) -> float:
        """Bound |noise| with probability 1 - 2 p."""
        return sharpened_deviation(
            self.cumulant,
            lambda tilt: log_laplace_remainder(self.counts, self.rate, self._step, tilt),
            math.sqrt(-2 * log_p / self.variance),
            self.max_tilt,
            log_p,
        )


# Theorem 7 (a) of docs/proofs/inversion.md
def flip_noise_deviation(counts: Floats, coefficient: Floats, flip: Floats, log_p: float) -> float:
    """Bound |S - E S| of flipped signs with probability 1 - 2 p.

    Parameters
    ----------
    counts, coefficient, flip : ndarray of float64, shape (levels,)
        n_l, s_l and the probability f_l of a flip, for levels with reports only.
    log_p : float
    """
    proxy = (1 - 2 * flip) / np.log((1 - flip) / flip)
    scale = np.sqrt(-2 * log_p / float(counts @ (2 * coefficient**2 * proxy)))
    tilt = np.minimum(FLIP_TILTS * scale, MAX_SIGN_TILT / coefficient.max())
    zeros, contrast = np.zeros_like(flip), 1 - 2 * flip
    variance_of_sign, third_of_sign = tilted_sign_extremes(tilt * coefficient, zeros, contrast)
    least_variance = variance_of_sign @ (counts * coefficient**2)
    largest_third = third_of_sign @ (counts * coefficient**3)
    log_remainder = log_dense_remainder(tilt[:, 0], least_variance, largest_third)
    cumulant = _flip_cumulant(counts, coefficient, flip, tilt)
    tilted = (cumulant + log_remainder - log_p) / tilt[:, 0]
    variance = float(counts @ (coefficient**2 * 4 * flip * (1 - flip)))
    third = float(counts @ (coefficient**3 * (1 - (1 - 2 * flip) ** 4)))
    return min(float(tilted.min()), berry_esseen_deviation(variance, variance, third, log_p))


def _flip_cumulant(counts: Floats, coefficient: Floats, flip: Floats, tilt: Floats) -> Floats:
    z = tilt * coefficient
    grows = np.log1p(flip * np.expm1(2 * z)) - 2 * flip * z
    falls = np.log1p(flip * np.expm1(-2 * z)) + 2 * flip * z
    return np.maximum(grows, falls) @ counts


def log_laplace_remainder(counts: Floats, rate: Floats, step: Floats, tilt: Floats) -> Floats:
    """Bound ln R for sums with this noise, shape (k,): Theorem 3 of docs/proofs/fourier.md.

    Parameters
    ----------
    counts, rate, step : ndarray of float64, shape (levels,)
        Reports, the rate of the noise, and how far its step moves S.
    tilt : ndarray of float64, shape (k,)
        Below every rate / step.
    """
    u = tilt[:, None] * step
    variance = discrete_laplace.cumulant(rate, u)[2] * step**2
    frequencies = frequency_nodes(counts, variance)
    u, v = u[..., None], frequencies[:, None, :] * step[:, None]
    a = (np.sinh(rate / 2) ** 2)[:, None] - np.sinh(u / 2) ** 2
    b, c = np.cosh(u) * np.sin(v / 2) ** 2, np.sinh(u) * np.sin(v) / 2
    log_modulus = -np.log1p((b * (2 * a + b) + c**2) / a**2) / 2
    return log_remainder(tilt, frequencies, log_modulus, counts, variance)
