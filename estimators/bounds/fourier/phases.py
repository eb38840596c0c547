"""The factors exp(i tau y) of a Fourier integral, at nodes that are whole multiples of one step."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from estimators.estimate import Floats, Integers

DIGIT_BASE = 16
STEPS_PER_NODE = 4
"""How often the step is smaller than the distance of the first two nodes."""


@dataclasses.dataclass(frozen=True)
class Phases:
    """Nodes tau = m h: the step h, and the multiples m, ascending from 0."""

    step: float
    multiples: Integers

    @classmethod
    def near_nodes(cls, at: Floats) -> Phases:
        """Return nodes within half a step of these, of which the first is 0."""
        step = float(at[1]) / STEPS_PER_NODE
        return cls(step, np.unique(np.rint(at / step).astype(np.int64)))

    @property
    def nodes(self) -> Floats:
        """tau, shape (nodes,)."""
        return self.multiples.astype(np.float64) * self.step

    def scaled(self, factor: float) -> Phases:
        """Return the nodes times a factor."""
        return Phases(self.step * factor, self.multiples)

    def factors_of(self, y: Floats, weight: Floats | float = 1.0) -> NDArray[np.complex128]:
        """Return weight exp(i tau y), shape (*y.shape, nodes); `weight` broadcasts with `y`.

        Examples
        --------
        >>> phases = Phases(0.5, np.array([0, 1, 300]))
        >>> phases.factors_of(np.array([0.1])).round(6).ravel()
        array([ 1.      +0.j      ,  0.99875 +0.049979j, -0.759688+0.650288j])
        """
        # tables of each digit's values: products are several times faster than exponentials
        remaining_digits, step = self.multiples, self.step
        first_table = np.asarray(weight)[..., None] * _phase_powers(step * y, remaining_digits)
        phases: NDArray[np.complex128] = first_table.take(remaining_digits % DIGIT_BASE, axis=-1)
        while (remaining_digits := remaining_digits // DIGIT_BASE).any():
            step *= DIGIT_BASE
            table = _phase_powers(step * y, remaining_digits)
            phases *= table.take(remaining_digits % DIGIT_BASE, axis=-1)
        return phases


def _phase_powers(angle: Floats, multiples: Integers) -> NDArray[np.complex128]:
    """Return the powers of exp(i angle) that these multiples need, shape (*angle.shape, powers)."""
    angles = angle[..., None] * np.arange(min(DIGIT_BASE, int(multiples[-1]) + 1))
    powers = np.empty(angles.shape, np.complex128)
    powers.real, powers.imag = np.cos(angles), np.sin(angles)
    return powers
