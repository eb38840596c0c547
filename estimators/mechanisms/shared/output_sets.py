"""The base of mechanisms that report an output of the input's set, or miss it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from estimators.exact.thresholds import WORD, miss_threshold
from estimators.mechanisms.mechanism import Mechanism
from estimators.shuffling.set_laws import SetLaw


class OutputSets(Mechanism):
    """A mechanism that reports an output of the input's set, or one of the others.

    See :func:`estimators.exact.thresholds.miss_threshold`. `misses`: T, per level: a 64-bit word
    below T misses the set.
    """

    misses: list[int]

    def _set_misses(
        self,
        epsilons: Sequence[Fraction],
        set_sizes: Iterable[int],
        complement_sizes: Iterable[int],
    ) -> list[Fraction]:
        """Set the thresholds for these numbers of outputs; return the probabilities of a miss."""
        self._outputs = list(zip(set_sizes, complement_sizes, strict=True))
        self.misses = [
            miss_threshold(e, *outputs) for e, outputs in zip(epsilons, self._outputs, strict=True)
        ]
        self._thresholds = np.array(self.misses, dtype=np.uint64)
        return [Fraction(misses, WORD) for misses in self.misses]

    def privacy_ratio(self, level: int) -> Fraction:
        """Return the ratio of an output in the set and out of it, exactly.

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
