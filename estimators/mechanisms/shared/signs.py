"""The base of mechanisms that report signs: coefficients of their weights, and estimates."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from estimators.bounds import Law, RepeatedLaw
from estimators.estimate import Counts, Floats
from estimators.exact.thresholds import WORD, flip_threshold
from estimators.mechanisms.mechanism import Epsilons
from estimators.question import Question


class ReportedSigns:
    """Signs that are +1 with probability p for holders of +1, and q for others.

    A sign that represents a value theta in [-1, 1], or a frequency f = (1 + theta) / 2, has mean (p
    + q - 1) + (p - q) theta. `exact`: p and q of each level, as fractions from the integer
    thresholds; p > q; `p`, `q`, shape (levels,); `contrast`, shape (levels,): a = p - q; `offset`,
    shape (levels,), or None: o = p + q - 1; None where it is zero at every level.
    """

    def __init__(self, p: Epsilons, q: Epsilons) -> None:
        self.exact = list(zip(p, q, strict=True))
        self.p = np.array([float(x) for x in p])
        self.q = np.array([float(x) for x in q])
        self.contrast = np.array([float(x - y) for x, y in zip(p, q, strict=True)])
        offset = [x + y - 1 for x, y in zip(p, q, strict=True)]
        self.offset = np.array([float(x) for x in offset]) if any(offset) else None

    def law(self, counts: Counts, shares: Floats, question: Question | None = None) -> Law:
        """Return the law of the weighted mean of unbiased signs; some count is above zero.

        As for :meth:`estimators.mechanisms.shared.means.ScalarMean.law`, with its `counts`,
        `shares` and `question`.
        """
        used, question = counts > 0, question or Question()
        n, contrast = counts[used].astype(np.float64), self.contrast[used]
        coefficient, free = shares[used] / (n * contrast), not question.one_mean(len(n))
        if self.offset is None:
            return Law(n, coefficient, contrast, free=free)
        return Law(n, coefficient, contrast, free=free, offset=self.offset[used])

    def mean(self, counts: Counts, shares: Floats, ones: Counts) -> Floats:
        """Return the weighted mean of unbiased signs, in [-1, 1] plus noise, shape (k,).

        `counts`, shape (levels,); `shares`, shape (levels,): weights that sum to one, zero for
        levels without reports; `ones`, shape (levels, k): how many of the reported signs were +1.
        """
        return shares @ self.means(counts, ones)

    def means(self, counts: Counts, ones: Counts) -> Floats:
        """Return each level's unbiased mean, zero without reports; shape (levels, k)."""
        signs = 2 * ones - counts[:, None]
        if self.offset is not None:
            signs = signs - (counts * self.offset)[:, None]
        means: Floats = signs / (np.maximum(counts, 1) * self.contrast)[:, None]
        return means

    def range(self) -> tuple[Floats, Floats]:
        """Return the values that reports of -1 and +1 represent, per level.

        This also holds for several signs of a user, because all of them may be equal.
        """
        offset = 0.0 if self.offset is None else self.offset
        return (-1 - offset) / self.contrast, (1 - offset) / self.contrast

    def even_variance(self, categories: int) -> Floats:
        """Return the variance of a category's unbiased indicator at f = 1/k, per level.

        The sum over the categories of p_j (1 - p_j), p_j = q + f_j (p - q), is concave in the
        frequencies, so this is the largest mean over the categories.
        """
        p_support = self.q + self.contrast / categories
        variance: Floats = p_support * (1 - p_support) / self.contrast**2
        return variance

    def exact_even_variance(self, level: int, categories: int) -> Fraction:
        """Return :meth:`even_variance` of a level as a fraction."""
        p, q = self.exact[level]
        p_support = q + (p - q) / categories
        return p_support * (1 - p_support) / (p - q) ** 2


class RepeatedSigns(ReportedSigns):
    """Several signs that a user reports for the same value.

    `signs`: the law of a single sign; `repeats`: r, per level; `values`: True: they represent
    values in [-1, 1], rounded to a sign each time. False: they represent signs.
    """

    def __init__(
        self, signs: ReportedSigns, repeats: Sequence[int], *, values: bool = False
    ) -> None:
        super().__init__(*zip(*signs.exact, strict=True))
        self.repeats = np.array(repeats, dtype=np.int64)
        self.values = values

    def law(self, counts: Counts, shares: Floats, question: Question | None = None) -> Law:
        """Return the law for users; for the users' own values, that of n r independent signs."""
        if question is not None and question.target == "sample":
            return super().law(counts * self.repeats, shares, question)
        sign_law, repeats = super().law(counts, shares, question), self.repeats[counts > 0]
        return RepeatedLaw(
            sign_law.counts,
            sign_law.coefficient,
            sign_law.contrast,
            free=sign_law.free,
            offset=sign_law.offset,
            repeats=repeats.astype(np.float64),
            values=self.values,
        )

    def means(self, counts: Counts, ones: Counts) -> Floats:
        """Return each level's unbiased mean; `counts` are users, `ones` are of all their signs."""
        return super().means(counts * self.repeats, ones)

    def even_variance(self, categories: int) -> Floats:
        """Return the variance of a user's unbiased indicator at f = 1/k, per level.

        Given the category it is linear in f, and f (1 - f) is concave: f = 1/k is the largest mean.
        """
        share = 1 / categories
        noise = share * self.p * (1 - self.p) + (1 - share) * self.q * (1 - self.q)
        variance: Floats = noise / (self.repeats * self.contrast**2) + share * (1 - share)
        return variance


class FlippedSigns(ReportedSigns):
    """Signs flipped with probability T / 2^64, one integer threshold T a level.

    `epsilons`: the epsilon of one sign, per level. `flips`: T, per level; `flip`, shape (levels,):
    T / 2^64, the probability of a flip: q, and 1 - p; `contrast`, shape (levels,): a = 1 - 2 T /
    2^64, the mean of a reported sign that was +1: tanh(epsilon / 2) up to rounding.
    """

    def __init__(self, epsilons: Epsilons) -> None:
        self.flips = [flip_threshold(epsilon) for epsilon in epsilons]
        flip = [Fraction(flips, WORD) for flips in self.flips]
        super().__init__([1 - x for x in flip], flip)
        self.thresholds = np.array(self.flips, dtype=np.uint64)
        self.flip = self.q

    def ratio(self, level: int) -> Fraction:
        """Return (2^64 - T) / T: the exact ratio of a reported sign's probabilities."""
        flips = self.flips[level]
        return Fraction(WORD - flips, flips)
