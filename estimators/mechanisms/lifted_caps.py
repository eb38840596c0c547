"""Ranked random directions of one more dimension, for vectors inside the ball: signed bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.estimate import Array, Floats
from estimators.exact.randomness import Bits
from estimators.mechanisms.caps import Caps
from estimators.mechanisms.mechanism import Epsilons, Levels, Reports


class LiftedCaps(Caps):
    """`caps` in d + 1 dimensions, for the ball of d dimensions lifted onto a sphere.

    A value x of the unit ball becomes the unit vector (x, sqrt(1 - |x|^2)) of d + 1 coordinates,
    and `caps` reports it. Its estimate is unbiased in each coordinate; the first d are that of x.

    A mechanism that reports only directions has a variance of at least B^2 > 1 at x = 0. Here all
    values are on the sphere, and the variance of a report, which is linear in |x|^2 (theorem 4 of
    docs/proofs/mechanisms.md), falls with epsilon for each x. The largest variance is below that of
    `caps` from epsilon 1.0 on for d = 2, 0.9 for d = 3, 0.75 for d = 10 and 0.6 for d = 30.

    Source: PrivUnit, as for :class:`Caps`; the lift of the ball is not from a paper.

    **Privacy** and **no bias** are those of :class:`Caps` for the lifted value. Epsilon also
    protects the last coordinate of the lifted value, which says how far inside the ball the value
    is.

    **Random words** are those of `caps` for the lifted value. Its length is 1 up to rounding, so
    the coin that decides between v and its opposite is drawn, but nearly always chooses v.

    Parameters
    ----------
    dimension : int
        d, at least 1.
    grid : int, optional
        As for :class:`Caps`.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from estimators.exact.randomness import SeededBits
    >>> mechanism = LiftedCaps([Fraction(4)], dimension=2)
    >>> mechanism.randomize(np.array([[0.6, 0.0]]), np.array([0]), SeededBits(1)).shape
    (1, 3)
    >>> [round(float(x), 3) for x in (*mechanism.variance(0.0), *mechanism.variance(1.0))]
    [0.499, 0.498]
    """

    name = "lifted_caps"

    def __init__(self, epsilons: Epsilons, *, dimension: int, grid: int | None = None) -> None:
        super().__init__(epsilons, dimension=dimension + 1, grid=grid)

    @property
    def numbers(self) -> int:
        """The number of coordinates of a value, d."""
        return self.dimension - 1

    def variance(self, length: float) -> Floats:
        """Return E |B u - x|^2 in d dimensions, per level, without rounding; `length`: |x|."""
        along, across = np.array([law.mean_squares[::-1] for law in self.laws]).T
        hidden = (along - across) * (1 - length**2)
        return np.asarray(self.scale**2 * (1 - across - hidden) - length**2)

    def randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        """Return one integer vector of d + 1 coordinates for each row of `values`, shape (n, d)."""
        return super().randomize(lift(values), level, bits)

    def log_likelihood(self, reports: Reports, level: int, value: Any) -> Floats:
        """Return the log likelihood of each report's direction for a vector in the unit ball."""
        lifted = lift(np.asarray(value, dtype=np.float64)[None])[0]
        return super().log_likelihood(reports, level, lifted)


def lift(values: Floats) -> Floats:
    """Return (x, sqrt(1 - |x|^2)) for each row x in the unit ball, shape (n, d + 1).

    >>> lift(np.array([[0.6, 0.0], [0.0, 1.0]]))
    array([[0.6, 0. , 0.8],
           [0. , 1. , 0. ]])
    """
    square = np.einsum("ij,ij->i", values, values)
    return np.column_stack([values, np.sqrt(np.maximum(1 - square, 0.0))])
