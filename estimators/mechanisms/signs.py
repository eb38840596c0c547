"""What randomized response and RAPPOR share: flipped signs, their weights and their estimate."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from estimators.bounds import Law
from estimators.estimate import Counts, Floats
from estimators.question import Question
from estimators.thresholds import WORD, flip_threshold


class FlippedSigns:
    """Signs that are flipped with probability T / 2^64, one integer threshold T a level.

    Parameters
    ----------
    epsilons : sequence of Fraction
        What one sign may cost, per level.

    Attributes
    ----------
    flips : list of int
        T, per level.
    flip : ndarray of float64, shape (levels,)
        T / 2^64, the probability of a flip.
    contrast : ndarray of float64, shape (levels,)
        a = 1 - 2 T / 2^64, the mean of a reported sign that was +1: tanh(epsilon / 2) up to
        rounding.
    """

    def __init__(self, epsilons: Sequence[Fraction]) -> None:
        self.flips = [flip_threshold(epsilon) for epsilon in epsilons]
        self.thresholds = np.array(self.flips, dtype=np.uint64)
        self.flip = np.array([float(Fraction(t, WORD)) for t in self.flips])
        self.contrast = np.array([float(Fraction(WORD - 2 * t, WORD)) for t in self.flips])

    def ratio(self, level: int) -> Fraction:
        """Return (2^64 - T) / T: the exact ratio of a reported sign's probabilities."""
        flips = self.flips[level]
        return Fraction(WORD - flips, flips)

    def law(self, counts: Counts, shares: Floats, question: Question) -> Law:
        """Return the law of the weighted mean of unbiased signs; some count is above zero."""
        used = counts > 0
        n, contrast = counts[used].astype(np.float64), self.contrast[used]
        free = not question.one_mean(len(n))
        return Law(n, shares[used] / (n * contrast), contrast, free=free)

    def mean(self, counts: Counts, shares: Floats, ones: Counts) -> Floats:
        """Return the weighted mean of unbiased signs, in [-1, 1] but for noise.

        Parameters
        ----------
        counts : ndarray of int64, shape (levels,)
        shares : ndarray of float64, shape (levels,)
            Weights that sum to one, zero where there is no report.
        ones : ndarray of int64, shape (levels, k)
            How many of the reported signs were +1.

        Returns
        -------
        ndarray of float64, shape (k,)
        """
        result: Floats = shares @ self.means(counts, ones)
        return result

    def means(self, counts: Counts, ones: Counts) -> Floats:
        """Return each level's unbiased mean, zero where there is no report; shape (levels, k)."""
        scale = np.maximum(counts, 1) * self.contrast
        result: Floats = (2 * ones - counts[:, None]) / scale[:, None]
        return result
