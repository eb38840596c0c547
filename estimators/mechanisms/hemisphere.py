"""Hemisphere sampling for the mean of a vector in the unit ball: a unit vector on a grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.bounds import Directions
from estimators.bounds.heterogeneity import heterogeneity_of_vectors
from estimators.bounds.spheres import vector_deviations, width
from estimators.errors import ReportError
from estimators.estimate import Counts, Estimate, Floats
from estimators.exact.randomness import Bits
from estimators.exact.sampling import bernoulli, round_up, uniform_directions
from estimators.exact.tallies import tally
from estimators.mechanisms.mechanism import Levels, Mechanism, Reports
from estimators.mechanisms.shared.signs import FlippedSigns
from estimators.question import Question
from estimators.weights import LevelFacts

CHUNK = 2**19  # coordinates drawn at a time: a few megabytes an array
LARGEST_GRID = 2**24  # squares of 2^14 such coordinates add up in 64 bits
ARITHMETIC = 1e-8
"""Added to the bounds, in units of one report: far above what rounding does to the law of u."""


class Hemisphere(Mechanism):
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
    kinds = frozenset({"vector_mean"})

    def __init__(self, epsilons: Sequence[Fraction], *, dimension: int, grid: int = 2**14) -> None:
        super().__init__(epsilons)
        if not 1 <= grid <= LARGEST_GRID:
            raise ValueError(f"grid = {grid}: expected 1 to {LARGEST_GRID}")
        self.dimension, self.grid = dimension, grid
        self.dtype = np.dtype("<i2" if grid < 2**15 else "<i4")
        self.shape = (dimension,)
        self.columns = 1 + dimension
        self.signs = FlippedSigns(self.epsilons)
        self.scale = width(dimension) / self.signs.contrast
        """B per level, for the unit ball."""
        epsilon = np.array([float(e) for e in self.epsilons])
        self.facts = LevelFacts(epsilon, 1 / self.signs.contrast**2, paper=epsilon**2)
        # |U - g u| < sqrt(d); at d = 1, u is a sign and nothing is rounded
        slack = math.sqrt(dimension) if dimension > 1 else 0.0
        self._least = math.floor(max(0.0, grid - slack) ** 2)
        self._largest = math.ceil((grid + slack) ** 2)

    def randomize(self, values: NDArray[Any], level: Levels, bits: Bits) -> Reports:
        """Return one integer vector for each row of `values`, shape (n, d), in the unit ball."""
        reports = np.empty(values.shape, dtype=self.dtype)
        rows = max(1, CHUNK // self.dimension)
        for start in range(0, len(values), rows):
            chunk = slice(start, start + rows)
            reports[chunk] = self._randomize(values[chunk], level[chunk], bits)
        return reports

    def _randomize(self, values: NDArray[Any], level: Levels, bits: Bits) -> Reports:
        direction = uniform_directions(bits, *values.shape)
        scaled = direction * self.grid
        floor = np.floor(scaled)
        up = round_up(bits, (scaled - floor).ravel()).reshape(scaled.shape)
        offered = floor.astype(self.dtype) + up
        length = np.minimum(np.sqrt(np.einsum("ij,ij->i", values, values)), 1)
        away = np.einsum("ij,ij->i", direction, values) < 0
        opposite = ~round_up(bits, (1 + length) / 2)
        turned = away ^ opposite ^ bernoulli(bits, self.signs.thresholds, level)
        return np.where(turned[:, None], -offered, offered)

    def check_values(self, levels: bytes, values: bytes) -> None:
        """Reject a vector farther from the unit sphere than rounding can move it."""
        reports = np.frombuffer(values, dtype=self.dtype).reshape(-1, self.dimension)
        rows = max(1, CHUNK // self.dimension)
        for start in range(0, len(reports), rows):
            wide = reports[start : start + rows].astype(np.int64)
            square = np.einsum("ij,ij->i", wide, wide)
            strange = (square < self._least) | (square > self._largest)
            strange |= (wide > self.grid).any(axis=1) | (wide < -self.grid).any(axis=1)
            if strange.any():
                index = int(strange.argmax())
                raise ReportError(
                    "bad_value",
                    f"a vector of squared length {square[index]}: expected {self._least} to "
                    f"{self._largest}, and coordinates from -{self.grid} to {self.grid}",
                )

    def accumulate(self, table: Counts, level: Levels, reports: Reports) -> None:
        """Add reports to a table with columns (reports, sum of coordinate 0, 1, ...)."""
        found = tally(level, len(self.epsilons))
        table[:, 0] += found
        one_level = np.count_nonzero(found) <= 1
        ordered = reports if one_level else reports[np.argsort(level, kind="stable")]
        start = 0
        for index, n in enumerate(found.tolist()):
            table[index, 1:] += ordered[start : start + n].sum(axis=0, dtype=np.int64)
            start += n

    def estimate(self, table: Counts, question: Question) -> Estimate:
        """Estimate the mean vector in the unit ball; `radius` bounds its error in the l2 norm.

        The bounds hold for all coordinates at once with probability 1 - beta, unless pointwise
        bounds were requested. So does the radius.
        """
        (counts, shares, total), sums = self._weigh(table, question), table[:, 1:]
        if not counts.any():
            ones = np.ones(self.dimension)
            none = ones * np.nan
            return self._answer(question, counts, shares, none, (-ones, ones), 0, radius=np.nan)
        used = counts > 0
        n = counts[used].astype(np.float64)
        coefficient = shares[used] / n * self.scale[used]
        mean: Floats = (coefficient / self.grid) @ sums[used]
        law = Directions(self.dimension, n, coefficient, self.signs.contrast[used], 1 / self.grid)
        slack = ARITHMETIC * float(n @ coefficient)
        side, radius = (x + slack for x in vector_deviations(law, question, total))
        farthest = float(np.linalg.norm(mean)) + 1  # the mean is in the ball
        bounds = np.clip(mean - side, -1, 1), np.clip(mean + side, -1, 1)
        nearest = min(radius, farthest)
        effective = 1 / law.variance
        scale, step = self.scale[used], 1 / self.grid
        means = sums[used] * (scale * step / n)[:, None]
        apart = heterogeneity_of_vectors(n, scale, step, means)
        return self._answer(question, counts, shares, mean, bounds, effective, apart, nearest)

    def log_likelihood(self, reports: Reports, level: int, value: Any) -> Floats:
        """Return the same for a vector in the unit ball, treating the report as its direction.

        Rounding to the grid can change a sign only if the inner product is nearly zero.
        """
        vector = np.asarray(value, dtype=np.float64)
        length = min(float(np.linalg.norm(vector)), 1.0)
        contrast: Floats = self.signs.contrast[level] * length * np.sign(reports @ vector)
        return np.log1p(contrast)

    def report_range(self) -> tuple[Floats, Floats]:
        """Return the values that a coordinate of +-g represents."""
        return -self.scale, self.scale

    def report_norm(self) -> Floats:
        """Return the l2 norm of the longest vector that a report of each level can represent."""
        return self.scale * math.sqrt(self._largest) / self.grid

    def privacy_ratio(self, level: int) -> Fraction:
        """Return (2^64 - T) / T, exactly: only the sign depends on the value."""
        return self.signs.ratio(level)
