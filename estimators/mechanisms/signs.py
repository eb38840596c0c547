"""What mechanisms that report signs share: their weights' coefficients and their estimate."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from estimators.bounds import Law
from estimators.estimate import Counts, Floats
from estimators.question import Question
from estimators.thresholds import WORD, flip_threshold


class ReportedSigns:
    """Signs that are +1 with probability p where +1 is held, and q elsewhere.

    A sign that stands for a value theta in [-1, 1], or for a frequency f = (1 + theta) / 2, has
    mean (p + q - 1) + (p - q) theta.

    Parameters
    ----------
    p, q : sequence of Fraction
        Per level, as the integer thresholds make them; p > q.

    Attributes
    ----------
    p, q : ndarray of float64, shape (levels,)
    contrast : ndarray of float64, shape (levels,)
        a = p - q.
    offset : ndarray of float64, shape (levels,), or None
        o = p + q - 1; None where it is zero at every level.
    """

    def __init__(self, p: Sequence[Fraction], q: Sequence[Fraction]) -> None:
        self.p = np.array([float(x) for x in p])
        self.q = np.array([float(x) for x in q])
        self.contrast = np.array([float(x - y) for x, y in zip(p, q, strict=True)])
        offset = [x + y - 1 for x, y in zip(p, q, strict=True)]
        self.offset = np.array([float(x) for x in offset]) if any(offset) else None

    def law(self, counts: Counts, shares: Floats, question: Question) -> Law:
        """Return the law of the weighted mean of unbiased signs; some count is above zero."""
        used = counts > 0
        n, contrast = counts[used].astype(np.float64), self.contrast[used]
        coefficient, free = shares[used] / (n * contrast), not question.one_mean(len(n))
        if self.offset is None:
            return Law(n, coefficient, contrast, free=free)
        fixed = question.target == "sample"
        return Law(n, coefficient, contrast, free=free, offset=self.offset[used], fixed=fixed)

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
        signs = 2 * ones - counts[:, None]
        if self.offset is not None:
            signs = signs - (counts * self.offset)[:, None]
        result: Floats = signs / (np.maximum(counts, 1) * self.contrast)[:, None]
        return result

    def even_variance(self, categories: int) -> Floats:
        """Return the variance of a category's unbiased indicator at f = 1/k, per level.

        The sum over the categories of p_j (1 - p_j), p_j = q + f_j (p - q), is concave in the
        frequencies, so this is the largest mean over the categories.
        """
        one = self.q + self.contrast / categories
        result: Floats = one * (1 - one) / self.contrast**2
        return result


class FlippedSigns(ReportedSigns):
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
        T / 2^64, the probability of a flip: q, and 1 - p.
    contrast : ndarray of float64, shape (levels,)
        a = 1 - 2 T / 2^64, the mean of a reported sign that was +1: tanh(epsilon / 2) up to
        rounding.
    """

    def __init__(self, epsilons: Sequence[Fraction]) -> None:
        self.flips = [flip_threshold(epsilon) for epsilon in epsilons]
        flip = [Fraction(flips, WORD) for flips in self.flips]
        super().__init__([1 - x for x in flip], flip)
        self.thresholds = np.array(self.flips, dtype=np.uint64)
        self.flip = self.q

    def ratio(self, level: int) -> Fraction:
        """Return (2^64 - T) / T: the exact ratio of a reported sign's probabilities."""
        flips = self.flips[level]
        return Fraction(WORD - flips, flips)
