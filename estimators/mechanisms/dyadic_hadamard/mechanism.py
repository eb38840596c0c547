"""The mechanism `dyadic_hadamard`: one compressed answer about one node of a binary tree."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from estimators.distribution import DistributionEstimate
from estimators.estimate import Array, Bools, Counts, Estimate, Floats, Indices, Integers
from estimators.exact.hadamard import is_odd
from estimators.exact.randomness import Bits
from estimators.exact.sampling import bernoulli, uniform_below, uniform_other
from estimators.exact.tallies import tally
from estimators.mechanisms.dyadic_hadamard.constants import CHANCE_GRAIN, level_constants
from estimators.mechanisms.dyadic_hadamard.estimation import read_distributions
from estimators.mechanisms.dyadic_hadamard.scores import ScoreTables, score_range
from estimators.mechanisms.mechanism import Epsilons, Levels, Mechanism, Reports, refuse_first
from estimators.question import Question
from estimators.shuffling.set_laws import SetLaw
from estimators.weights import LevelFacts

LARGEST_HEIGHT = 12
NUMBERS_AT_A_TIME = 2**16  # in an array of windows that are estimated together: a cache holds them
REPORT_BYTES = 5
"""Bytes of a report: the depth in 4 bits, two rows in 12 bits each, the symbol in at most 9."""
ROW_SHIFT, SECOND_ROW_SHIFT, SYMBOL_SHIFT = np.int64(4), np.int64(16), np.int64(28)
"""The positions of the lowest bits of the first row, the second row and the symbol in a report."""


class DyadicHadamard(Mechanism):
    """One node of a binary tree over the bins, compressed by Hadamard's matrix to a few bits.

    The bins are padded to B = 2^h. The device draws a depth j, by public probabilities. Of the j
    bits of its node there, the first c are sent as they are; of the others it sends m parities,
    with random rows that it sends too. These c + m bits are one symbol of q = 2^(c+m), which k-ary
    randomized response protects. A report is j + 16 r1 + 2^16 r2 + 2^28 symbol, in 5 bytes, little
    endian. Statistic of a level: the number of reports, a zero, and for each depth j from 1 the 2^j
    sums of the rows of each block. Source: Cormode, Kulkarni and Srivastava (2019), whose
    HaarHRR is c = 0, m = 1; Hay, Rastogi, Miklau and Suciu (2010) for consistency.

    **Privacy.** Theorem 1 of docs/proofs/privacy.md, given depth and rows, which do not depend on
    the value.

    **Accuracy.** c, m and the probabilities of the depths minimise v, the variance of sqrt(n) F
    averaged over the edges for uniform data. Its root is within a factor of 1.24 of the least that
    any unbiased mechanism can have, for epsilons up to 2. These constants are part of the metric's
    revision.

    ``optimal`` weights are 1 / v. `bins`: the number of bins, 2 to 4096.

    >>> from estimators.exact.randomness import SeededBits
    >>> mechanism = DyadicHadamard([Fraction(1)], bins=256)
    >>> mechanism.levels[0].symbols, mechanism.levels[0].variance.__round__(1), mechanism.columns
    (4, 21.9, 512)
    >>> mechanism.randomize(np.full(2, 100), np.zeros(2, dtype=int), SeededBits(1)).shape
    (2, 5)
    """

    name = "dyadic_hadamard"
    kinds = frozenset({"distribution"})
    dtype = np.dtype(np.uint8)
    shape = (REPORT_BYTES,)

    def __init__(self, epsilons: Epsilons, *, bins: int) -> None:
        super().__init__(epsilons)
        if not 2 <= bins <= 1 << LARGEST_HEIGHT:
            raise ValueError(f"bins = {bins}: expected 2 to {1 << LARGEST_HEIGHT}")
        self.bins = bins
        self.height = (bins - 1).bit_length()
        self.columns = 2 << self.height
        self.levels = tuple(level_constants(epsilon, self.height) for epsilon in epsilons)
        self.facts = LevelFacts.of(epsilons, np.array([level.variance for level in self.levels]))
        # shapes (levels,), and (levels, depths)
        self._keep = np.array([level.threshold for level in self.levels], dtype=np.uint64)
        self._blocks = np.array([level.block_bits for level in self.levels], dtype=np.int64)
        self._hashes = np.array([level.hash_bits for level in self.levels], dtype=np.int64)
        self._symbols = np.array([level.symbols for level in self.levels], dtype=np.int64)
        self._ends = np.cumsum([level.chances for level in self.levels], axis=1)
        self._used = np.zeros((len(self.levels), 16), dtype=np.bool_)
        for row, level in enumerate(self.levels):
            self._used[row, list(level.depths)] = True

    @property
    def public_constants(self) -> dict[str, Any]:
        """c, m, and the probabilities of the depths times 2^16, of each level."""
        return {
            "block_bits": self._blocks.tolist(),
            "hash_bits": self._hashes.tolist(),
            "depths": [list(level.chances) for level in self.levels],
        }

    def randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        """Return one report for each index of a bin."""
        level = level.astype(np.intp)
        bound = np.full(values.size, CHANCE_GRAIN, dtype=np.uint64)
        drawn = uniform_below(bits, bound).astype(np.int64)
        depth = (drawn[:, None] >= self._ends[level]).sum(axis=1)
        hashes = self._hashes[level]
        free = depth - self._blocks[level]
        rows = (np.int64(1) << free) - 1
        first = 1 + uniform_below(bits, rows.astype(np.uint64)).astype(np.int64)
        second, two = np.zeros_like(first), np.flatnonzero(hashes == 2)
        if two.size:
            bound = rows[two].astype(np.uint64)
            second[two] = 1 + uniform_other(bits, first[two] - 1, bound).astype(np.int64)
        node = values.astype(np.int64) >> (self.height - depth)
        low_bits = node & rows
        parity = is_odd(first, low_bits) + 2 * is_odd(second, low_bits)
        symbol = ((node >> free) << hashes) | parity
        is_kept = bernoulli(bits, self._keep, level)
        replacement = uniform_below(bits, self._symbols[level].astype(np.uint64)).astype(np.int64)
        symbol = np.where(is_kept, symbol, replacement)
        words = depth | first << ROW_SHIFT | second << SECOND_ROW_SHIFT | symbol << SYMBOL_SHIFT
        wide_reports = words.astype("<u8").view(np.uint8).reshape(-1, 8)
        return np.ascontiguousarray(wide_reports[:, :REPORT_BYTES])

    def check_values(self, levels: bytes, values: bytes) -> None:
        """Raise ReportError for a report that no value can give at its level."""
        reports = np.frombuffer(values, dtype=np.uint8).reshape(-1, REPORT_BYTES)
        level = np.frombuffer(levels, dtype=np.uint8)
        depth, first, second, symbol = _parts(reports)
        rows = (np.int64(1) << np.maximum(depth - self._blocks[level], 0)) - 1
        has_one_row = self._hashes[level] == 1
        strange = ~self._used[level, depth] | (first == 0) | (first > rows)
        is_bad_second = (second == 0) | (second == first) | (second > rows)
        strange |= np.where(has_one_row, second != 0, is_bad_second)
        strange |= symbol >= self._symbols[level]
        refuse_first(
            strange,
            lambda i: (
                f"a report of depth {depth[i]}, rows {first[i]} and {second[i]}, "
                f"symbol {symbol[i]}: expected a depth in use at its level, different rows "
                f"from 1 to {rows[i]}, and a symbol below {self._symbols[level[i]]}"
            ),
        )

    def accumulate(self, table: Counts, level: Levels, reports: Reports) -> None:
        """Add reports to a table with columns (reports, 0, sums of depth 1, of depth 2, ...)."""
        table[:, 0] += tally(level, len(self.epsilons))
        level = level.astype(np.intp)
        depth, first, second, symbol = _parts(reports)
        hashes = self._hashes[level]
        block = symbol >> hashes
        start = level * self.columns + (np.int64(1) << depth)
        start += block << (depth - self._blocks[level])
        cells = table.reshape(-1)
        np.add.at(cells, start, 1)
        signs = 1 - 2 * (symbol & 1)
        np.add.at(cells, start + first, signs)
        two = np.flatnonzero(hashes == 2)
        if not two.size:
            return
        start, first, second = start[two], first[two], second[two]
        second_signs = 1 - (symbol[two] & 2)
        np.add.at(cells, start + second, second_signs)
        np.add.at(cells, start + (first ^ second), signs[two] * second_signs)

    def find_error(self, table: Counts) -> str | None:
        """Return why no reports can give this table; None if some can.

        Row 0 of a block counts the block's reports, so no other row of it can have a larger sum.
        """
        if error := super().find_error(table):
            return error
        counted, owner = self._block_counts
        if (np.where(counted, table, 0).sum(axis=1) != table[:, 0]).any():
            return "another number of reports than over all depths"
        largest = np.where(owner, np.take_along_axis(table, owner, axis=1), 0)
        sums, bounds = table[:, 1:], largest[:, 1:]
        if ((sums > bounds) | (sums < -bounds)).any():
            return "a sum that is larger than its number of reports"
        return None

    @functools.cached_property
    def _block_counts(self) -> tuple[Bools, Indices]:
        """Whether each cell is row 0 of a block, and the cell of its block's row 0; 0 if unused."""
        owner = np.zeros((len(self.levels), self.columns), dtype=np.intp)
        for row, level in enumerate(self.levels):
            for depth in level.depths:
                cells, free = np.arange(1 << depth, 2 << depth), depth - level.block_bits
                owner[row, cells] = cells >> free << free
        return (owner == np.arange(self.columns)) & (owner > 0), owner

    @functools.cached_property
    def tree(self) -> ScoreTables:
        """The constants from which estimates are computed."""
        return ScoreTables.of(self.bins, self.levels)

    def estimate_alike(self, tables: Sequence[Counts], question: Question) -> list[Estimate]:
        """Return estimates of F at the edges of the bins, and of quantiles, in bins.

        `question.asked` lists the quantiles. The band holds at all edges at once, and so do the
        bounds of several quantiles. If only one quantile is asked for, its bounds are narrower.
        """
        weights, height = self.report_weights(question.weights), self.height
        step = max(1, NUMBERS_AT_A_TIME // ((height + 1) << height))
        parts = (np.array(tables[begin : begin + step]) for begin in range(0, len(tables), step))
        asked = weights / weights.max(), question
        distributions = [x for part in parts for x in read_distributions(self.tree, part, *asked)]
        edges = np.arange(self.bins + 1, dtype=np.float64)
        estimates: list[Estimate] = []
        for table, (numbers, curves) in zip(tables, distributions, strict=True):
            answer = self._build_estimate(self._weigh(table[:, 0], question), *numbers)
            estimates.append(DistributionEstimate.of(answer, edges=edges, **curves))
        return estimates

    def log_likelihood(self, reports: Reports, level: int, value: Any) -> Floats:
        """Return the logarithm of each report's probability for a value in this bin."""
        constants = self.levels[level]
        depth, first, second, symbol = _parts(reports)
        free = depth - constants.block_bits
        node = np.int64(value) >> (self.height - depth)
        low_bits = node & ((np.int64(1) << free) - 1)
        parity = is_odd(first, low_bits) + 2 * is_odd(second, low_bits)
        expected = ((node >> free) << constants.hash_bits) | parity
        return np.where(symbol == expected, self.log_ratio(level), 0.0)

    def report_range(self) -> tuple[Floats, Floats]:
        """Return the least and the largest F at an edge that a report of each level represents."""
        edges = np.arange(1, 1 << self.height) / (1 << self.height)
        inner = slice(self.bins - 1)
        ranges = [score_range(level) for level in self.levels]
        low = np.array([(edges + lowest)[inner].min() for lowest, _ in ranges])
        high = np.array([(edges + highest)[inner].max() for _, highest in ranges])
        return low, high

    def privacy_ratio(self, level: int) -> Fraction:
        """Return 1 + q T / (2^64 - T), exactly: only the symbol depends on the value."""
        return self.levels[level].ratio

    def set_laws(self, level: int) -> tuple[SetLaw, ...]:
        """Return the law of a symbol, given depth and rows, for the privacy of crowds."""
        return (SetLaw(self.privacy_ratio(level), Fraction(1, self.levels[level].symbols)),)


def _parts(reports: Reports) -> tuple[Integers, Integers, Integers, Integers]:
    """Return the depth, the two rows and the symbol of each report."""
    wide_reports = np.zeros((len(reports), 8), dtype=np.uint8)
    wide_reports[:, :REPORT_BYTES] = reports
    words = wide_reports.view("<u8").reshape(-1).astype(np.int64)
    return (
        words & 15,
        words >> ROW_SHIFT & 4095,
        words >> SECOND_ROW_SHIFT & 4095,
        words >> SYMBOL_SHIFT,
    )
