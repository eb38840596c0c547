"""The bases of mechanisms whose outputs are in the set of a value, or support it."""

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
    """A mechanism that reports an output of the input's set, or one of the others.

    See :func:`estimators.exact.thresholds.miss_threshold`. `misses`: T, per level: a 64-bit word
    below T misses the set.
    """

    misses: list[int]

    def _set_misses(
        self, epsilons: Epsilons, set_sizes: Iterable[int], complement_sizes: Iterable[int]
    ) -> list[Fraction]:
        """Set the thresholds for these numbers of outputs; return the probabilities of a miss."""
        self._outputs = list(zip(set_sizes, complement_sizes, strict=True))
        self.misses = [
            miss_threshold(e, *outputs) for e, outputs in zip(epsilons, self._outputs, strict=True)
        ]
        self._thresholds = np.array(self.misses, dtype=np.uint64)
        return [Fraction(misses, WORD) for misses in self.misses]

    def privacy_ratio(self, level: int) -> Fraction:
        """Return the exact ratio of probabilities of an output in the set and one outside.

        It is (2^64 - T) outside / (T inside).
        """
        misses, (set_size, complement_size) = self.misses[level], self._outputs[level]
        return Fraction((WORD - misses) * complement_size, misses * set_size)

    def set_laws(self, level: int) -> tuple[SetLaw, ...]:
        """Return the law of sets of this size."""
        set_size, complement_size = self._outputs[level]
        return (
            SetLaw(
                self.privacy_ratio(level),
                Fraction(set_size, set_size + complement_size),
                self._least_overlap(level),
                is_sign=self.columns == 1 + 2,  # reports, and two symbols
            ),
        )

    def _least_overlap(self, level: int) -> Fraction:
        """Return the least share of the outputs that the sets of two values have in common."""
        return Fraction(0)


class SupportReports(Mechanism):
    """A frequency mechanism whose reports are likeliest for the categories that they support."""

    kinds = frozenset({"frequency"})

    @abstractmethod
    def supports(self, reports: Reports, level: int, category: Any) -> Bools:
        """Return which `reports`, n rows of one level, support a category, shape (n,).

        `level`: its index; `category`: an index, or the 64-bit key of a string.
        """

    def log_likelihood(self, reports: Reports, level: int, value: Any) -> Floats:
        """Return the logarithm of the largest ratio for a report that supports the category."""
        return np.where(self.supports(reports, level, value), self.log_ratio(level), 0.0)


class PointResponses(OutputSets):
    """A mechanism that reports a point of the hyperplane of the value's own point, or misses it.

    A 64-bit word below T misses it. The point is then uniform off the hyperplane, otherwise uniform
    on it, by integers with rejection.
    """

    def _set_spaces(self, epsilons: Epsilons, spaces: Sequence[DifferenceSet]) -> None:
        """Set the thresholds of the spaces, one for each level or for each of its parts."""
        self._spaces = list(spaces)
        self._sizes = np.array([space.size for space in spaces], dtype=np.int64)
        self._points = np.array([space.points for space in spaces], dtype=np.int64)
        self._set_misses(epsilons, self._sizes.tolist(), (self._points - self._sizes).tolist())

    def _least_overlap(self, level: int) -> Fraction:
        return Fraction(self._spaces[level].shared, self._spaces[level].points)

    def _respond(self, centre: Integers, part: Integers, bits: Bits) -> Integers:
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
