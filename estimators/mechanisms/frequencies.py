"""What frequency mechanisms share: an estimate from the count of support of each category."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from estimators.bounds import flip_noise_deviation, interval
from estimators.bounds.law import Law
from estimators.estimate import Counts, Estimate, Floats
from estimators.mechanisms.mechanism import Mechanism
from estimators.mechanisms.signs import ReportedSigns
from estimators.question import Question
from estimators.weights import LevelFacts, level_weights


class SupportCounts(Mechanism):
    """A frequency mechanism whose reports each support some of the categories.

    A category is supported with probability p by a report of one who holds it, with probability q
    by others'. Statistic of a level: the number of reports, and those that support category 0, 1,
    and so on, each of law Binomial(n, q + f (p - q)).

    Parameters
    ----------
    epsilons : sequence of Fraction
        The privacy levels, ascending.
    categories : int
        k, at least 2.
    signs : ReportedSigns
        p and q per level.

    Notes
    -----
    The weights ``optimal`` are those of the mean variance over the categories at f = 1/k for each,
    its largest: they minimise the worst-case sum of squared errors. (At f = 0 alone, one report at
    a large epsilon would outweigh all others.) ``paper`` is HLDP's Algorithm 5, tanh^2(epsilon/2).
    """

    kinds = frozenset({"frequency"})

    def __init__(self, epsilons: Sequence[Fraction], categories: int, signs: ReportedSigns) -> None:
        super().__init__(epsilons)
        self.categories = categories
        self.columns = 1 + categories
        self.signs = signs
        epsilon = np.array([float(e) for e in self.epsilons])
        self.facts = LevelFacts(
            epsilons=epsilon,
            variances=signs.even_variance(categories),
            paper=np.tanh(epsilon / 2) ** 2,
        )

    def estimate(self, table: Counts, question: Question) -> Estimate:
        """Estimate the frequency of every category, with bounds that hold for all at once.

        A category's support, as a sign, has mean o + a theta with theta = 2 f - 1: the estimate of
        theta, and its interval at beta / k, are those of randomized response.
        """
        counts, support = table[:, 0], table[:, 1:]
        shares = level_weights(question.weights, counts, self.facts)
        if not counts.any():
            nothing, one = np.zeros(self.categories), np.ones(self.categories)
            return self._answer(question, counts, shares, nothing * np.nan, (nothing, one), 0.0)
        law = self.signs.law(counts, shares, question)
        mean = self.signs.mean(counts, shares, support)
        lower, upper = self._limits(law, mean, counts, question)
        bounds = (1 + lower) / 2, (1 + upper) / 2
        return self._answer(
            question, counts, shares, (1 + mean) / 2, bounds, 1 / law.worst_variance
        )

    def _limits(
        self, law: Law, mean: Floats, counts: Counts, question: Question
    ) -> tuple[Floats, Floats]:
        log_p = math.log(question.beta / (2 * self.categories))
        if question.target == "sample" and self.signs.offset is None:
            flip = self.signs.q[counts > 0]
            noise = flip_noise_deviation(law.counts, law.coefficient, flip, log_p)
            return np.clip(mean - noise, -1, 1), np.clip(mean + noise, -1, 1)
        return interval(law, mean, log_p)
