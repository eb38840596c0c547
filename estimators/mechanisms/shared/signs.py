"""Signs that mechanisms report: their probabilities, their laws, and unbiased means."""

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
    """Signs that are +1 with probability p if the true sign is +1, and with q if it is -1.

    A sign that represents a value theta in [-1, 1], or a frequency f = (1 + theta) / 2, has mean (p
    + q - 1) + (p - q) theta. `exact`: p and q of each level, as fractions from the integer
    thresholds; p > q; `p`, `q`, shape (levels,): the same as floats; `contrast`, shape (levels,): a
    = p - q; `offset`, shape (levels,): o = p + q - 1; None if it is zero at every level.
    """

    def __init__(self, p: Epsilons, q: Epsilons) -> None:
        self.exact = list(zip(p, q, strict=True))
        self.p = np.array([float(x) for x in p])
        self.q = np.array([float(x) for x in q])
        self.contrast = np.array([float(x - y) for x, y in zip(p, q, strict=True)])
        offset = [x + y - 1 for x, y in zip(p, q, strict=True)]
        self.offset = np.array([float(x) for x in offset]) if any(offset) else None

    def law(self, counts: Counts, shares: Floats, question: Question | None = None) -> Law:
        """Return the law of the weighted mean of unbiased signs; `counts` are not all zero.

        For `counts`, `shares` and `question` see
        :meth:`estimators.mechanisms.shared.means.ScalarMean.law`.
        """
        used, question = counts > 0, question or Question()
        n, contrast = counts[used].astype(np.float64), self.contrast[used]
        coefficient, free = shares[used] / (n * contrast), not question.one_mean(len(n))
        offset = None if self.offset is None else self.offset[used]
        return Law(n, coefficient, contrast, free=free, offset=offset)

    def means(self, counts: Counts, ones: Counts) -> Floats:
        """Return each level's unbiased mean, an estimate of theta; zero without reports.

        `counts`, shape (levels,); `ones`, shape (levels, k): how many of the reported signs were
        +1. The result has shape (levels, k).
        """
        signs = 2 * ones - counts[:, None]
        if self.offset is not None:
            signs = signs - (counts * self.offset)[:, None]
        return np.asarray(signs / (np.maximum(counts, 1) * self.contrast)[:, None])

    def range(self) -> tuple[Floats, Floats]:
        """Return the values that reports of -1 and +1 represent, per level.

        The values are the same if a user reports several signs, because all of these may be equal.
        """
        offset = 0.0 if self.offset is None else self.offset
        return (-1 - offset) / self.contrast, (1 - offset) / self.contrast

    def even_variance(self, categories: int) -> Floats:
        """Return the variance of a report's unbiased estimate of f = 1/k, per level.

        For other frequencies f_j the mean variance over the categories is smaller: the sum of p_j
        (1 - p_j), with p_j = q + f_j (p - q), is concave in the frequencies.
        """
        p_support = self.q + self.contrast / categories
        return np.asarray(p_support * (1 - p_support) / self.contrast**2)

    def exact_even_variance(self, level: int, categories: int) -> Fraction:
        """Return the result of :meth:`even_variance` for a level as an exact fraction."""
        p, q = self.exact[level]
        p_support = q + (p - q) / categories
        return p_support * (1 - p_support) / (p - q) ** 2


class RepeatedSigns(ReportedSigns):
    """Several signs that each user reports for the same value.

    `signs`: the law of a single sign; `repeats`: r, the number of signs of a user, per level;
    `values`: True if the signs represent a value in [-1, 1], which is rounded to a new sign for
    each report; False if the value is itself a sign.
    """

    def __init__(
        self, signs: ReportedSigns, repeats: Sequence[int], *, values: bool = False
    ) -> None:
        super().__init__(*zip(*signs.exact, strict=True))
        self.repeats = np.array(repeats, dtype=np.int64)
        self.values = values

    def law(self, counts: Counts, shares: Floats, question: Question | None = None) -> Law:
        """Return the law of the users' mean, or of the mean of n r signs (target ``"sample"``)."""
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
        """Return each level's unbiased mean; `counts`: users; `ones`: how many signs were +1."""
        return super().means(counts * self.repeats, ones)

    def even_variance(self, categories: int) -> Floats:
        """Return the variance of a user's unbiased estimate of f = 1/k, per level.

        For other frequencies the mean variance over the categories is not larger: the variance
        given the value is linear in f, and f (1 - f) is concave.
        """
        share = 1 / categories
        noise = share * self.p * (1 - self.p) + (1 - share) * self.q * (1 - self.q)
        return np.asarray(noise / (self.repeats * self.contrast**2) + share * (1 - share))


class FlippedSigns(ReportedSigns):
    """Signs that are flipped with probability T / 2^64, with an integer T for each level.

    `epsilons`: the epsilon of one sign, per level. `flips`: T, per level; `flip`, shape (levels,):
    T / 2^64, the probability of a flip, which is q and also 1 - p; `contrast`, shape (levels,): a =
    1 - 2 T / 2^64, the mean of a reported sign that was +1: tanh(epsilon / 2) up to rounding.
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
