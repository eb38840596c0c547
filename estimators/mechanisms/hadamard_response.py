"""Hadamard response for frequencies over large domains: one symbol, decoded by a fast transform."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from estimators.estimate import Array, Bools, Counts
from estimators.exact import hadamard
from estimators.exact.randomness import Bits
from estimators.exact.sampling import bernoulli, uniform_below
from estimators.exact.thresholds import at_exp
from estimators.mechanisms.mechanism import Epsilons, Levels, Reports
from estimators.mechanisms.shared.block_differences import BlockDifferences


class HadamardResponse(BlockDifferences):
    """Hadamard response: a symbol from half a block of symbols that belongs to the category.

    At a level there are K = B b symbols in B blocks of b. Category x belongs to block x mod B and
    to row r = 1 + x // B of the b by b Hadamard matrix; its set C is the s = b / 2 symbols of the
    block where row r is +1. The report is uniform on C with odds s e^epsilon to K - s, and
    otherwise uniform on all other symbols: +1 in C and -1 in the rest of the block, as in
    :class:`~estimators.mechanisms.shared.block_differences.BlockDifferences`. Source: Acharya, Sun
    and Zhang (2019), section 5.

    **Blocks.** B = 2^floor(log2 min(e^epsilon, 2k)), b = 2^ceil(log2(k/B + 1)), in exact
    arithmetic. All levels share the columns, because K is at most 6k.

    **Decoding.** The transform of a block's counts at row r is N(C) - N(block without C), of mean n
    f c. Reports of another category are equally likely in both halves, because rows are orthogonal.
    The cost is O(K log b). Privacy is theorem 1 of docs/proofs/privacy.md with M = K, W = s.

    Parameters
    ----------
    categories : int
        k, at least 2.

    Examples
    --------
    >>> from estimators.exact.randomness import SeededBits
    >>> mechanism = HadamardResponse([Fraction(1), Fraction(4)], categories=100)
    >>> mechanism.blocks, mechanism.block_sizes
    ([2, 32], [64, 8])
    >>> mechanism.randomize(np.full(4, 3), np.array([0, 0, 1, 1]), SeededBits(1))
    array([121,  76,   7,  28], dtype=uint8)
    """

    name = "hadamard_response"

    def __init__(self, epsilons: Epsilons, *, categories: int) -> None:
        blocks = [block_count(epsilon, categories) for epsilon in epsilons]
        self.block_sizes = [block_size(categories, n) for n in blocks]
        """b, the number of symbols of a block, per level."""
        symbols = [n * b for n, b in zip(blocks, self.block_sizes, strict=True)]
        halves = [b // 2 for b in self.block_sizes]
        complements = [n - half for n, half in zip(symbols, halves, strict=True)]
        self._set_misses(epsilons, halves, complements)
        levels = zip(self.chances, halves, strict=True)
        chances = zip(*((p * half, q * half) for (p, q), half in levels), strict=True)
        super().__init__(epsilons, categories, blocks, symbols, *chances)
        self._sizes = np.array(self.block_sizes, dtype=self._integer)

    def randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        """Return one symbol for each category index."""
        size, symbols = self._sizes[level], self._symbols.astype(self._integer)[level]
        row, block = self._block_of(values, level)
        row += 1
        missed = bernoulli(bits, self._thresholds, level)
        bound = np.where(missed, symbols - size // 2, size // 2)
        drawn = uniform_below(bits, bound.view(f"u{self._integer.itemsize}")).astype(self._integer)
        # a column among the half with the right sign: the bit at the row's lowest 1 sets the sign
        lowest = row & -row
        column = ((drawn & ~(lowest - 1)) << 1) | (drawn & (lowest - 1))
        column ^= np.where(hadamard.is_odd(row, column) != missed, lowest, 0)
        is_outside = missed & (drawn >= size // 2)
        outside_rank = drawn - size // 2
        outside_rank += np.where(outside_rank >= block * size, size, 0)
        symbol: Array = np.where(is_outside, outside_rank, block * size + column)
        return symbol.astype(self.dtype)

    def supports(self, reports: Reports, level: int, category: Any) -> Bools:
        """Return which reports lie in the category's half of its block."""
        row, category_block = divmod(category, self.blocks[level])
        block, column = np.divmod(reports.astype(np.int64), self.block_sizes[level])
        return np.asarray((block == category_block) & ~hadamard.is_odd(np.asarray(row + 1), column))

    def _differences(self, symbols: Counts, blocks: int) -> tuple[Counts, Counts]:
        """Return, per category, the sum of signs in its block and the number of reports there."""
        levels = len(symbols)
        categories = self.categories
        size = block_size(self.categories, blocks)
        signs = hadamard.transform(symbols[:, : blocks * size].reshape(-1, size))
        # rows of the matrix, by blocks: categories in order
        signs = signs.reshape(levels, blocks, size).transpose(0, 2, 1)
        sizes = np.tile(signs[:, 0], -(-categories // blocks))
        return signs[:, 1:].reshape(levels, -1)[:, :categories], sizes[:, :categories]


def block_count(epsilon: Fraction, categories: int) -> int:
    """Return the number of blocks for k categories, B = 2^floor(log2 min(e^epsilon, 2k)).

    The arithmetic is exact, because every device and the aggregator must agree on it.

    >>> [block_count(Fraction(e), 1000) for e in (1, 4, 16)]
    [2, 32, 1024]
    """
    largest = Fraction(2 * categories)
    return at_exp(epsilon, lambda e: 1 << (int(min(e, largest)).bit_length() - 1))


def block_size(categories: int, blocks: int) -> int:
    """Return b = 2^ceil(log2(k/B + 1)), the size of a block, for k categories in B blocks.

    The b rows are enough for each category of a block, and for the constant row.

    >>> block_size(100, 2), block_size(100, 32)
    (64, 8)
    """
    return 1 << (-(-categories // blocks)).bit_length()
