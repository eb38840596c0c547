"""Streams of reports: sums whose cumulants have lines as bounds, for mixtures over tilts."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np

from estimators.bounds.anytime import Places, touching_lines
from estimators.bounds.deviations import Noise
from estimators.bounds.laws.law import Law
from estimators.estimate import Floats


class Stream(Protocol):
    """A sum of reports whose cumulant is known, or bounded, for k numbers."""

    @property
    def total(self) -> float:
        """N: the tilts are fixed on the scale of N S."""

    @property
    def observed(self) -> Floats:
        """S, shape (k,)."""

    @property
    def steepest(self) -> float:
        """The largest tilt on the scale of S."""

    def variance(self) -> Floats:
        """About the variance of S, shape (k,)."""

    def lines(self, theta: Floats, tilts: Floats) -> tuple[Floats, Floats]:
        """Return lines that bound the cumulants, as :func:`.anytime.touching_lines`."""

    def at(self, rows: Places) -> Stream:
        """Return the sums of these of the k numbers."""


@dataclasses.dataclass(frozen=True)
class LawStream:
    """A sum whose law depends on its mean."""

    law: Law
    observed: Floats
    total: float

    @property
    def steepest(self) -> float:
        """That of the law."""
        return self.law.steepest

    def variance(self) -> Floats:
        """Return the largest variance at the observed mean."""
        return self.law.largest_variance(np.clip(self.observed, -1, 1))

    def lines(self, theta: Floats, tilts: Floats) -> tuple[Floats, Floats]:
        """Return tangents."""
        return touching_lines(self.law, theta, tilts)

    def at(self, rows: Places) -> LawStream:
        """Return the sums of these of the k numbers."""
        return dataclasses.replace(self, observed=self.observed[rows])


@dataclasses.dataclass(frozen=True)
class NoiseStream:
    """A sum of the users' own values with noise, whose law does not depend on these."""

    noise: Noise
    observed: Floats
    total: float

    @property
    def steepest(self) -> float:
        """That of the noise."""
        return self.noise.steepest

    def variance(self) -> Floats:
        """Return the variance of the noise."""
        return np.full_like(self.observed, self.noise.variance)

    def lines(self, theta: Floats, tilts: Floats) -> tuple[Floats, Floats]:
        """Return the cumulants, which are lines."""
        value = self.noise.cumulant(np.minimum(tilts.ravel(), self.steepest)).reshape(tilts.shape)
        return value + tilts * theta[:, None], tilts

    def at(self, rows: Places) -> NoiseStream:
        """Return the sums of these of the k numbers."""
        return dataclasses.replace(self, observed=self.observed[rows])
