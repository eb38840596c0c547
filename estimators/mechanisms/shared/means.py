"""The base of mechanisms for the mean: an estimate from the unbiased mean of each level."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from estimators.bounds import Law, limits
from estimators.bounds.heterogeneity import has_signs, heterogeneity, heterogeneity_of_windows
from estimators.bounds.piecewise.bets import SymbolBets
from estimators.bounds.signs.law import laws_in_rows
from estimators.bounds.signs.limits import intervals_of_categories, intervals_of_windows
from estimators.bounds.signs.noise import Noise
from estimators.estimate import Counts, Estimate, Floats, Limits
from estimators.mechanisms.mechanism import Mechanism
from estimators.question import Question
from estimators.weights import LevelFacts


class ScalarMean(Mechanism):
    """A mechanism for the mean of a value in [-1, 1], with a law for the sum of its reports."""

    kinds = frozenset({"mean"})
    is_exact_together = True
    facts: LevelFacts

    @abstractmethod
    def level_means(self, table: Counts) -> Floats:
        """Return the unbiased mean of each level, zero without reports."""

    @abstractmethod
    def law(self, counts: Counts, shares: Floats, question: Question | None = None) -> Law:
        """Return the law of the weighted mean of unbiased reports; `counts` are not all zero.

        `counts`, shape (levels,): reports of each level; `shares`, shape (levels,): their weights,
        which sum to 1; `question`: says for which users the law is needed; by default they come
        from one population.
        """

    def noise(self, law: Law, counts: Counts) -> Noise | None:
        """Return the law of the noise, given the users' own values, for the target ``sample``.

        None if bounds for the users' own values follow from :meth:`law`, as by default. `law`: from
        :meth:`law`; `counts`, shape (levels,): reports of each level.
        """

    def bets(self, law: Law, table: Counts) -> SymbolBets | None:
        """Return bets on the reports' symbols; None if bounds use only the sum of the reports.

        `law`: from :meth:`law`; `table`, shape (levels, columns).
        """

    def limits_of_windows(
        self,
        tables: Counts,
        law: Law,
        means: Floats,
        question: Question,
        log_p: float,
        totals: Floats,
    ) -> Limits | None:
        """Return bounds on the means of windows, shape (windows,), each wrong with probability p.

        None if the bounds must be computed window by window, from the law alone. `tables`, shape
        (windows, levels, columns); `law`: from :meth:`law`, in rows, for this `question`; `means`:
        the estimates; `log_p`: ln p; `totals`: from :func:`estimators.weights.total_weight`.
        """
        if not has_signs(law) or question.panes != 1 or question.bound == "normal":
            return None
        if question.bound == "fixed":
            return intervals_of_windows(law, means, log_p)
        lower, upper = intervals_of_categories(law, means[:, None], log_p, totals)
        return lower[:, 0], upper[:, 0]

    def outside_law(self, question: Question, counts: Counts) -> float:
        """Return a bound on the probability that the reports do not follow the law."""
        return 0.0

    def estimate(self, table: Counts, question: Question) -> Estimate:
        """Return an estimate of the mean in [-1, 1], with bounds; NaN without reports."""
        _, counts, shares, total = weighed = self._weigh(table[:, 0], question)
        if not counts.any():
            return self._build_estimate(weighed, np.nan, (-1.0, 1.0), 0.0)
        means = self.level_means(table)
        mean = float(shares @ means)
        bounds, beta = (-1.0, 1.0), question.beta - self.outside_law(question, counts)
        if beta > 0:
            law, log_p = self.law(counts, shares, question), math.log(beta / 2)
            window = table[None], law.rows(None), np.array([mean])
            ends = self.limits_of_windows(*window, question, log_p, np.array([total]))
            if ends is None:
                ends = limits(law, window[2], question, log_p, total, self.noise(law, counts))
            bounds = float(ends[0][0]), float(ends[1][0])
        users = self.law(counts, shares)
        p_value = heterogeneity(users, means[counts > 0, None])
        effective = 1 / float(users.worst_variance)
        return self._build_estimate(weighed, mean, bounds, effective, p_value)

    def estimate_alike(self, tables: Sequence[Counts], question: Question) -> list[Estimate]:
        """Return the estimates of windows whose reports have the same levels."""
        used = tables[0][:, 0] > 0
        if not used.any() or self.outside_law(question, tables[0][:, 0]):
            return super().estimate_alike(tables, question)
        weighed = [self._weigh(table[:, 0], question) for table in tables]
        counts, shares, totals = (np.array(x) for x in [*zip(*weighed, strict=True)][1:])
        means = np.array([self.level_means(table) for table in tables])
        pooled = np.vecdot(shares, means)
        law, users = (
            laws_in_rows([self.law(*pair, asked) for pair in zip(counts, shares, strict=True)])
            for asked in (question, None)
        )
        bounds = self.limits_of_windows(
            np.array(tables), law, pooled, question, question.log_p(1), totals
        )
        if bounds is None:
            return super().estimate_alike(tables, question)
        p_values = heterogeneity_of_windows(users, means[:, used, None])
        effective = 1 / np.broadcast_to(users.worst_variance, pooled.shape)
        numbers = (x.tolist() for x in (pooled, *bounds, effective))
        return [
            self._build_estimate(weighed[row], mean, (lower, upper), reports, p_values[row])
            for row, (mean, lower, upper, reports) in enumerate(zip(*numbers, strict=True))
        ]
