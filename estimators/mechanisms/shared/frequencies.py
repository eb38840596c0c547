"""The base of frequency mechanisms that estimate from the support of each category."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from estimators.bounds import FlipNoise, limits
from estimators.bounds.heterogeneity import heterogeneity_of_windows
from estimators.bounds.shares.bets import CategorySets, CountedReports, ShareBets, SymbolKinds
from estimators.bounds.shares.subsets import SubsetKinds, SubsetReports
from estimators.bounds.signs.law import laws_in_rows
from estimators.bounds.signs.limits import intervals_of_categories
from estimators.bounds.signs.own_values import own_value_limits
from estimators.errors import ReportError
from estimators.estimate import Array, Bools, Counts, Estimate, Floats, Limits
from estimators.exact.randomness import Bits
from estimators.exact.tallies import sum_bits
from estimators.mechanisms.mechanism import Epsilons, Levels, Reports, Weighed, rows_by_level
from estimators.mechanisms.shared.outputs import SupportReports
from estimators.mechanisms.shared.signs import ReportedSigns
from estimators.question import Question
from estimators.shuffling.set_laws import SetLaw
from estimators.weights import LevelFacts

COINS_AT_A_TIME = 2**22  # the most coins drawn at a time: they take a few megabytes


def refusal_of(mechanism: str) -> str:
    """Return the error message for a mechanism that cannot estimate the share of A among B."""
    return (
        f"mechanism {mechanism} answers no shares among: expected grr, subset_selection or "
        "projective_geometry_response, in a metric of its own"
    )


class SupportCounts(SupportReports):
    """A frequency mechanism whose reports each support some of the categories.

    A report supports a category with probability p if its sender holds the category, and q if not,
    so the number of reports that support it is Binomial(n, q + f (p - q)). Statistic of a level,
    unless a mechanism overrides :meth:`support`: the number of reports, and the numbers that
    support category 0, 1, and so on.

    `epsilons`: the privacy levels, ascending; `categories`: k, at least 2; `signs`: p and q per
    level. The ``optimal`` weights use the mean variance over the categories at f = 1/k for each,
    which is its largest: they minimise the worst-case sum of squared errors. (At f = 0 alone, one
    report at a large epsilon would outweigh all others.) ``paper`` weights are tanh^2(epsilon/2),
    as in HLDP's Algorithm 5.
    """

    is_exact_together = True

    def __init__(self, epsilons: Epsilons, categories: int, signs: ReportedSigns) -> None:
        super().__init__(epsilons)
        self.categories = categories
        self.columns = 1 + categories
        self.signs = signs
        self.facts = LevelFacts.of(self.epsilons, signs.even_variance(categories))

    @classmethod
    def least_width(cls, categories: int) -> int:
        """Return a lower bound on the bytes of a report, without building the mechanism."""
        return 1

    def support(self, table: Counts) -> Counts:
        """Return how many reports support each category, shape (levels, k)."""
        return table[:, 1:]

    def support_of(self, table: Counts, selected: Array | None) -> Counts:
        """Return how many reports support each selected category; None selects all."""
        support = self.support(table)
        return support if selected is None else support[:, selected]

    def supports_of(self, tables: Sequence[Counts], selected: Array | None) -> list[Counts]:
        """Return what :meth:`support_of` does, for windows whose reports have the same levels."""
        return [self.support_of(table, selected) for table in tables]

    def report_kinds(self, level: int, sets: CategorySets) -> SymbolKinds | SubsetKinds:
        """Return the kinds of reports of a level: how many categories of each set they support.

        Raises ValueError if the mechanism cannot estimate the share of A among B.
        """
        raise ValueError(refusal_of(self.level_mechanisms[level]))

    def extreme_scores(self, level: int, sets: CategorySets) -> Floats:
        """Return the unbiased scores of A and of B of some kinds of report, shape (kinds, 2).

        A linear function of the scores is largest at one of them: for each number of supports of A,
        the kinds with the fewest and the most supports of the rest of B. `level`: the index of the
        level; `sets`: the categories in A and in B.
        """
        kinds = self.report_kinds(level, sets)
        supports = kinds.supports
        fewest = np.unique(supports[:, 0], return_index=True)[1]
        most = np.append(fewest[1:], len(supports)) - 1
        supports = supports[np.union1d(fewest, most)]
        return kinds.sizes.scores(supports, *self._chances(level))

    def _chances(self, level: int) -> tuple[float, float]:
        """Return q and p - q of a level."""
        return float(self.signs.q[level]), float(self.signs.contrast[level])

    def share_bets(
        self, tables: Sequence[Counts], question: Question, sets: CategorySets
    ) -> tuple[ShareBets, Floats]:
        """Return the bets on the share of A among B, and the total weights.

        `tables`, each of shape (levels, columns): the statistics of windows whose reports have the
        same levels, at least one; `question`: the requested bounds and weights; `sets`: the
        categories in A and in B. Raises ValueError if the mechanism has no bounds for such shares.
        """
        weighed = [self._weigh(table[:, 0], question) for table in tables]
        counts, shares, totals = (np.array(x) for x in [*zip(*weighed, strict=True)][1:])
        used, supports = np.flatnonzero(counts[0]).tolist(), np.zeros(0)
        parts, subsets = [np.zeros((4, len(tables), 0))], []
        for level in used:
            weight = shares[:, level] / counts[:, level]
            kinds = self.report_kinds(level, sets)
            if isinstance(kinds, SubsetKinds):
                if not supports.size:
                    members = np.array([*sets.first, *sets.second])
                    supports = np.array(self.supports_of(tables, members), dtype=np.float64)
                halves = np.split(supports[:, level], [len(sets.first)], axis=1)
                sums = np.stack([half.sum(axis=1) for half in halves], axis=-1)
                of_values = kinds.size == 1 and question.target == "sample"
                subset = SubsetReports(kinds, counts[:, level], sums, weight, of_values)
                if kinds.size > 1 or of_values:
                    subsets.append(subset)
                    continue
                number: Array = subset.counts
            else:
                symbols = [table[level, 1 : 1 + kinds.of_symbol.size] for table in tables]
                number = np.array([np.bincount(kinds.of_symbol, row) for row in symbols])
            scores = kinds.sizes.scores(kinds.supports, *self._chances(level)).T
            first, base = scores[:, None] * weight[:, None]
            weights = np.broadcast_to(weight[:, None], first.shape)
            parts.append(np.stack([number, first, base, weights]))
        counted = CountedReports(*np.concatenate(parts, axis=2))
        return ShareBets(counted, subsets, not question.one_mean(len(used))), totals

    def report_range(self) -> tuple[Floats, Floats]:
        """Return the values that reports with and without support for the category represent."""
        lowest, highest = self.signs.range()
        return (1 + lowest) / 2, (1 + highest) / 2

    def estimate_alike(self, tables: Sequence[Counts], question: Question) -> list[Estimate]:
        """Return estimates of the requested frequencies, with bounds that hold for all at once.

        Let a report be the sign +1 if it supports a category, else -1. Its mean is o + a theta with
        theta = 2 f - 1 for the frequency f. So theta is estimated as in randomized response, with
        an interval at beta / k for k requested categories.
        """
        weighed = [self._weigh(table[:, 0], question) for table in tables]
        _, counts, shares, _ = zip(*weighed, strict=True)
        used = counts[0] > 0
        if not used.any():
            return [self._empty_estimate(window, self.categories) for window in weighed]
        supports = self.supports_of(tables, question.asked)
        means = np.array([*map(self.signs.means, counts, supports)])
        pooled = (np.array(shares)[:, None] @ means)[:, 0]
        lower, upper = self._limits(weighed, pooled, supports)
        users = laws_in_rows([*map(self.signs.law, counts, shares)])
        p_values = heterogeneity_of_windows(users, means[:, used])
        effective = 1 / np.broadcast_to(users.worst_variance, len(tables))
        bounds = zip((1 + lower) / 2, (1 + upper) / 2, strict=True)
        numbers = zip(weighed, (1 + pooled) / 2, bounds, effective, p_values, strict=True)
        return [self._build_estimate(*window) for window in numbers]

    def _limits(
        self, weighed: Sequence[Weighed], means: Floats, supports: Sequence[Counts]
    ) -> Limits:
        """Return bounds on theta, shape (windows, k).

        `means`, shape (windows, k): the estimates; `supports`: for each window, shape (levels, k),
        the number of reports that support each category.
        """
        question, log_p = weighed[0].question, weighed[0].question.log_p(means.shape[1])
        laws = [self.signs.law(counts, shares, question) for _, counts, shares, _ in weighed]
        totals = np.array([window.total for window in weighed])
        used, of_population = weighed[0].counts > 0, question.target == "population"
        if question.panes == 1 and question.bound != "normal" and means.size:
            rows, times = laws_in_rows(laws), totals if question.bound == "anytime" else None
            if of_population:
                return intervals_of_categories(rows, means, log_p, times)
            if self.signs.offset is not None:
                signs = 2.0 * np.array(supports)[:, used] - rows.counts[..., None]
                return own_value_limits(rows, signs, log_p, times)
        bounds, noise = np.empty((2, *means.shape)), None
        for row, law in enumerate(laws):
            if self.signs.offset is None:
                noise = FlipNoise(law.counts, law.coefficient, self.signs.q[used])
            bounds[:, row] = limits(law, means[row], question, log_p, totals[row], noise)
        return bounds[0], bounds[1]


class PackedBits(SupportCounts):
    """A report is k bits, the first category in the lowest bit, the last byte padded with zeros."""

    dtype = np.dtype(np.uint8)

    def __init__(self, epsilons: Epsilons, categories: int, signs: ReportedSigns) -> None:
        super().__init__(epsilons, categories, signs)
        self.shape = (self.least_width(categories),)
        used_bits = categories % 8 or 8
        self._valid_last = bytes(range(2**used_bits))

    @classmethod
    def least_width(cls, categories: int) -> int:
        """Return how many bytes k bits take."""
        return -(-categories // 8)

    @abstractmethod
    def _bits(self, values: Array, level: Levels, bits: Bits) -> Bools:
        """Return one row of k private bits for each category index."""

    def randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        """Return one row of packed bits for each category index."""
        reports = np.empty((values.size, *self.shape), dtype=np.uint8)
        rows = max(1, COINS_AT_A_TIME // self.categories)
        for start in range(0, values.size, rows):
            chunk = slice(start, start + rows)
            private = self._bits(values[chunk], level[chunk], bits)
            reports[chunk] = np.packbits(private, axis=1, bitorder="little")
        return reports

    def check_values(self, levels: bytes, values: bytes) -> None:
        """Raise ReportError for a report in which a bit after that of the last category is 1."""
        last = values[self.width - 1 :: self.width]
        if strange := last.translate(None, self._valid_last):
            raise ReportError(
                "bad_value",
                f"last byte {strange[0]}: expected zeros after bit {self.categories - 1}",
            )

    def supports(self, reports: Reports, level: int, category: Any) -> Bools:
        """Return in which reports the category's bit is 1."""
        return np.asarray((reports[:, category // 8] >> category % 8 & 1).astype(np.bool_))

    def accumulate(self, table: Counts, level: Levels, reports: Reports) -> None:
        """Add reports to a table with columns (reports, ones of category 0, 1, ...)."""
        for index, rows in rows_by_level(level, len(self.epsilons)):
            of_level = reports.view(np.uint8)[rows]
            table[index, 0] += len(of_level)
            table[index, 1:] += sum_bits(of_level, self.categories)


class IndependentBits(PackedBits):
    """A report of independent bits: 1 with probability p for the user's category, q for others."""

    memoizable = True

    def privacy_ratio(self, level: int) -> Fraction:
        """Return p (1 - q) / (q (1 - p)), exactly: two categories differ in two bits."""
        p, q = self.signs.exact[level]
        return p * (1 - q) / (q * (1 - p))

    def set_laws(self, level: int) -> tuple[SetLaw, ...]:
        """Return the law of a category's bit, for the privacy of crowds."""
        q = self.signs.exact[level][1]
        return (SetLaw(self.privacy_ratio(level), q, q**2),)
