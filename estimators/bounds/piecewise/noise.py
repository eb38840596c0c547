"""The noise of piecewise reports, for users' own values."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from estimators.bounds.fourier.deviation import sharpened_deviation
from estimators.bounds.fourier.phases import Phases
from estimators.bounds.fourier.remainder import (
    PAIRED_NODE_STEP,
    Pieces,
    frequency_nodes,
    largest_cumulants,
    log_paired_remainder,
)
from estimators.estimate import Floats
from estimators.exact.piecewise_shapes import WindowShape

MAX_NOISE_TILT = 40.0  # largest tilt times the largest report: larger ones are of no use
VARIANCE_ROUNDING = 1e-12
"""In units of the largest report's square: far above the rounding error of a variance."""


# Theorems 4 and 5 of docs/proofs/fourier.md
@dataclasses.dataclass(frozen=True)
class PiecewiseNoise:
    """The noise S - E S of piecewise reports Y, given the users' own values x.

    `counts`, `coefficient`, shape (levels,): n_l and s_l, both above zero; `shapes`: the mechanism
    of each level.
    """

    counts: Floats
    coefficient: Floats
    shapes: tuple[WindowShape, ...]

    @functools.cached_property
    def variance(self) -> float:
        """The largest variance of the noise."""
        worst = np.array([float(shape.worst_variance) for shape in self.shapes])
        return float(self.counts @ (self.coefficient**2 * worst))

    @functools.cached_property
    def max_tilt(self) -> float:
        """The largest tilt to try: larger tilts give no better bounds."""
        largest = np.array([shape.values[-1] for shape in self.shapes])
        return MAX_NOISE_TILT / float((self.coefficient * largest).max())

    def cumulant(self, tilt: Floats) -> Floats:
        """Return upper bounds on ln E exp(tilt noise), valid for the noise of either sign."""
        parts = zip(self.shapes, self.coefficient, self.counts, strict=True)
        cumulant: Floats = np.sum(
            [n * _largest_cumulants(shape, tilt * s).max(axis=1) for shape, s, n in parts], 0
        )
        return cumulant

    def deviation(self, log_p: float) -> float:
        """Return a bound that |noise| exceeds with probability at most 2 p; `log_p`: ln p."""
        scale = math.sqrt(-2 * log_p / self.variance)
        return sharpened_deviation(self.cumulant, self._log_remainder, scale, self.max_tilt, log_p)

    def _log_remainder(self, tilt: Floats) -> Floats:
        return np.array([self._log_remainder_at(t) for t in tilt.tolist()])

    def _log_remainder_at(self, tilt: float) -> float:
        """Return an upper bound on ln R at a tilt."""
        steps = tilt * self.coefficient
        moments = [
            _tilted_moments(shape, step) for shape, step in zip(self.shapes, steps, strict=True)
        ]
        highest = np.array([variance.max() for _, variance in moments]) * self.coefficient**2
        phases = Phases.near_nodes(frequency_nodes(self.counts, highest, PAIRED_NODE_STEP))
        frequencies = phases.nodes
        shares = self.counts * highest / (self.counts @ highest)
        levels = []
        for shape, step, s, (mass, variance) in zip(
            self.shapes, steps, self.coefficient, moments, strict=True
        ):
            log_modulus = _log_moduli(shape, step, phases.scaled(s)) - np.log(mass)[:, None]
            paired = np.exp(np.maximum(log_modulus[:-1], log_modulus[1:]))
            levels.append(
                Pieces(_largest_cumulants(shape, np.array([step]))[0], paired, variance * s**2)
            )
        return float(log_paired_remainder(tilt, frequencies, self.counts, shares, levels))


def _largest_cumulants(shape: WindowShape, tilt: Floats) -> Floats:
    """Return the largest ln E[e^(t (Y - x)) | x] of each piece, shape (k, pieces)."""
    grown = shape.knot_means(np.expm1(shape.values[:, None] * tilt)).T
    return largest_cumulants(tilt, shape.knots, grown)


def _tilted_moments(shape: WindowShape, tilt: float) -> tuple[Floats, Floats]:
    """Return E[e^(t Y)] and an upper bound on the tilted variance at each knot, shapes (knots,)."""
    y = shape.values
    terms = np.exp(tilt * y)[:, None] * np.stack([np.ones_like(y), y, y * y], axis=-1)
    mass, first, second = shape.knot_means(terms).T
    return mass, np.maximum(second / mass - (first / mass) ** 2, VARIANCE_ROUNDING * y[-1] ** 2)


def _log_moduli(shape: WindowShape, tilt: float, phases: Phases) -> Floats:
    """Return ln |E[e^((t + i tau) Y)]| at each knot, shape (knots, nodes)."""
    squares = np.empty((shape.windows, phases.multiples.size))
    for part, terms in phases.factors_in_blocks(shape.values, np.exp(tilt * shape.values)):
        means = shape.knot_means(terms.view(np.float64)) ** 2
        squares[:, part] = means[:, ::2] + means[:, 1::2]
    with np.errstate(divide="ignore"):
        return np.log(squares) / 2
