"""Recursive Hadamard response: a row and a symbol of b bits, about one category in 2^(b-1)."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from estimators.estimate import Array, Bools, Counts
from estimators.exact import hadamard
from estimators.exact.randomness import Bits
from estimators.exact.sampling import bernoulli, uniform_below, uniform_other
from estimators.exact.thresholds import output_chances
from estimators.mechanisms.mechanism import Epsilons, Levels, Reports
from estimators.mechanisms.shared.block_differences import BlockDifferences, even_variance


class RecursiveHadamard(BlockDifferences):
    """Recursive Hadamard response (RHR): a block and a sign, through randomized response.

    At a level there are B = 2^(b-1) blocks and R = K / B rows, K = 2^ceil(log2 k). Category x
    belongs to block x mod B and to column x // B of the R by R Hadamard matrix H. The device draws
    a row r and sends the block with the sign H[r, x // B], through randomized response over these
    2^b symbols: the report is r 2^b + 2 block + (1 if the sign is -1). See
    :class:`~estimators.mechanisms.shared.block_differences.BlockDifferences`. b = 1 is the one-bit
    Hadamard mechanism. Source: Chen, Kairouz and Ozgur (2020), theorem 3.1.

    **Bits.** b gives the least variance at f = 1/k, in exact arithmetic; 2^b is near e^epsilon - 1,
    and at most 2K.

    **Privacy.** Theorem 1 of docs/proofs/privacy.md, given the row, with M = 2^b and W = 1.

    **Decoding.** Per block, the transform over r of (reports of +1) - (reports of -1): O(K log R).

    Parameters
    ----------
    categories : int
        k, at least 2.

    Examples
    --------
    >>> from estimators.exact.randomness import SeededBits
    >>> mechanism = RecursiveHadamard([Fraction(1), Fraction(4)], categories=100)
    >>> mechanism.bits, mechanism.rows
    ([1, 6], [128, 4])
    >>> mechanism.randomize(np.full(4, 3), np.array([0, 0, 1, 1]), SeededBits(1))
    array([253,  25,  70, 134], dtype=uint8)
    """

    name = "recursive_hadamard"

    def __init__(self, epsilons: Epsilons, *, categories: int) -> None:
        self.bits = [best_bits(epsilon, categories) for epsilon in epsilons]
        """b, the bits of a symbol, per level."""
        blocks = [1 << (bits - 1) for bits in self.bits]
        size = 1 << (categories - 1).bit_length()
        self.rows = [size // n for n in blocks]
        """R, the number of rows, per level."""
        self._set_misses(epsilons, [1] * len(blocks), [2 * n - 1 for n in blocks])
        chances = zip(*self.chances, strict=True)
        super().__init__(epsilons, categories, blocks, [2 * size] * len(blocks), *chances)
        self._rows = np.array(self.rows, dtype=np.uint64)

    def randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        """Return for each category index a report: the index of a row and a symbol."""
        blocks = self._block_counts[level]
        column, block = self._block_of(values, level)
        row = uniform_below(bits, self._rows[level]).astype(np.int64)
        symbol: Reports = 2 * block + hadamard.is_odd(row, column)
        missed = np.flatnonzero(bernoulli(bits, self._thresholds, level))
        bound = 2 * blocks[missed]
        symbol[missed] = uniform_other(bits, symbol[missed], bound.astype(np.uint64))
        return (2 * blocks * row + symbol).astype(self.dtype)

    def supports(self, reports: Reports, level: int, category: Any) -> Bools:
        """Return which reports have the category's symbol in their row."""
        column, category_block = divmod(category, self.blocks[level])
        row, symbol = np.divmod(reports.astype(np.int64), 2 * self.blocks[level])
        return np.asarray(symbol == 2 * category_block + hadamard.is_odd(row, np.asarray(column)))

    def _differences(self, symbols: Counts, blocks: int) -> tuple[Counts, Counts]:
        """Return, per category, the sum of signs in its block and the number of reports there."""
        levels, categories, rows = len(symbols), self.categories, symbols.shape[1] // (2 * blocks)
        counts = symbols.reshape(levels, rows, blocks, 2)
        nets = (counts[..., 0] - counts[..., 1]).transpose(0, 2, 1)
        signs = hadamard.transform(nets.reshape(-1, rows)).reshape(levels, blocks, rows)
        sizes = np.tile(counts.sum((1, 3)), -(-categories // blocks))
        return signs.transpose(0, 2, 1).reshape(levels, -1)[:, :categories], sizes[:, :categories]


def best_bits(epsilon: Fraction, categories: int) -> int:
    """Return the b of least variance if every category has the share 1/k, with 2^b at most 2K.

    The arithmetic is exact, because every device and the aggregator must agree on it.

    >>> [best_bits(Fraction(e), 1000) for e in (1, 2, 4, 16)]
    [1, 3, 6, 11]
    """

    def variance(bits: int) -> Fraction:
        chances = output_chances(epsilon, 1, 2**bits - 1)
        return even_variance(categories, 2 ** (bits - 1), *chances)

    return min(range(1, (categories - 1).bit_length() + 2), key=variance)
