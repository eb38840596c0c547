"""The base of mechanisms that answer for any string from rows of hashed points."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from estimators.bounds import limits, sketches
from estimators.bounds.heterogeneity import heterogeneity_of_points
from estimators.estimate import Counts, Estimate, Floats, Indices, Limits
from estimators.exact.geometries import HashedRows
from estimators.exact.randomness import Words
from estimators.mechanisms.mechanism import Weighed
from estimators.mechanisms.shared.outputs import SupportReports
from estimators.mechanisms.shared.signs import ReportedSigns
from estimators.question import Question
from estimators.weights import LevelFacts, total_weight

MAX_TESTED_STRINGS = 64
"""The most strings of a query that are tested for heterogeneity."""


class StringLookups(SupportReports):
    """A mechanism that answers for any string from rows of hashed points.

    `hashed_rows`: the rows of each level; `signs`: p and q of each level: the probabilities that a
    report lies on the hyperplane of its string's point, and on that of another point.
    """

    hashed_rows: list[HashedRows]
    signs: ReportedSigns

    def _set_rows(self, hashed_rows: list[HashedRows]) -> None:
        """Set the rows, the law of their reports and the variances of the levels."""
        self.hashed_rows = hashed_rows
        geometries = [rows.geometry for rows in hashed_rows]
        self.signs = ReportedSigns([g.p for g in geometries], [g.q for g in geometries])
        self.facts = LevelFacts.of(self.epsilons, np.array([g.variance for g in geometries]))
        self._chance = 1 / np.array([g.points for g in geometries])
        """The probability that two strings have the same point in a row, per level."""

    @abstractmethod
    def row_counts(self, table: Counts, level: int) -> Counts:
        """Return how many reports of a level name each point of each row, shape (t, K)."""

    def answering(self, table: Counts) -> Counts:
        """Return how many reports of each level are about a row, shape (levels,)."""
        return table[:, 0]

    def report_range(self) -> tuple[Floats, Floats]:
        """Return the values that reports off and on the string's hyperplane represent."""
        chance = self._chance
        low, high = (((1 + end) / 2 - chance) / (1 - chance) for end in self.signs.range())
        return low, high

    def support(self, table: Counts, keys: Words) -> Counts:
        """Return how many reports support each key, shape (levels, k)."""
        support = np.zeros((len(table), keys.size), dtype=np.int64)
        for level in np.flatnonzero(self.answering(table)).tolist():
            support[level] = self.hashed_rows[level].support(self.row_counts(table, level), keys)
        return support

    def estimate_alike(self, tables: Sequence[Counts], question: Question) -> list[Estimate]:
        """Return estimates of the frequencies of the requested keys."""
        return [self._estimate(table, question) for table in tables]

    def _estimate(self, table: Counts, question: Question) -> Estimate:
        keys = np.zeros(0, dtype=np.uint64) if question.asked is None else question.asked
        counts = self.answering(table)
        if not counts.any():
            unweighed = Weighed(question, table[:, 0], np.zeros(len(table)), 0.0)
            return self._empty_estimate(unweighed, keys.size)
        return dataclasses.replace(
            self.estimate_support(counts, self.support(table, keys), question),
            reports=int(table[:, 0].sum()),
            counts=table[:, 0].copy(),
        )

    def estimate_support(self, counts: Counts, support: Counts, question: Question) -> Estimate:
        """Return an estimate of the frequencies of strings that have this support.

        `counts`, shape (levels,): the reports about rows, not all 0; `support`, shape (levels, k):
        how many of them support each string; `question`: the requested bounds and weights.
        """
        weighed = self._weigh(counts, question)
        shares = weighed.shares
        bounds = self.limits(counts, shares, support, question, question.log_p(support.shape[1]))
        used = counts > 0
        users = self.signs.law(counts, shares)
        means = self.signs.means(counts, support)
        raw = (1 + means) / 2
        value = shares @ ((raw - self._chance[:, None]) / (1 - self._chance[:, None]))
        tables = self._tables(np.flatnonzero(counts))
        p_value = heterogeneity_of_points(users, means[used, :MAX_TESTED_STRINGS], tables)
        return self._build_estimate(weighed, value, bounds, 1 / users.worst_variance, p_value)

    def limits(
        self, counts: Counts, shares: Floats, support: Counts, question: Question, log_p: float
    ) -> Limits:
        """Return bounds on the frequencies of strings with this support.

        Noise and collisions have half of p each. For the upper bound, noise has all of p if the
        lower bound on collisions is 0 at all levels with reports (for all times, at all levels). If
        users may have different frequencies, the mean over users is f + b with 0 <= b <= (1 - f) B,
        where B is the largest bound on the collisions of a level; at all times, the collisions of
        the k-th user are bounded with failure probability p / (k (k + 1)).

        `counts`, shape (levels,); `shares`, shape (levels,): weights that sum to one, zero for
        levels without reports; `support`, shape (levels, k); `question`: for which times and users;
        `log_p`: ln p, where p is the failure probability of one side of one string's interval.
        """
        policy, free = question.weights, not question.one_mean(int(np.count_nonzero(counts)))
        total, half = total_weight(policy, counts, self.facts), log_p - math.log(2)
        levels = np.flatnonzero(counts)
        if question.bound == "anytime":  # the division of p must not change with later levels
            levels = np.arange(len(counts))
        tables = self._tables(levels)
        log_collision = sketches.collision_log_p(log_p, len(tables))

        def side(crowd: Floats, log_noise: float, end: int) -> Floats:
            """Return one end of the intervals for f, given each level's share of collisions."""
            signs = self._crowded(crowd)
            law = signs.law(counts, shares, question)
            mean = shares @ signs.means(counts, support)
            return (1 + limits(law, mean, question, log_noise, total)[end]) / 2

        if free:
            if question.bound == "anytime":
                n = float(counts.sum())
                log_collision -= math.log(n) + math.log1p(n)
            nobody, largest = np.zeros(len(counts)), sketches.max_collision_share
            largest_share = max(largest(*table, log_collision) for table in tables)
            lower = (side(nobody, half, 0) - largest_share) / max(1 - largest_share, 1e-12)
            upper = side(nobody, log_p, 1)
        else:
            crowd = np.zeros((2, len(counts)))
            for level, table in zip(levels.tolist(), tables, strict=True):
                crowd[0, level] = sketches.max_collision_share(*table, log_collision)
                crowd[1, level] = sketches.min_collision_share(*table, log_collision)
            lower = np.zeros(support.shape[1])
            if crowd[0].max() < 1:  # with very few rows, all other users may have the point
                lower = side(crowd[0], half, 0)
            upper = side(crowd[1], half if crowd[1].any() else log_p, 1)
        return np.clip(lower, 0, 1), np.clip(upper, 0, 1)

    def _crowded(self, crowd: Floats) -> ReportedSigns:
        """Return the law of signs if, per level, a share `crowd` of other users has the point."""
        if not crowd.any():
            return self.signs
        shares = [Fraction(share) for share in crowd.tolist()]
        crowded_q = [q + (p - q) * c for (p, q), c in zip(self.signs.exact, shares, strict=True)]
        return ReportedSigns([p for p, _ in self.signs.exact], crowded_q)

    def _tables(self, levels: Indices) -> list[sketches.HashTable]:
        """Return the number of rows, and of points of a row, for each of these levels."""
        chosen = [self.hashed_rows[level] for level in levels.tolist()]
        return [(rows.rows, rows.geometry.points) for rows in chosen]
