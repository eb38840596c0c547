"""Projection onto public signs: a report is a row and one private sign."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from estimators.bounds.heterogeneity import heterogeneity
from estimators.bounds.sketches import projection_limits
from estimators.estimate import Array, Bools, Counts, Estimate, Floats
from estimators.exact import hadamard
from estimators.exact.hashing import hash_constants, mix
from estimators.exact.randomness import Bits
from estimators.exact.sampling import bernoulli, uniform_below
from estimators.exact.tallies import tally
from estimators.exact.thresholds import WORD
from estimators.limits import LARGEST_TABLE
from estimators.mechanisms.mechanism import Epsilons, Levels, Reports
from estimators.mechanisms.shared.frequencies import SupportCounts
from estimators.mechanisms.shared.outputs import check_symbols, index_dtype
from estimators.mechanisms.shared.signs import FlippedSigns, ReportedSigns
from estimators.question import Question
from estimators.shuffling.set_laws import SetLaw

MATRIX_CELLS_AT_A_TIME = 2**16
"""The most cells of a matrix that are computed at a time: a processor's cache holds them."""


class Projection(SupportCounts):
    """Projection onto signs: a uniform row j, and the sign Phi[j, x] through randomized response.

    Phi has m rows and a public column of signs for each value. By default it is Hadamard's matrix
    of m = 2^ceil(log2(k + 1)) rows, whose column x + 1 represents category x. With the option
    `rows` the signs are hashes of the seed, the row and the value, so the vocabulary may be open. A
    report is 2 j + 1 for the sign +1 and 2 j for -1. Statistic of a level: the number of reports
    and, for each row, the sum of its signs. Source: HLDP, Algorithm 5; Bassily and Smith (2015).

    **Privacy.** Theorem 1 of docs/proofs/privacy.md, given the row, whatever Phi is.

    **Hadamard's matrix.** A report agrees with the column of its category with probability p = 1 -
    T / 2^64, and with any other column with probability 1/2. One transform decodes all categories,
    in O(m log m). The variance of a report is (1 - (a f)^2) / a^2 with a = tanh(epsilon / 2), so
    this suits small epsilons.

    **Random signs.** The estimate is unbiased over seeds, but for one seed it has an error of up to
    sqrt(2 ln(2 / beta) / m) (theorem 7 of docs/proofs/mechanisms.md), which exceeds the noise if m
    is below A2, the sum of a^2 over all reports. The bounds and `effective_reports` include both
    errors. A query of k values costs O(k m); the matrix is never stored.

    ``optimal`` weights are 1 / variance at f = 1/k (at f = 0 for an open vocabulary); those of HLDP
    are a^2.

    Parameters
    ----------
    categories : int or None
        k, at least 2; None for an open vocabulary, whose values are 64-bit keys.
    rows : int, optional
        m, for random signs: 1 to 2^24. See :func:`suggested_rows`.
    seed : int
        The public seed of the random signs, in [0, 2^64); part of the metric's definition.

    Raises
    ------
    ValueError
        If `rows` or `seed` is out of range, or `rows` is missing for an open vocabulary.

    Examples
    --------
    >>> from estimators.exact.randomness import SeededBits
    >>> mechanism = Projection([Fraction(1)], categories=100)
    >>> mechanism.rows
    128
    >>> mechanism.randomize(np.full(4, 3), np.zeros(4, dtype=int), SeededBits(1))
    array([252,  25, 186, 204], dtype=uint8)
    >>> Projection([Fraction(1)], categories=None, rows=50_000).width
    4
    """

    name = "projection"
    open_vocabulary = True

    def __init__(
        self,
        epsilons: Epsilons,
        *,
        categories: int | None,
        rows: int | None = None,
        seed: int | None = None,
    ) -> None:
        if rows is None:
            if categories is None:
                raise ValueError(
                    "rows is missing: an open vocabulary needs a number of them, for instance "
                    f"{suggested_rows(1e5 * math.tanh(0.5) ** 2, 1000):,} for 100,000 reports at "
                    "epsilon 1 and 1,000 values (suggested_rows)"
                )
            if seed is not None:
                raise ValueError(f"seed = {seed}: Hadamard's matrix has none; give rows as well")
        elif not 1 <= rows <= LARGEST_TABLE:
            raise ValueError(f"rows = {rows}: expected 1 to {LARGEST_TABLE}")
        self.seed = 0 if seed is None else seed
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed = {seed}: expected 0 to 2^64 - 1")
        self.flips = FlippedSigns(epsilons)
        p = [1 - Fraction(flips, WORD) for flips in self.flips.flips]
        values = 2**64 if categories is None else categories
        super().__init__(epsilons, values, ReportedSigns(p, [Fraction(1, 2)] * len(p)))
        self.random = rows is not None
        """Whether the signs are hashes, not Hadamard's."""
        self.rows = 1 << values.bit_length() if rows is None else rows
        """m, the number of rows."""
        self.columns = 1 + self.rows
        self.dtype = index_dtype(2 * self.rows)

    def positive(self, row: Array, value: Array) -> Bools:
        """Return whether Phi[row, value] is +1, for indices and values of shapes that broadcast."""
        if self.random:
            words = mix(hash_constants(self.seed, row) ^ mix(value.astype(np.uint64)))
            return (words >> np.uint64(63)).astype(np.bool_)
        return ~hadamard.is_odd(row, value + 1)

    def randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        """Return one row and sign for each category index, or key."""
        bound = np.full(values.size, self.rows, dtype=np.uint64)
        row = uniform_below(bits, bound).astype(np.int64)
        flipped = bernoulli(bits, self.flips.thresholds, level)
        return (2 * row + (self.positive(row, values) ^ flipped)).astype(self.dtype)

    def check_values(self, levels: bytes, values: bytes) -> None:
        """Raise ReportError for a report of a row that does not exist."""
        check_symbols(values, self.dtype, 2 * self.rows)

    def accumulate(self, table: Counts, level: Levels, reports: Reports) -> None:
        """Add reports to a table with columns (reports, sum of the signs of row 0, 1, ...)."""
        table[:, 0] += tally(level, len(self.epsilons))
        index = reports.astype(np.int64)
        np.add.at(table, (level.astype(np.intp), 1 + (index >> 1)), 2 * (index & 1) - 1)

    def agreement(self, sums: Counts, values: Array) -> Counts:
        """Return for each value how many reports agree with its column, minus how many do not.

        `sums`, shape (levels, m): the signs' sum of each row; `values`, shape (k,). The result has
        shape (levels, k) and takes O(m) for each value. Doubles are exact here, because the
        absolute sums add up to at most the number of reports, which is below 2^53.
        """
        agreement = np.zeros((len(sums), values.size))
        rows = min(self.rows, MATRIX_CELLS_AT_A_TIME // 16)
        step = MATRIX_CELLS_AT_A_TIME // rows
        for first in range(0, self.rows, rows):
            row = np.arange(first, min(first + rows, self.rows))[:, None]
            part = sums[:, first : first + rows].astype(np.float64)
            for start in range(0, values.size, step):
                positive = self.positive(row, values[start : start + step])
                agreement[:, start : start + step] += part @ np.where(positive, 1.0, -1.0)
        return agreement.astype(np.int64)

    def support_of(self, table: Counts, selected: Array | None) -> Counts:
        """Return how many reports agree with each selected column (None: all), (levels, k)."""
        sums = table[:, 1:]
        if self.random or (selected is not None and selected.size < self.rows.bit_length()):
            values = np.arange(self.categories) if selected is None else selected
            agreement = self.agreement(sums, values)
        else:
            agreement = hadamard.transform(sums)[:, 1 : 1 + self.categories]
            agreement = agreement if selected is None else agreement[:, selected]
        return (table[:, :1] + agreement) // 2

    def support(self, table: Counts) -> Counts:
        """Return how many reports agree with the column of each category, shape (levels, k)."""
        return self.support_of(table, None)

    def estimate_alike(self, tables: Sequence[Counts], question: Question) -> list[Estimate]:
        """Return estimates of the requested frequencies, with bounds that hold together."""
        if self.random and tables[0][:, 0].any():
            return [self._estimate_random(table, question) for table in tables]
        return super().estimate_alike(tables, question)

    def _estimate_random(self, table: Counts, question: Question) -> Estimate:
        """Return the estimate of a window with reports of random signs."""
        _, counts, shares, total = weighed = self._weigh(table[:, 0], question)
        support = self.support_of(table, question.asked)
        law = self.flips.law(counts, shares, question)
        means = self.flips.means(counts, support)
        value = shares @ means
        log_values = math.log(self.categories)
        bounds = projection_limits(law, value, question, total, self.rows, log_values)
        p_value = heterogeneity(law, means[counts > 0])
        effective = 1 / (4 * (law.worst_variance + 1 / self.rows))
        return self._build_estimate(weighed, value, bounds, effective, p_value)

    def supports(self, reports: Reports, level: int, category: Any) -> Bools:
        """Return which reports agree with the category's column."""
        index = reports.astype(np.int64)
        return np.asarray(
            self.positive(index >> 1, np.asarray(category)) == (index & 1).astype(bool)
        )

    def report_range(self) -> tuple[Floats, Floats]:
        """Return the values that a sign represents if it disagrees or agrees with a column."""
        return self.flips.range() if self.random else super().report_range()

    def privacy_ratio(self, level: int) -> Fraction:
        """Return (2^64 - T) / T, exactly: the ratio of a sign's probabilities under two values."""
        return self.flips.ratio(level)

    def set_laws(self, level: int) -> tuple[SetLaw, ...]:
        """Return the law of a row and a sign; two of Hadamard's columns agree in half the rows."""
        overlap = Fraction(0) if self.random else Fraction(1, 4)
        return (SetLaw(self.privacy_ratio(level), overlap=overlap),)


def suggested_rows(information: float, values: int, beta: float = 0.05) -> int:
    """Return how many rows m of random signs suffice, by HLDP's Algorithm 5.

    `information`: A2, the sum of tanh^2(epsilon / 2) over all reports; `values`: d, the number of
    values of interest; `beta`: failure probability. m = ln(d + 1) ln(2 / beta) / gamma^2, where
    gamma = sqrt(ln(2 d / beta) / A2). (The paper omits the root, so the example would give 1.1e9.)
    The bound on the bias is then sqrt(A2 / m) times that on the noise, 0.64 in the example.

    >>> suggested_rows(1e5 * math.tanh(1 / 2) ** 2, 1000)
    51361
    """
    needed = math.log(values + 1) * math.log(2 / beta) * information
    return math.ceil(needed / math.log(2 * values / beta))
