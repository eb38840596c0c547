"""Projective sketch for open vocabularies: any string may be reported, and asked for later."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.estimate import Counts
from estimators.exact.geometries import LARGEST, best_geometry
from estimators.exact.hashed_rows import HashedRows
from estimators.exact.randomness import Bits
from estimators.exact.sampling import uniform_below
from estimators.exact.thresholds import WORD
from estimators.limits import LARGEST_TABLE
from estimators.mechanisms.mechanism import Levels, Reports
from estimators.mechanisms.shared.point_responses import PointResponses
from estimators.mechanisms.shared.string_lookups import StringLookups
from estimators.mechanisms.shared.symbols import ReportedSymbols

LIMITS = (64, 2048)
"""The least and the largest number of points of a row."""


class ProjectiveSketch(PointResponses, ReportedSymbols, StringLookups):
    """Rows of hashed points; a report is a point of one row, by projective geometry response.

    A level has t rows, each with a public hash of keys to the K points of a projective space. The
    device draws its row, and answers for the string's point in it by
    :class:`~estimators.mechanisms.projective_geometry_response.ProjectiveGeometryResponse` with its
    full epsilon. A report is the integer ``row K + point``, in 1, 2 or 4 bytes. Statistic of a
    level: the number of reports and the number for each integer. Source: Pan (2406.03785) for
    hashing by rows with a closed mechanism in each; Feldman, Nelson, Nguyen and Talwar (2022) for
    the response.

    Parameters
    ----------
    epsilons : sequence of Fraction
        The privacy levels, ascending. Levels above 6 report at 6.
    categories : None
        The vocabulary is open: ``categories = "open"`` in a metric. Values are 64-bit keys.
    rows, points : int
        The size of a level's table: at least 1 row, 64 to 2,048 points in each.
    seed : int
        The public seed of the hashes; below 2^64. Anyone who knows it can choose strings that
        collide with another one.

    Notes
    -----
    **Geometry.** K is as near to `points` as the variance allows
    (:func:`estimators.exact.geometries.best_geometry`), and t the largest number of rows with t K
    <= rows points. So all levels have tables of about one size, in which collisions are about as
    rare. Each level has hashes of its own.

    **Privacy.** The row does not depend on the value, and the report shows it. Given the row, a
    64-bit word below T = ceil(2^64 (K - s) / (s e^epsilon + K - s)) draws a point off the
    hyperplane, of s points, of the string's point. So no report is more than (2^64 - T)(K - s) / (T
    s) times likelier under another string.

    **Variance.** A report supports a string that nobody holds with probability s / K over the
    hashes, whatever the others hold. Its variance is within 4.5% of 4 e^epsilon / (e^epsilon - 1)^2
    up to epsilon = 6, the least that is possible. Collisions add sum f_x^2 / (t K) over the other
    strings x, at any number of reports.

    **Bounds.** Collisions can only add to a frequency; how much is bounded over the hashes. Neither
    the strings in a query nor people's values may depend on the seed:
    :mod:`estimators.bounds.sketches.hashed_points`.

    Examples
    --------
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
        epsilons: Sequence[Fraction],
        *,
        categories: None,
        rows: int = 1024,
        points: int = 364,
        seed: int = 0,
    ) -> None:
        super().__init__(epsilons)
        if rows < 1:
            raise ValueError(f"rows = {rows}: expected 1 or more")
        if not LIMITS[0] <= points <= LIMITS[1]:
            raise ValueError(f"points = {points}: expected {LIMITS[0]} to {LIMITS[1]}")
        cells = rows * points
        if cells > LARGEST_TABLE:
            raise ValueError(f"rows * points = {cells}: expected at most {LARGEST_TABLE}")
        if not 0 <= seed < WORD:
            raise ValueError(f"seed = {seed}: expected 0 to 2^64 - 1")
        self.seed = seed
        exact = [min(epsilon, LARGEST) for epsilon in self.epsilons]
        geometries = [best_geometry(epsilon, LIMITS, points) for epsilon in exact]
        self._set_spaces(exact, [geometry.space for geometry in geometries])
        counts = [max(1, cells // geometry.points) for geometry in geometries]
        firsts = accumulate(counts, initial=0)
        tables = zip(geometries, counts, firsts, strict=False)
        self._set_rows([HashedRows(*each, seed) for each in tables])
        self._count_symbols([each.symbols for each in self.hashed_rows])
        self._rows = np.array(counts, dtype=np.uint64)

    def randomize(self, values: NDArray[Any], level: Levels, bits: Bits) -> Reports:
        """Return the number of one point of one row for each key."""
        index = level.astype(np.int64)
        row = uniform_below(bits, self._rows[index]).astype(np.int64)
        own = np.empty_like(row)
        for used in np.unique(index).tolist():
            on = np.flatnonzero(index == used)
            own[on] = self.hashed_rows[used].points_in(row[on], values[on])
        point = self._respond(own, index, bits)
        return (row * self._points[index] + point).astype(self.dtype)

    def row_counts(self, table: Counts, level: int) -> Counts:
        """Return how many reports of a level name each point of each row, shape (t, K)."""
        each = self.hashed_rows[level]
        return table[level, 1 : 1 + each.symbols].reshape(each.rows, each.geometry.points)

    def supports(self, reports: Reports, level: int, key: Any) -> NDArray[np.bool_]:
        """Return which reports lie on the hyperplane of the key's point in their row.

        Parameters
        ----------
        reports : ndarray of int, shape (n,)
            Of one level.
        level : int
            Its index.
        key : int
            The 64-bit key of a string.
        """
        return self.hashed_rows[level].supports(reports.astype(np.int64), int(key))
