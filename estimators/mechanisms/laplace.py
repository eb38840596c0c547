"""The Laplace mechanism for the mean of a value in [-1, 1], in integers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from estimators.bounds import LaplaceNoise, Law
from estimators.bounds.signs.noise import Noise
from estimators.estimate import Array, Counts, Floats
from estimators.exact import discrete_laplace
from estimators.exact.laplace_sampler import discrete_laplace as noise_of
from estimators.exact.randomness import Bits
from estimators.exact.sampling import round_up
from estimators.exact.tallies import tally
from estimators.exact.thresholds import WORD, exp_bounds
from estimators.mechanisms.mechanism import Epsilons, Levels, Reports, refuse_first, rows_by_level
from estimators.mechanisms.shared.means import ScalarMean
from estimators.question import Question
from estimators.weights import LevelFacts

LOW_BITS = 31
MOST_REPORTS = 2**32  # the most reports that a statistic can hold


class Laplace(ScalarMean):
    """Discrete Laplace noise on a grid.

    A value x in [-1, 1] is rounded at random to the grid of step 1/g (unbiased), and an integer z
    with P(z) proportional to exp(-epsilon |z| / (2 g)) is added: the report is g x + z, clamped to
    [-M, M]. Source: HLDP, Algorithm 1, made discrete after Ghosh, Roughgarden and Sundararajan
    (2009).

    **Privacy.** Theorem 3 of docs/proofs/privacy.md. A value outside [-1, 1] is clipped first.

    **The clamp.** M = g + ceil(92 g / epsilon). With q = exp(-epsilon / (2 g)), P(|z| > t) = 2
    q^(t+1) / (1 + q) < 2^-64 once t >= 65 ln 2 (2 g / epsilon), and 65 ln 2 < 46: a report is
    clamped with probability below 2^-64. The bounds are those of n unclamped reports at beta - n
    2^-64; at all times, they are those at beta - 2^-32, because a statistic holds at most 2^32
    reports.

    **The statistic.** Columns: n, sum y, sum (y^2 >> 31), sum (y^2 & (2^31 - 1)). With |y| < 2^31
    no column can overflow 64 bits before 2^32 reports, whatever their values.

    Parameters
    ----------
    grid : int
        g, a power of two.

    Raises
    ------
    ValueError
        If `grid` is not a power of two, or a report would not fit into 32 bits at the lowest level.

    Examples
    --------
    >>> from estimators.exact.randomness import SeededBits
    >>> mechanism = Laplace([Fraction(1)], grid=64)
    >>> mechanism.randomize(np.array([0.5, 0.5]), np.array([0, 0]), SeededBits(1))
    array([ 26, 116], dtype=int32)
    """

    name = "laplace"
    dtype = np.dtype("<i4")
    columns = 4

    def __init__(self, epsilons: Epsilons, *, grid: int = 1024) -> None:
        super().__init__(epsilons)
        check_grid(grid)
        self.grid = grid
        self._rates = [epsilon / (2 * grid) for epsilon in self.epsilons]
        limits = [grid + -(-92 * grid // epsilon) for epsilon in self.epsilons]
        if max(limits) >= 2**31:
            raise ValueError(
                f"grid = {grid} at epsilon = {float(self.epsilons[0])} needs reports up to "
                f"{max(limits)}: expected less than 2^31; use a coarser grid or a larger epsilon"
            )
        self.limits = np.array(limits, dtype=np.int64)
        """M per level: the largest report."""
        self.rate = np.array([float(rate) for rate in self._rates])
        """The rate of the noise at each level: epsilon / (2 g)."""
        epsilon = np.array([float(e) for e in self.epsilons])
        variances = 1 + discrete_laplace.variance(self.rate) / grid**2
        self.facts = LevelFacts(epsilon, variances, paper=1 / (1 + 1 / epsilon**2))

    def randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        """Return one report, an integer within its level's limit, for each value in [-1, 1]."""
        scaled = np.clip(values, -1, 1) * self.grid
        floor = np.floor(scaled)
        rounded = floor.astype(np.int64) + round_up(bits, scaled - floor)
        noise = np.empty(level.size, dtype=np.int64)
        for used, rows in rows_by_level(level, len(self.epsilons)):
            noise[rows] = noise_of(self._rates[used]).draw(bits, noise[rows].size)
        limit = self.limits[level]
        return np.asarray(np.clip(rounded + noise, -limit, limit).astype(self.dtype))

    def check_values(self, levels: bytes, values: bytes) -> None:
        """Raise ReportError for a report beyond the limit of its level."""
        reports = np.frombuffer(values, dtype=self.dtype)
        limit = self.limits[np.frombuffer(levels, dtype=np.uint8)]
        refuse_first(
            (reports > limit) | (reports < -limit),
            lambda i: f"report {reports[i]}: expected -{limit[i]} to {limit[i]} at its level",
        )

    def accumulate(self, table: Counts, level: Levels, reports: Reports) -> None:
        """Add reports to a table with columns (reports, sum, high and low part of the squares)."""
        table[:, 0] += tally(level, len(self.epsilons))
        y = reports.astype(np.int64)
        square = y * y
        np.add.at(table[:, 1], level, y)
        np.add.at(table[:, 2], level, square >> LOW_BITS)
        np.add.at(table[:, 3], level, square & (2**LOW_BITS - 1))

    def level_means(self, table: Counts) -> Floats:
        """Return the unbiased mean of each level, zero without reports."""
        return table[:, 1] / np.maximum(table[:, 0], 1) / self.grid

    def law(self, counts: Counts, shares: Floats, question: Question | None = None) -> Law:
        """Return the law of the weighted mean of values with noise; see :meth:`ScalarMean.law`."""
        used = counts > 0
        n = counts[used].astype(np.float64)
        free = question is not None and not question.one_mean(len(n))
        return Law(n, shares[used] / n, np.ones_like(n), self.rate[used], 1 / self.grid, free)

    def noise(self, law: Law, counts: Counts) -> Noise:
        """Return the law of the error due to noise and rounding, whatever the values are."""
        return LaplaceNoise(law.counts, law.coefficient, self.rate[counts > 0], 1 / self.grid)

    def outside_law(self, question: Question, counts: Counts) -> float:
        """Return a bound on the probability that any report is clamped.

        For bounds at all times, it covers MOST_REPORTS reports, and is 1 if there are more.
        """
        reports = int(counts.sum())
        max_reports = MOST_REPORTS if question.bound == "anytime" else reports
        return max_reports / WORD if reports <= max_reports else 1.0

    def log_likelihood(self, reports: Reports, level: int, value: Any) -> Floats:
        """Return the log likelihood of each report for a value in [-1, 1], ignoring the clamp."""
        floor = np.floor(value * self.grid)
        up = value * self.grid - floor
        log_down: Floats = -self.rate[level] * np.abs(reports - floor)
        if not up:
            return log_down
        log_up = -self.rate[level] * np.abs(reports - floor - 1)
        return np.asarray(np.logaddexp(np.log1p(-up) + log_down, np.log(up) + log_up))

    def report_range(self) -> tuple[Floats, Floats]:
        """Return the values that the reports -M and M represent, per level."""
        largest = self.limits / self.grid
        return -largest, largest

    def privacy_exponent(self, level: int) -> Fraction:
        """Return the exact x for which the largest ratio of output probabilities is e^x.

        Two inputs on the grid are at most 2 g apart, and the sampler draws neighbouring numbers
        with the exact ratio e^-rate, so x = 2 g rate.
        """
        return 2 * self.grid * noise_of(self._rates[level]).rate

    def privacy_ratio(self, level: int) -> Fraction:
        """Return e^x rounded down to a fraction, with x from :meth:`privacy_exponent`.

        The reports M and -M attain the ratio e^x, which is irrational.
        """
        return exp_bounds(self.privacy_exponent(level))[0]

    def is_private(self, level: int) -> bool:
        """Return whether the exact exponent is at most epsilon."""
        return self.privacy_exponent(level) <= self.epsilons[level]


def check_grid(grid: int) -> None:
    """Raise ValueError unless the grid is a power of two."""
    if grid < 1 or grid & (grid - 1):
        raise ValueError(f"grid = {grid}: expected a power of two")
