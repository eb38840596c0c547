"""The base of mechanisms for the mean: an estimate from the unbiased mean of each level."""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np

from estimators.bounds import Law, limits
from estimators.bounds.heterogeneity import heterogeneity
from estimators.bounds.piecewise.bets import SymbolBets
from estimators.bounds.signs.noise import Noise
from estimators.estimate import Counts, Estimate, Floats
from estimators.mechanisms.mechanism import Mechanism
from estimators.question import Question
from estimators.weights import LevelFacts


class ScalarMean(Mechanism):
    """A mechanism for the mean of a value in [-1, 1], with a law for the sum of its reports."""

    kinds = frozenset({"mean"})
    facts: LevelFacts

    @abstractmethod
    def level_means(self, table: Counts) -> Floats:
        """Return the unbiased mean of each level, zero without reports."""

    @abstractmethod
    def law(self, counts: Counts, shares: Floats, question: Question | None = None) -> Law:
        """Return the law of the weighted mean of unbiased reports; some count is above zero.

        `counts`, shape (levels,): reports of each level; `shares`, shape (levels,): their weights,
        which sum to 1. The `question` determines the assumptions: without one, users come from one
        population.
        """

    def noise(self, law: Law, counts: Counts) -> Noise | None:
        """Return the law of the noise alone; None if :meth:`law` is used for the users' values."""

    def bets(self, law: Law, table: Counts) -> SymbolBets | None:
        """Return bets on the reports' symbols; None if nothing but their sum counts.

        `law`: from :meth:`law`; `table`, shape (levels, columns).
        """

    def mean_limits(
        self, table: Counts, law: Law, mean: float, question: Question, log_p: float, total: float
    ) -> tuple[float, float]:
        """Return bounds on the mean, each of which fails with probability p.

        By default, those of the law of the estimate, which use nothing else of the table. `table`,
        shape (levels, columns); `law`: from :meth:`law`, for this question; `mean`: the estimate;
        `log_p`: ln p; `total`: from :func:`estimators.weights.total_weight`.
        """
        noise = self.noise(law, table[:, 0])
        lower, upper = limits(law, np.array([mean]), question, log_p, total, noise)
        return float(lower[0]), float(upper[0])

    def outside_law(self, question: Question, counts: Counts) -> float:
        """Return the probability that the reports deviate from the law."""
        return 0.0

    def estimate(self, table: Counts, question: Question) -> Estimate:
        """Estimate the mean in [-1, 1]."""
        (counts, shares, total), means = self._weigh(table, question), self.level_means(table)
        if not counts.any():
            return self._build_estimate(question, counts, shares, np.nan, (-1.0, 1.0), 0.0)
        mean = float(shares @ means)
        bounds, beta = (-1.0, 1.0), question.beta - self.outside_law(question, counts)
        if beta > 0:
            law = self.law(counts, shares, question)
            bounds = self.mean_limits(table, law, mean, question, math.log(beta / 2), total)
        users = self.law(counts, shares)
        p_value = heterogeneity(users, means[counts > 0, None])
        effective = 1 / users.worst_variance
        return self._build_estimate(question, counts, shares, mean, bounds, effective, p_value)
