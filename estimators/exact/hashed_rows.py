"""Rows of points: the part of a statistic that answers for any string, at one level.

Each row has a public hash of keys to the points of a projective space. A report names a row and a
point in it; how many reports support a key is read from its own point in each row.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from numpy.typing import NDArray

from estimators.estimate import Counts
from estimators.exact.geometries import Geometry, points_of
from estimators.exact.hashing import hash_constants, mix
from estimators.exact.randomness import Words

AT_A_TIME = 2**15
"""Points that are computed together: what a cache holds."""


@dataclasses.dataclass(frozen=True, eq=False)
class HashedRows:
    """The rows of one level: t hashes of keys to K points.

    `geometry`: of the points of a row; `rows`: t; `first`: the index of the first row's hash;
    `seed`: of the hashes: the point of a key in a row is floor(K mix(key ^ constant) / 2^64).
    """

    geometry: Geometry
    rows: int
    first: int
    seed: int

    @functools.cached_property
    def constants(self) -> Words:
        """The constants of the hashes, shape (t,)."""
        return self._constants_of(np.arange(self.rows))

    def _constants_of(self, row: NDArray[np.int64]) -> Words:
        return hash_constants(self.seed, self.first + row)

    @property
    def symbols(self) -> int:
        """The number of possible reports, t K."""
        return self.rows * self.geometry.points

    def points(self, keys: Words) -> NDArray[np.int64]:
        """Return the points of keys in each row, shape (n, t)."""
        return points_of(mix(keys[:, None] ^ self.constants), self.geometry.points)

    def points_in(self, row: NDArray[np.int64], keys: Words) -> NDArray[np.int64]:
        """Return the point of each key in a row of its own, shape (n,).

        `row`, shape (n,); `keys`, shape (n,).
        """
        return points_of(mix(keys ^ self._constants_of(row)), self.geometry.points)

    def supports(self, reports: NDArray[np.int64], key: int) -> NDArray[np.bool_]:
        """Return which reports lie on the hyperplane of a key's point; none from t K on.

        `reports`, shape (n,): those of another level may be larger than any of this one.
        """
        is_supported = np.zeros(reports.size, dtype=np.bool_)
        of_this_level = np.flatnonzero(reports < self.symbols)
        row, point = np.divmod(reports[of_this_level], self.geometry.points)
        key_points = self.points_in(row, np.full(row.size, key, dtype=np.uint64))
        is_supported[of_this_level] = np.isin(
            (point - key_points) % self.geometry.points, self.geometry.space.members
        )
        return is_supported

    def support(self, counts: Counts, keys: Words) -> Counts:
        """Return how many reports support each key, shape (k,).

        `counts`, shape (t, K): reports of each point in each row; `keys`, shape (k,).
        """
        geometry, support = self.geometry, np.empty(keys.size, dtype=np.int64)
        sums = geometry.space.translated_sums(counts, geometry.points).ravel()
        sums = sums.astype(np.min_scalar_type(sums.max()))  # a table that a cache holds
        first, step = np.arange(self.rows) * geometry.points, max(1, AT_A_TIME // self.rows)
        for begin in range(0, keys.size, step):
            cells = self.points(keys[begin : begin + step])
            cells += first
            support[begin : begin + step] = sums.take(cells).sum(axis=1, dtype=np.int64)
        return support
