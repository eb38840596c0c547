"""The base of mechanisms whose report is a point of a projective space."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from estimators.exact.difference_sets import DifferenceSet
from estimators.exact.randomness import Bits
from estimators.exact.sampling import bernoulli, uniform_below
from estimators.mechanisms.shared.output_sets import OutputSets


class PointResponses(OutputSets):
    """A mechanism that reports a point of the hyperplane of the value's own point, or misses it.

    A 64-bit word below T misses it. The point is then uniform off the hyperplane, otherwise uniform
    on it, by integers with rejection.
    """

    def _set_spaces(self, epsilons: Sequence[Fraction], spaces: Sequence[DifferenceSet]) -> None:
        """Set the thresholds of the spaces, one for each level or for each of its parts."""
        self._spaces = list(spaces)
        self._sizes = np.array([space.size for space in spaces], dtype=np.int64)
        self._points = np.array([space.points for space in spaces], dtype=np.int64)
        self._set_misses(epsilons, self._sizes.tolist(), (self._points - self._sizes).tolist())

    def _least_overlap(self, level: int) -> Fraction:
        return Fraction(self._spaces[level].shared, self._spaces[level].points)

    def _respond(
        self, centre: NDArray[np.int64], part: NDArray[np.int64], bits: Bits
    ) -> NDArray[np.int64]:
        """Return a point for each value's own point, in the space of its part."""
        points, sizes = self._points[part], self._sizes[part]
        missed = bernoulli(bits, self._thresholds, part)
        bound = np.where(missed, points - sizes, sizes).astype(np.uint64)
        rank = uniform_below(bits, bound).astype(np.int64)
        point = np.empty_like(rank)
        for used in np.unique(part).tolist():
            space, of_part = self._spaces[used], part == used
            point[of_part & ~missed] = space.members_at(rank[of_part & ~missed])
            point[of_part & missed] = space.others_at(rank[of_part & missed])
        return (point + centre) % points
