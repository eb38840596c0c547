"""Hadamard response for frequencies over large domains: one symbol, decoded by a fast transform."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators import hadamard
from estimators.bounds.differences import DifferenceLaw, difference_limits
from estimators.estimate import Counts, Estimate, Floats
from estimators.mechanisms.mechanism import Levels, Reports
from estimators.mechanisms.symbols import ReportedSymbols
from estimators.question import Question
from estimators.randomness import Bits
from estimators.sampling import bernoulli, uniform_below
from estimators.thresholds import WORD, exp_bounds, miss_threshold
from estimators.weights import LevelFacts, level_weights, total_weight


class HadamardResponse(ReportedSymbols):
    """Hadamard response: a symbol from half a block of symbols, which the category chooses.

    At a level there are K = B b symbols in B blocks of b. Category x belongs to block x mod B and
    to row r = 1 + x // B of the b by b Hadamard matrix; its set C is the b / 2 symbols of the block
    where row r is +1. The report is uniform on C with odds s e^epsilon to K - s, s = b / 2, and
    else uniform on all other symbols; the symbol's index, in the smallest of 1, 2 or 4 bytes that
    holds all levels' K. Statistic of a level: the number of reports and those of each symbol; cells
    beyond a level's own K stay zero. Source: Acharya, Sun and Zhang (2019), section 5.

    Parameters
    ----------
    epsilons : sequence of Fraction
        The privacy levels, ascending.
    categories : int
        k, at least 2.

    Notes
    -----
    **Blocks.** B = 2^floor(log2 min(e^epsilon, 2k)), b = 2^ceil(log2(k/B + 1)), in exact
    arithmetic. A level of a small epsilon has one large block, one of a large epsilon many small
    ones; all share the columns, since K is at most 6k.

    **Decoding.** The transform of a block's counts at row r is N(C) - N(block without C), of mean
    n f c with c = P(C | x) - P(rest of the block | x); f is the share of x. A report of another
    category falls on both halves alike, since rows are orthogonal. O(K log b), memory linear in K.

    **Variance.** (A - (c f)^2) / c^2 a report, where A = 2u + g c is the chance of the block, g the
    share of all the block's categories and u = P(C | another block). At worst all hold another
    category of the block; where a block has one category, 1/2 or more hold that one. ``optimal``
    weights take it at f = 1/k, averaged over the categories. ``paper`` is HLDP's Algorithm 5,
    tanh^2(epsilon / 2).

    Examples
    --------
    >>> from estimators.randomness import SeededBits
    >>> mechanism = HadamardResponse([Fraction(1), Fraction(4)], categories=100)
    >>> mechanism.blocks, mechanism.block_sizes
    ([2, 32], [64, 8])
    >>> mechanism.randomize(np.full(4, 3), np.array([0, 0, 1, 1]), SeededBits(1))
    array([121, 109,  12,  30], dtype=uint8)
    """

    name = "hadamard_response"
    kinds = frozenset({"frequency"})

    def __init__(self, epsilons: Sequence[Fraction], *, categories: int) -> None:
        super().__init__(epsilons)
        self.categories = categories
        self.blocks = [block_count(epsilon, categories) for epsilon in self.epsilons]
        """B, per level."""
        self.block_sizes = [1 << (-(-categories // blocks)).bit_length() for blocks in self.blocks]
        """b, per level."""
        self.symbols = [n * b for n, b in zip(self.blocks, self.block_sizes, strict=True)]
        """K, per level."""
        self._count_symbols(self.symbols)
        self.misses = [
            miss_threshold(epsilon, size // 2, symbols - size // 2)
            for epsilon, size, symbols in zip(
                self.epsilons, self.block_sizes, self.symbols, strict=True
            )
        ]
        """T, per level."""
        self._thresholds = np.array(self.misses, dtype=np.uint64)
        self._block_counts = np.array(self.blocks, dtype=np.int64)
        self._sizes = np.array(self.block_sizes, dtype=np.int64)
        other = [
            Fraction(t, WORD) * Fraction(b // 2, n - b // 2)
            for t, b, n in zip(self.misses, self.block_sizes, self.symbols, strict=True)
        ]
        contrast = [Fraction(WORD - t, WORD) - u for t, u in zip(self.misses, other, strict=True)]
        self.other = np.array([float(u) for u in other])
        """u per level: the chance of the half block of a category in a block not one's own."""
        self.contrast = np.array([float(c) for c in contrast])
        """c per level."""
        shared = self._block_counts < categories
        alone = np.minimum(1, 1 / (2 * self.contrast)) * self.contrast
        self._worst = 2 * self.other + np.where(shared, self.contrast, alone - alone**2)
        epsilon = np.array([float(e) for e in self.epsilons])
        chance = 2 * self.other + self.contrast * self._even_share()
        self.facts = LevelFacts(
            epsilons=epsilon,
            variances=chance / self.contrast**2 - 1 / categories**2,
            paper=np.tanh(epsilon / 2) ** 2,
        )

    def _even_share(self) -> Floats:
        """Return the share of a category's own block, of frequencies 1/k, averaged over them."""
        small, larger = np.divmod(self.categories, self._block_counts)
        squares = larger * (small + 1) ** 2 + (self._block_counts - larger) * small**2
        share: Floats = squares / self.categories**2
        return share

    def randomize(self, values: NDArray[Any], level: Levels, bits: Bits) -> Reports:
        """Return one symbol for each category index."""
        size, symbols = self._sizes[level], self._symbols[level]
        row, block = np.divmod(values.astype(np.int64), self._block_counts[level])
        row += 1
        missed = bernoulli(bits, self._thresholds[level])
        bound = np.where(missed, symbols - size // 2, size // 2)
        drawn = uniform_below(bits, bound.astype(np.uint64)).astype(np.int64)
        # half the columns of a block: a bit put in at the row's lowest one settles the sign
        lowest = row & -row
        column = ((drawn & ~(lowest - 1)) << 1) | (drawn & (lowest - 1))
        column ^= np.where(hadamard.is_odd(row, column) != missed, lowest, 0)
        elsewhere = missed & (drawn >= size // 2)
        far = drawn - size // 2
        far += np.where(far >= block * size, size, 0)
        return np.where(elsewhere, far, block * size + column).astype(self.dtype)

    def differences(self, table: Counts, level: int) -> tuple[Counts, Counts]:
        """Return, per category, the sum of signs in its block and the number of reports there."""
        blocks, size = self.blocks[level], self.block_sizes[level]
        counts = table[level, 1 : 1 + blocks * size].reshape(blocks, size)
        signs = hadamard.transform(counts).T  # rows of the matrix, by blocks: categories in order
        rest = self.categories
        return signs[1:].ravel()[:rest], np.resize(signs[0], rest)

    def estimate(self, table: Counts, question: Question) -> Estimate:
        """Estimate the frequency of every category, with bounds that hold for all at once."""
        counts = table[:, 0]
        shares = level_weights(question.weights, counts, self.facts)
        if not counts.any():
            return self._nothing(question, counts, self.categories)
        used = np.flatnonzero(counts)
        parts = [self.differences(table, level) for level in used.tolist()]
        asked = slice(None) if question.asked is None else question.asked
        sums = [part[0][asked].astype(np.float64) for part in parts]
        sizes = [part[1][asked].astype(np.float64) for part in parts]
        law = self.law(counts, shares, question)
        value = np.zeros_like(sums[0])
        for coefficient, total in zip(law.coefficient.tolist(), sums, strict=True):
            value += coefficient * total
        log_p = question.log_p(value.size)
        scale = total_weight(question.weights, counts, self.facts)
        bounds = difference_limits(law, value, sizes, question, log_p, scale)
        worst = float(law.counts @ (law.coefficient**2 * self._worst[used]))
        return self._answer(question, counts, shares, value, bounds, 1 / (4 * worst))

    def law(self, counts: Counts, shares: Floats, question: Question) -> DifferenceLaw:
        """Return the law of the weighted mean of unbiased reports; some count is above zero."""
        used = counts > 0
        n, contrast, other = counts[used], self.contrast[used], self.other[used]
        return DifferenceLaw(
            counts=n.astype(np.float64),
            coefficient=shares[used] / (n * contrast),
            contrast=contrast,
            least=2 * other,
            largest=2 * other + contrast,
            free=not question.one_mean(len(n)),
            fixed=question.target == "sample",
        )

    def privacy_ratio(self, level: int) -> Fraction:
        """Return (2^64 - T) (K - s) / (T s), exactly: a symbol in the set and out of it."""
        misses, half = self.misses[level], self.block_sizes[level] // 2
        return Fraction((WORD - misses) * (self.symbols[level] - half), misses * half)


def block_count(epsilon: Fraction, categories: int) -> int:
    """Return 2^floor(log2 min(e^epsilon, 2k)), in exact arithmetic.

    Every device and the aggregator have to agree on it.

    Examples
    --------
    >>> [block_count(Fraction(e), 1000) for e in (1, 4, 16)]
    [2, 32, 1024]
    """
    precision = 128
    while True:
        low, high = (int(min(e, Fraction(2 * categories))) for e in exp_bounds(epsilon, precision))
        if low.bit_length() == high.bit_length():
            return 1 << (low.bit_length() - 1)
        precision *= 2
