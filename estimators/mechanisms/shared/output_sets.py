"""The bases of mechanisms whose outputs belong to the set of a value, or support a value."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from estimators.estimate import Bools, Floats, Integers
from estimators.exact.difference_sets import DifferenceSet
from estimators.exact.randomness import Bits
from estimators.exact.sampling import bernoulli, uniform_below
from estimators.exact.thresholds import WORD, miss_threshold
from estimators.mechanisms.mechanism import Epsilons, Mechanism, Reports
from estimators.shuffling.set_laws import SetLaw


class OutputSets(Mechanism):
    """A mechanism that reports an output from a set that belongs to the value, or another output.

    `misses`: T, per level: the output is outside the set if a uniform 64-bit word is below T. See
    :func:`estimators.exact.thresholds.miss_threshold`.
    """

    misses: list[int]

    def _set_misses(
        self, epsilons: Epsilons, set_sizes: Iterable[int], complement_sizes: Iterable[int]
    ) -> list[Fraction]:
        """Set the thresholds, given the numbers of outputs in and outside a set of each level.

        Returns the probabilities of a miss.
        """
        self._outputs = list(zip(set_sizes, complement_sizes, strict=True))
        self.misses = [
            miss_threshold(e, *outputs) for e, outputs in zip(epsilons, self._outputs, strict=True)
        ]
        self._thresholds = np.array(self.misses, dtype=np.uint64)
        return [Fraction(misses, WORD) for misses in self.misses]

    def privacy_ratio(self, level: int) -> Fraction:
        """Return the exact ratio of the probabilities of an output in the set and one outside.

        It is (2^64 - T) b / (T a) for a outputs in the set and b outside.
        """
        misses, (set_size, complement_size) = self.misses[level], self._outputs[level]
        return Fraction((WORD - misses) * complement_size, misses * set_size)

    def set_laws(self, level: int) -> tuple[SetLaw, ...]:
        """Return the law of reports for the set sizes of a level."""
        set_size, complement_size = self._outputs[level]
        return (
            SetLaw(
                self.privacy_ratio(level),
                Fraction(set_size, set_size + complement_size),
                self._least_overlap(level),
                is_sign=self.columns == 1 + 2,  # the number of reports, and two symbols
            ),
        )

    def _least_overlap(self, level: int) -> Fraction:
        """Return the least share of all outputs that the sets of two values have in common."""
        return Fraction(0)


class SupportReports(Mechanism):
    """A frequency mechanism whose reports are likeliest for the categories that they support."""

    kinds = frozenset({"frequency"})

    @abstractmethod
    def supports(self, reports: Reports, level: int, category: Any) -> Bools:
        """Return which `reports`, n rows of one level, support a category, shape (n,).

        `level`: the index of the level; `category`: an index, or the 64-bit key of a string.
        """

    def log_likelihood(self, reports: Reports, level: int, value: Any) -> Floats:
        """Return ln of the privacy ratio for reports that support the category, 0 for others."""
        return np.where(self.supports(reports, level, value), self.log_ratio(level), 0.0)


class PointResponses(OutputSets):
    """A mechanism that reports a point on, or less likely off, the hyperplane of the value's point.

    If a uniform 64-bit word is below T, the reported point is uniform off the hyperplane, otherwise
    uniform on it. Uniform integers are drawn by rejection.
    """

    def _set_spaces(self, epsilons: Epsilons, spaces: Sequence[DifferenceSet]) -> None:
        """Set the thresholds of `spaces`, one for each of the `epsilons`."""
        self._spaces = list(spaces)
        self._sizes = np.array([space.size for space in spaces], dtype=np.int64)
        self._points = np.array([space.points for space in spaces], dtype=np.int64)
        self._set_misses(epsilons, self._sizes.tolist(), (self._points - self._sizes).tolist())

    def _least_overlap(self, level: int) -> Fraction:
        return Fraction(self._spaces[level].shared, self._spaces[level].points)

    def _respond(self, centre: Integers, part: Integers, bits: Bits) -> Integers:
        """Return a reported point for each value.

        `centre`: the value's point; `part`: the index of the space that has it.
        """
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
