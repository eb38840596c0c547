"""The base of mechanisms for the mean: an estimate from the unbiased mean of each level."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence

import numpy as np

from estimators.bounds import Law, limits
from estimators.bounds.heterogeneity import has_signs, heterogeneity_of_windows
from estimators.bounds.piecewise.bets import SymbolBets
from estimators.bounds.signs.law import laws_in_rows
from estimators.bounds.signs.limits import intervals_of_categories, intervals_of_windows
from estimators.bounds.signs.noise import Noise
from estimators.estimate import Counts, Estimate, Floats, Limits
from estimators.mechanisms.mechanism import Mechanism
from estimators.question import Question


class ScalarMean(Mechanism):
    """A mechanism for the mean of a value in [-1, 1], with a law for the sum of its reports."""

    kinds = frozenset({"mean"})
    is_exact_together = True

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
        self, tables: Counts, law: Law, means: Floats, question: Question, totals: Floats
    ) -> Limits | None:
        """Return bounds on the means of windows, shape (windows,), for a question.

        None if the bounds must be computed window by window, from the law alone. `tables`, shape
        (windows, levels, columns); `law`: from :meth:`law`, in rows, for this `question`; `means`:
        the estimates; `totals`: from :func:`estimators.weights.total_weight`.
        """
        if not has_signs(law) or question.panes != 1 or question.bound == "normal":
            return None
        if question.bound == "fixed":
            return intervals_of_windows(law, means, question.log_p(1))
        ends = intervals_of_categories(law, means[:, None], question.log_p(1), totals)
        return ends[0][:, 0], ends[1][:, 0]

    def outside_law(self, question: Question, counts: Counts) -> float:
        """Return a bound on the probability that the reports do not follow the law."""
        return 0.0

    def estimate_alike(self, tables: Sequence[Counts], question: Question) -> list[Estimate]:
        """Return estimates of the mean in [-1, 1], with bounds; NaN without reports."""
        weighed = [self._weigh(table[:, 0], question) for table in tables]
        used = tables[0][:, 0] > 0
        if not used.any():
            return [self._build_estimate(window, np.nan, (-1.0, 1.0), 0.0) for window in weighed]
        counts, shares, totals = (np.array(x) for x in [*zip(*weighed, strict=True)][1:])
        level_means = np.array([self.level_means(table) for table in tables])
        means = np.vecdot(shares, level_means)
        laws, laws_of_users = (
            [self.law(*pair, asked) for pair in zip(counts, shares, strict=True)]
            for asked in (question, None)
        )
        betas, bounds = [question.beta - self.outside_law(question, n) for n in counts], None
        if min(betas) == question.beta:
            window_laws = laws_in_rows(laws)
            bounds = self.limits_of_windows(np.array(tables), window_laws, means, question, totals)
        if bounds is None:
            windows = zip(laws, means[:, None], betas, counts, totals, strict=True)
            lower, upper = np.array([self._limits_alone(question, *x) for x in windows]).T
            bounds = lower, upper
        users = laws_in_rows(laws_of_users) if len(tables) > 1 else laws_of_users[0]
        p_values = heterogeneity_of_windows(users, level_means[:, used, None])
        effective = 1 / np.broadcast_to(users.worst_variance, means.shape)
        numbers = (x.tolist() for x in (means, *bounds, effective))
        return [
            self._build_estimate(weighed[row], mean, (lower, upper), reports, p_values[row])
            for row, (mean, lower, upper, reports) in enumerate(zip(*numbers, strict=True))
        ]

    def _limits_alone(
        self, question: Question, law: Law, mean: Floats, beta: float, counts: Counts, total: float
    ) -> tuple[float, float]:
        """Return bounds on the mean of one window, shape (1,), from its law."""
        if beta <= 0:
            return -1.0, 1.0
        noise = self.noise(law, counts)
        lower, upper = limits(law, mean, question, math.log(beta / 2), total, noise)
        return float(lower[0]), float(upper[0])
