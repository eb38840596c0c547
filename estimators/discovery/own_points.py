"""Tests whether anybody holds a string: Chernoff bounds for the reports at its points alone.

Theorems 1 and 2 of docs/proofs/discovery.md, in their symbols. The hashes are public: anybody can
find strings that share the points of others.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from estimators.discovery.report_layout import DiscoveryLayout
from estimators.estimate import Counts, Floats, Integers
from estimators.exact.randomness import Words

TEST_TILTS = np.arange(0.5, 9.01, 0.5)
"""Tilts in units of the reciprocal standard deviation of an estimate, fixed in advance."""
NORMAL_DISTANCE = 0.56
AT_A_TIME = 64
"""The number of strings that are tested together."""


@dataclasses.dataclass
class RowPopulations:
    """The populations from which a string draws its points: one for each level and row.

    `levels`: the levels with reports; `tables`: for each of these levels D, shape (t, K), or T
    after :meth:`peel`; `unit`: for each of these levels, shape (t,), what a string of frequency 1
    adds at its point, compared with other points; `information`: the reciprocal of the variance of
    an estimate.
    """

    layout: DiscoveryLayout
    levels: list[int]
    tables: list[Floats]
    unit: list[Floats]
    information: float

    @classmethod
    def of(cls, layout: DiscoveryLayout, table: Counts) -> RowPopulations:
        """Return the populations that a statistic contains."""
        counts = [layout.row_counts(cells, level) for level, cells in enumerate(table[:, 1:])]
        n = np.array([part.sum() for part in counts], dtype=np.float64)
        information = n / np.array([sketch.variance for sketch in layout.sketches])
        levels = np.flatnonzero(n).tolist()
        tables, unit = [], []
        for level in levels:
            sketch, per_row = layout.sketches[level], counts[level].sum(axis=1)
            points, share = sketch.points, information[level] / information.sum()
            weight = share * per_row / (n[level] * (1 - 1 / points))
            tables.append(weight[:, None] * sketch.frequencies(counts[level]))
            unit.append(weight)
        return cls(layout, levels, tables, unit, float(information.sum()))

    def points(self, keys: Words) -> list[Integers]:
        """Return the points of strings in each row, shape (n, t), for each level."""
        return [self.layout.hashed_rows[level].points(keys) for level in self.levels]

    def values(self, points: list[Integers]) -> Floats:
        """Return the tables' numbers at the strings' points, shape (n, rows of all levels)."""
        rows = np.arange(self.layout.rows)
        pairs = zip(self.tables, points, strict=True)
        return np.concatenate([table[rows, row_points] for table, row_points in pairs], axis=1)

    def peel(self, points: list[Integers], frequencies: Floats) -> None:
        """Subtract the estimated contributions of strings from the tables, at the strings' points.

        `points`: for each level, shape (n, t); `frequencies`, shape (n,): estimates that do not
        depend on the tables.
        """
        rows = np.broadcast_to(np.arange(self.layout.rows), points[0].shape if points else (0, 0))
        for table, unit, row_points in zip(self.tables, self.unit, points, strict=True):
            np.subtract.at(table, (rows, row_points), frequencies[:, None] * unit)

    @property
    def peeling_bias(self) -> float:
        """What peeling a string of frequency 1 subtracts on average at another string's points.

        It has to be added back: a string lowers D at all other points by 1 / (K - 1) of what it
        adds at its point.
        """
        parts = zip(self.levels, self.unit, strict=True)
        return sum(float(unit.sum()) / self.layout.sketches[level].points for level, unit in parts)


class TailBound:
    """A bound on the probability that a string which nobody holds reaches the observed statistic.

    `populations`: arrays of shape (rows, size), where each row is the population of one draw;
    `information`: the approximate reciprocal variance of the sum, for the choice of tilts, which
    must not depend on the populations.
    """

    def __init__(self, populations: list[Floats], information: float) -> None:
        self.tilts = TEST_TILTS * np.sqrt(information)
        self.sizes = np.concatenate(
            [np.full(len(population), population.shape[1]) for population in populations]
        )
        shape = self.tilts.size, self.sizes.size
        self.top = np.concatenate([population.max(axis=1) for population in populations])
        self.mass, self.mean, self.square, self.cube = (np.empty(shape) for _ in range(4))
        for k, tilt in enumerate(self.tilts.tolist()):
            first = 0
            for population in populations:
                rows = slice(first, first + len(population))
                first += len(population)
                odds = np.exp(tilt * (population - self.top[rows, None]))
                mass = odds.sum(axis=1)
                mean = (odds * population).sum(axis=1) / mass
                deviation = population - mean[:, None]
                odds *= deviation**2
                self.mass[k, rows], self.mean[k, rows] = mass, mean
                self.square[k, rows] = odds.sum(axis=1)
                self.cube[k, rows] = np.einsum("ij,ij->i", odds, np.abs(deviation))

    def log_p(self, sums: Floats) -> Floats:
        """Return ln of the bound for the statistics `sums` of strings, in the shape of `sums`."""
        tilt = self.tilts[:, None]
        cumulant = (np.log(self.mass / self.sizes) + tilt * self.top).sum(axis=1)
        variance = (self.square / self.mass).sum(axis=1)
        moments = cumulant, self.mean.sum(axis=1), variance, (self.cube / self.mass).sum(axis=1)
        return self._smallest_log_p(sums, *(part[:, None] for part in moments))

    def log_p_with(self, sums: Floats, old: Floats, new: Floats) -> Floats:
        """Return :meth:`log_p` for strings that each replace one number of each population.

        The third moment about the new mean follows from that about the old mean (Minkowski).
        `sums`, shape (n,); `old`, `new`, shape (n, rows): the number of each population that does
        not apply to the string, and the number that replaces it.
        """
        log_p = np.empty(sums.size)
        for start in range(0, sums.size, AT_A_TIME):
            part = slice(start, start + AT_A_TIME)
            log_p[part] = self._log_p_with(sums[part], old[part], new[part])
        return log_p

    def _log_p_with(self, sums: Floats, old: Floats, new: Floats) -> Floats:
        moments = np.empty((4, self.tilts.size, sums.size))
        top = np.maximum(self.top, new)
        for k, tilt in enumerate(self.tilts.tolist()):
            scale = np.exp(tilt * (self.top - top))
            without, added = np.exp(tilt * (old - top)), np.exp(tilt * (new - top))
            old_deviation, new_deviation = old - self.mean[k], new - self.mean[k]
            mass = np.maximum(self.mass[k] * scale - without, 0) + added
            shift = (added * new_deviation - without * old_deviation) / mass
            square = self.square[k] * scale + added * new_deviation**2 - without * old_deviation**2
            cube = self.cube[k] * scale + added * np.abs(new_deviation) ** 3
            cube -= without * np.abs(old_deviation) ** 3
            third = (np.cbrt(np.maximum(cube, 0) / mass) + np.abs(shift)) ** 3
            moments[0, k] = (np.log(mass / self.sizes) + tilt * top).sum(axis=1)
            moments[1, k] = (self.mean[k] + shift).sum(axis=1)
            moments[2, k] = (np.maximum(square, 0) / mass - shift**2).sum(axis=1)
            moments[3, k] = third.sum(axis=1)
        return self._smallest_log_p(sums, *moments)

    def _smallest_log_p(
        self, sums: Floats, cumulant: Floats, mean: Floats, variance: Floats, third: Floats
    ) -> Floats:
        from scipy.special import erfcx

        tilt = self.tilts[:, None]
        deviation = np.sqrt(np.maximum(variance, 1e-300))
        normal = erfcx(tilt * deviation / np.sqrt(2)) / 2
        factor = np.minimum(1, normal + 2 * NORMAL_DISTANCE * third / deviation**3)
        bound = cumulant - tilt * sums + np.log(factor)
        log_p: Floats = np.where(mean <= sums, bound, 0.0).min(axis=0)
        return np.minimum(log_p, 0.0)
