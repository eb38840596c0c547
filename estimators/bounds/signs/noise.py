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
from estimators.bounds.signs.law import MAX_SIGN_TILT
from estimators.estimate import Floats
from estimators.exact import discrete_laplace

FLIP_TILTS = np.geomspace(0.05, 4, 400)  # in units of the normal law's best tilt; 1.1% apart
FLIP_STRIDE = 20  # each 20th tilt is tried first; any tilt gives a valid bound


class Noise(Protocol):
    """The noise S - E S of an estimate, given the users' own values."""

    @property
    def variance(self) -> float:
        """The largest variance of the noise."""

    @property
    def max_tilt(self) -> float:
        """The largest tilt for :meth:`cumulant`."""

    def cumulant(self, tilt: Floats) -> Floats:
        """Return upper bounds on ln E exp(tilt noise) and ln E exp(-tilt noise), shape (tilts,)."""

    def deviation(self, log_p: float) -> float:
        """Return a bound that |noise| exceeds with probability at most 2 p; `log_p`: ln p."""


@dataclasses.dataclass(frozen=True)
class FlipNoise:
    """The noise of flipped signs.

    `counts`, `coefficient`, `flip`, shape (levels,): n_l and s_l, both above zero, and the
    probability of a flip, below 1/2.
    """

    counts: Floats
    coefficient: Floats
    flip: Floats

    @functools.cached_property
    def variance(self) -> float:
        """The variance of the noise, which is the same for all data."""
        return float(self.counts @ (self.coefficient**2 * 4 * self.flip * (1 - self.flip)))

    @functools.cached_property
    def max_tilt(self) -> float:
        """The largest tilt to try: larger tilts give no better bounds."""
        return MAX_SIGN_TILT / float(self.coefficient.max())

    def cumulant(self, tilt: Floats) -> Floats:
        """Return upper bounds on ln E exp(tilt noise), valid for the noise of either sign."""
        z, flip = tilt[:, None] * self.coefficient, self.flip
        growth = np.expm1(2 * z)
        grows = np.log1p(flip * growth) - 2 * flip * z
        falls = np.log1p(-flip * growth / (1 + growth)) + 2 * flip * z
        cumulant: Floats = np.maximum(grows, falls) @ self.counts
        return cumulant

    # Theorem 7 (a) of docs/proofs/inversion.md
    def deviation(self, log_p: float) -> float:
        """Return a bound that |noise| exceeds with probability at most 2 p; `log_p`: ln p."""
        n, s, contrast = self.counts, self.coefficient, 1 - 2 * self.flip
        proxy = contrast / np.log((1 - self.flip) / self.flip)
        scale = np.sqrt(-2 * log_p / float(n @ (2 * s**2 * proxy)))

        def bounds(tilts: Floats) -> Floats:
            tilt = np.minimum(tilts * scale, self.max_tilt)
            tanh = np.tanh(tilt[:, None] * s)
            square = np.square([(tanh + x) / (1 + tanh * x) for x in (contrast, -contrast)])
            least_variance = (1 - square.max(axis=0)) @ (n * s**2)
            largest_third = (1 - square.min(axis=0) ** 2) @ (n * s**3)
            log_remainder = log_dense_remainder(tilt, least_variance, largest_third)
            deviations: Floats = (self.cumulant(tilt) + log_remainder - log_p) / tilt
            return deviations

        nearest = FLIP_STRIDE * int(bounds(FLIP_TILTS[::FLIP_STRIDE]).argmin())
        around = slice(max(0, nearest - FLIP_STRIDE), nearest + FLIP_STRIDE)
        third = float(n @ (s**3 * (1 - contrast**4)))
        tilted = float(bounds(FLIP_TILTS[around]).min())
        return min(tilted, berry_esseen_deviation(self.variance, third, log_p))


@dataclasses.dataclass(frozen=True)
class LaplaceNoise:
    """Discrete Laplace noise and random rounding to its grid.

    `counts`, `coefficient`, `rate`, shape (levels,): n_l, s_l and the noise's rate, for levels with
    reports only; `unit`: the step of grid and noise.
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
        """The variance of the noise plus the largest variance of the rounding."""
        return float(self.counts @ (self._step**2 * (discrete_laplace.variance(self.rate) + 1 / 4)))

    @functools.cached_property
    def max_tilt(self) -> float:
        """The largest tilt for :meth:`cumulant`: just below the rate, where it becomes infinite."""
        return 0.999 * float((self.rate / self._step).min())

    def cumulant(self, tilt: Floats) -> Floats:
        """Return upper bounds on ln E exp(tilt noise), valid for the noise of either sign."""
        noise = discrete_laplace.cumulant(self.rate, tilt[:, None] * self._step)[0] @ self.counts
        return noise + float(self.counts @ self._step**2) / 8 * tilt**2

    def deviation(self, log_p: float) -> float:
        """Return a bound that |noise| exceeds with probability at most 2 p; `log_p`: ln p."""
        return sharpened_deviation(
            self.cumulant,
            lambda tilt: log_laplace_remainder(self.counts, self.rate, self._step, tilt),
            math.sqrt(-2 * log_p / self.variance),
            self.max_tilt,
            log_p,
        )


def log_laplace_remainder(counts: Floats, rate: Floats, step: Floats, tilt: Floats) -> Floats:
    """Return upper bounds on ln R for sums with Laplace noise, shape (k,): Theorem 3 of fourier.md.

    `counts`, `rate`, `step`, shape (levels,): the reports, the rate of the noise, and by how much a
    step of the noise changes S; `tilt`, shape (k,): below every rate / step.
    """
    u = tilt[:, None] * step
    variance = discrete_laplace.cumulant(rate, u)[2] * step**2
    frequencies = frequency_nodes(counts, variance)
    u, v = u[..., None], frequencies[:, None, :] * step[:, None]
    a = (np.sinh(rate / 2) ** 2)[:, None] - np.sinh(u / 2) ** 2
    b, c = np.cosh(u) * np.sin(v / 2) ** 2, np.sinh(u) * np.sin(v) / 2
    log_modulus = -np.log1p((b * (2 * a + b) + c**2) / a**2) / 2
    sd = np.sqrt(variance @ counts)  # in its unit, all laws have the same nodes
    nodes, variance = frequencies[0] * sd[0], variance / sd[:, None] ** 2
    return log_remainder(tilt * sd, nodes, log_modulus, counts, variance)
