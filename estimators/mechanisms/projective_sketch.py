"""Projective sketch for open vocabularies: any string may be reported, and queried later."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from estimators.estimate import Array, Bools, Counts
from estimators.exact.geometries import HashedRows, best_geometry
from estimators.exact.hashing import check_rows_and_seed
from estimators.exact.randomness import Bits
from estimators.exact.sampling import uniform_below
from estimators.limits import LARGEST_TABLE
from estimators.mechanisms.mechanism import Epsilons, Levels, Reports
from estimators.mechanisms.shared.outputs import PointResponses, ReportedSymbols
from estimators.mechanisms.shared.string_lookups import StringLookups

POINTS_RANGE = (64, 2048)
"""The least and the largest number of points of a row."""


class ProjectiveSketch(PointResponses, ReportedSymbols, StringLookups):
    """Rows of hashed points; a report is a point of one row, by projective geometry response.

    A level has t rows, each with a public hash of keys to the K points of a projective space. The
    device draws a row, and answers for the string's point in it by projective geometry response
    with the full epsilon. A report is the integer ``row K + point``. Statistic of a level: the
    number of reports and the number for each integer. Source: Pan (2406.03785) for the rows;
    Feldman, Nelson, Nguyen and Talwar (2022) for the response.

    **Geometry.** K is as close to `points` as the variance allows
    (:func:`estimators.exact.geometries.best_geometry`), and t is the largest number with t K <=
    rows points. Levels have different hashes.

    **Privacy.** Theorem 1 of docs/proofs/privacy.md, given the row, with M = K and W = s.

    **Variance.** Within 4.5% of 4 e^epsilon / (e^epsilon - 1)^2, the least possible, up to epsilon
    = 6. Collisions add sum f_x^2 / (t K) over the other strings x, at any number of reports
    (theorem 7 of docs/proofs/mechanisms.md).

    **Bounds** hold over the random hashes, if neither the strings in a query nor people's values
    depend on the seed.

    Parameters
    ----------
    epsilons : sequence of Fraction
        The privacy levels, ascending. Levels above 6 report at epsilon 6.
    categories : None
        The vocabulary is open: ``categories = "open"`` in a metric. Values are 64-bit keys.
    rows, points : int
        The size of a level's table: at least 1 row, and 64 to 2,048 points in each row.
    seed : int
        The public seed of the hashes; below 2^64. Anyone who knows it can choose strings that
        collide with a given string.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from estimators.metrics.categories import string_key
    >>> from estimators.exact.randomness import SeededBits
    >>> mechanism = ProjectiveSketch([Fraction(1), Fraction(4)], categories=None)
    >>> [(rows.rows, rows.geometry.points) for rows in mechanism.hashed_rows]
    [(1024, 364), (4659, 80)]
    >>> mechanism.columns, mechanism.width
    (372737, 4)
    >>> keys = np.full(4, string_key("N725MQ"), dtype=np.uint64)
    >>> mechanism.randomize(keys, np.array([0, 0, 1, 1]), SeededBits(1))
    array([ 92725,   4426, 116974, 150135], dtype=uint32)
    """

    name = "projective_sketch"
    open_vocabulary = True
    closed_vocabulary = False

    def __init__(
        self,
        epsilons: Epsilons,
        *,
        categories: None,
        rows: int = 1024,
        points: int = 364,
        seed: int = 0,
    ) -> None:
        super().__init__(epsilons)
        check_rows_and_seed(rows, seed)
        if not POINTS_RANGE[0] <= points <= POINTS_RANGE[1]:
            raise ValueError(f"points = {points}: expected {POINTS_RANGE[0]} to {POINTS_RANGE[1]}")
        cells = rows * points
        if cells > LARGEST_TABLE:
            raise ValueError(f"rows * points = {cells}: expected at most {LARGEST_TABLE}")
        self.seed = seed
        geometries = [best_geometry(epsilon, POINTS_RANGE, points) for epsilon in self.epsilons]
        self._set_spaces([g.epsilon for g in geometries], [g.space for g in geometries])
        counts = [max(1, cells // geometry.points) for geometry in geometries]
        firsts = accumulate(counts, initial=0)
        tables = zip(geometries, counts, firsts, strict=False)
        self._set_rows([HashedRows(*table, seed) for table in tables])
        self._count_symbols([table.symbols for table in self.hashed_rows])
        self._rows = np.array(counts, dtype=np.uint64)

    def randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        """Return one report, ``row K + point``, for each key."""
        index = level.astype(np.int64)
        row = uniform_below(bits, self._rows[index]).astype(np.int64)
        own_points = np.empty_like(row)
        for used in np.unique(index).tolist():
            of_level, rows = np.flatnonzero(index == used), self.hashed_rows[used]
            own_points[of_level] = rows.points_in(row[of_level], values[of_level])
        point = self._respond(own_points, index, bits)
        return (row * self._points[index] + point).astype(self.dtype)

    def row_counts(self, table: Counts, level: int) -> Counts:
        """Return how many reports of a level name each point of each row, shape (t, K)."""
        rows = self.hashed_rows[level]
        return table[level, 1 : 1 + rows.symbols].reshape(rows.rows, rows.geometry.points)

    def supports(self, reports: Reports, level: int, key: Any) -> Bools:
        """Return which `reports` lie on the hyperplane of the key's point in their row, shape (n,).

        `level`: the index of their level; `key`: the 64-bit key of a string.
        """
        return self.hashed_rows[level].supports(reports.astype(np.int64), int(key))
