"""Hemisphere sampling for the mean of a vector in the unit ball: a unit vector on a grid."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.bounds import Directions
from estimators.bounds.spheres import inverse_mean_size
from estimators.estimate import Counts, Floats
from estimators.mechanisms.mechanism import Reports
from estimators.mechanisms.shared.ranked_directions import RankedDirections
from estimators.mechanisms.shared.signs import FlippedSigns
from estimators.weights import LevelFacts


class Hemisphere(RankedDirections):
    """A direction from the hemisphere around the value or, by a private coin, from the other one.

    The device draws u uniform on the unit sphere and rounds it at random to the grid 1/g, which
    gives an integer vector U with E[U | u] = g u; both are independent of the value. Then v = x /
    |x| or, with probability 1/2 - |x| / 2, its opposite. The report is U or -U, so that <u, v> gets
    the sign +, or with probability 1 / (1 + e^epsilon) the sign -. At x = 0 the sign of U is a fair
    coin. The estimate is the mean of B U / g, B = c K_d, with c = (e^epsilon + 1) / (e^epsilon - 1)
    and K_d = sqrt(pi) Gamma((d+1)/2) / Gamma(d/2). Source: HLDP, Algorithms 3 and 4 (whose B is
    twice too large), after Duchi, Jordan and Wainwright (2013).

    Parameters
    ----------
    epsilons : sequence of Fraction
        The privacy levels, ascending.
    dimension : int
        d, at least 1.
    grid : int
        g, at most 2^24. A report takes 2 d bytes for g < 2^15, else 4 d.

    Notes
    -----
    **Privacy.** u and U are drawn before the device looks at the value, and independently of it.
    Given them, the report is one of two vectors, U and -U. Which one is the sign of <u, v>, or its
    opposite by a coin of T / 2^64, independent of everything, T = ceil(2^64 / (1 + e^epsilon)): so
    given (u, U), and whatever v is, each of the two has a probability between T / 2^64 and 1 - T /
    2^64 (and exactly 1 if U = -U = 0). For every report m and all values x and x',

        P(m | x) = E P(m | x, u, U) <= (2^64 - T) / T * E P(m | x', u, U) = ratio * P(m | x'),

    the mean being over the same law of (u, U) on both sides. **This is exact in floating point:**
    the proof assumes nothing about the law of u, or about how <u, v> is rounded, summed or tied,
    except that it is a function of (u, v). Doubles determine the *offered* direction, and the
    integer threshold alone determines the sign. So doubles can cost accuracy, but not privacy. All
    randomness is the operating system's.

    **No bias from the grid.** The sign is that of <u, v>, not of <U, v>; given u, the rounding is
    independent of the sign and has mean zero. So E[report] = (1 - 2 T / 2^64) g E[u sign<u, v>] = a
    g v / K_d, and v has mean x. The grid adds a variance of at most 1 / (4 g^2) a coordinate; the
    bounds include it.

    **Accuracy of u.** Normal variates are made of 32-bit uniforms by Box and Muller: 2^32 angles,
    evenly around the circle, and as many lengths, each in the middle of its share. That changes a
    mean, and so the mean of a report, by some 10^-10; the bounds are widened by 10^-8 B.

    **The law of a report.** Given x, its density with respect to the uniform law is 1 + a |x|
    sign<u, x>. So for users from any population it is 1 + a f(u) with f odd and |f| <= 1: E |u|^2 =
    1 and the law of |<u, e>| do not depend on the data. The bounds use this alone, so they hold for
    every target and any mix of values and levels.

    Examples
    --------
    >>> from estimators.exact.randomness import SeededBits
    >>> mechanism = Hemisphere([Fraction(1)], dimension=3)
    >>> mechanism.randomize(np.array([[0.6, 0.0, 0.8]]), np.array([0]), SeededBits(1)).shape
    (1, 3)
    """

    name = "hemisphere"

    def __init__(self, epsilons: Sequence[Fraction], *, dimension: int, grid: int = 2**14) -> None:
        super().__init__(epsilons, dimension, grid, [(2, 1)] * len(epsilons))
        self.dtype = np.dtype("<i2" if grid < 2**15 else "<i4")
        self.columns = 1 + dimension
        self.signs = FlippedSigns(self.epsilons)
        self.scale = inverse_mean_size(dimension) / self.signs.contrast
        epsilon = np.array([float(e) for e in self.epsilons])
        self.facts = LevelFacts(epsilon, 1 / self.signs.contrast**2, paper=epsilon**2)

    def _law(
        self,
        table: Counts,
        used: NDArray[np.bool_],
        coefficient: Floats,
        mean: Floats,
        one_law: bool,
    ) -> Directions:
        n = table[used, 0].astype(np.float64)
        contrast = self.signs.contrast[used]
        return Directions(self.dimension, n, coefficient, contrast, 1 / self.grid)

    def _squares(self, table: Counts, used: NDArray[np.bool_]) -> Floats:
        """Return B^2 / d, whatever the data, because they shift the law of u by an odd function.

        Rounding by one step adds at most B^2 / (4 g^2).
        """
        each = 1 / self.dimension + 1 / (4 * self.grid**2)
        return (self.scale[used] ** 2 * each)[:, None]

    def log_likelihood(self, reports: Reports, level: int, value: Any) -> Floats:
        """Return the same for a vector in the unit ball, treating the report as its direction.

        Rounding to the grid can change a sign only if the inner product is nearly zero.
        """
        vector = np.asarray(value, dtype=np.float64)
        length = min(float(np.linalg.norm(vector)), 1.0)
        contrast: Floats = self.signs.contrast[level] * length * np.sign(reports @ vector)
        return np.log1p(contrast)
