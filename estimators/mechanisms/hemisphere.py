"""Hemisphere sampling for the mean of a vector in the unit ball: a unit vector on a grid."""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.bounds import Directions
from estimators.bounds.spheres import inverse_mean_size
from estimators.estimate import Bools, Counts, Floats
from estimators.mechanisms.mechanism import Epsilons, Reports
from estimators.mechanisms.shared.ranked_directions import RankedDirections
from estimators.mechanisms.shared.signs import FlippedSigns
from estimators.weights import LevelFacts


class Hemisphere(RankedDirections):
    """A direction from the value's hemisphere or, by a private coin, from the opposite hemisphere.

    The device draws u uniform on the unit sphere and rounds it at random to the grid 1/g, which
    gives an integer vector U. With v = x / |x| or, with probability 1/2 - |x| / 2, its opposite,
    the report is either U or -U: the one on the side of v, or with probability 1 / (1 + e^epsilon)
    the other; at x = 0, a fair coin decides. The estimate is the mean of B U / g, where B = K_d
    (e^epsilon + 1) / (e^epsilon - 1), K_d = sqrt(pi) Gamma((d+1)/2) / Gamma(d/2). Source: HLDP,
    Algorithms 3 and 4 (whose B is too large by a factor of 2), after Duchi, Jordan and Wainwright
    (2013).

    **Privacy.** Theorem 4 of docs/proofs/privacy.md, which also holds in floating point.

    **No bias.** The sign is that of <u, v>, not of <U, v>; given u, the rounding has mean zero. So
    the estimate has mean x, because v has. The grid adds a variance of at most 1 / (4 g^2) for each
    coordinate; the bounds include it.

    **Accuracy of u.** Box and Muller's normal numbers from 32-bit uniforms change the mean of a
    report by some 10^-10; the bounds are widened by 10^-8 B.

    **The law of a report.** Its density is 1 + a f(u) with f odd and |f| <= 1, whatever the users'
    values are. So E |u|^2 = 1 and the law of |<u, e>| do not depend on the data: the bounds hold
    for every target and any mix of values and levels.

    Parameters
    ----------
    dimension : int
        d, at least 1.
    grid : int
        g, at most 2^24. A report takes 2 d bytes for g < 2^15, else 4 d.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from estimators.exact.randomness import SeededBits
    >>> mechanism = Hemisphere([Fraction(1)], dimension=3)
    >>> mechanism.randomize(np.array([[0.6, 0.0, 0.8]]), np.array([0]), SeededBits(1)).shape
    (1, 3)
    """

    name = "hemisphere"

    def __init__(self, epsilons: Epsilons, *, dimension: int, grid: int = 2**14) -> None:
        super().__init__(epsilons, dimension, grid, [(2, 1)] * len(epsilons))
        self.dtype = np.dtype("<i2" if grid < 2**15 else "<i4")
        self.columns = 1 + dimension
        self.signs = FlippedSigns(self.epsilons)
        self.scale = inverse_mean_size(dimension) / self.signs.contrast
        variances = 1 / self.signs.contrast**2
        self.facts = LevelFacts.of(self.epsilons, variances, np.square(self._levels))

    def _law(
        self, table: Counts, used: Bools, coefficient: Floats, mean: Floats, one_law: bool
    ) -> Directions:
        n = table[used, 0].astype(np.float64)
        contrast = self.signs.contrast[used]
        return Directions(self.dimension, n, coefficient, 1 / self.grid, contrast)

    def _squares(self, tables: Counts, used: Bools) -> Floats:
        """Return bounds on the mean square of a coordinate of B U / g, for any data.

        That of B u is B^2 / d: data change the density of u by an odd function only. Rounding adds
        at most B^2 / (4 g^2).
        """
        mean_square = 1 / self.dimension + 1 / (4 * self.grid**2)
        return (self.scale[used] ** 2 * mean_square)[None, :, None]

    def log_likelihood(self, reports: Reports, level: int, value: Any) -> Floats:
        """Return the log likelihood of each report's direction for a vector in the unit ball.

        Rounding to the grid is ignored: it changes a sign only if the inner product is nearly zero.
        """
        vector = np.asarray(value, dtype=np.float64)
        length = min(float(np.linalg.norm(vector)), 1.0)
        contrast: Floats = self.signs.contrast[level] * length * np.sign(reports @ vector)
        return np.log1p(contrast)
