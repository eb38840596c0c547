"""The base of mechanisms whose reports name a block of categories and a sign within it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.bounds.differences import difference_limits
from estimators.bounds.heterogeneity import heterogeneity_of_differences
from estimators.bounds.laws.difference_law import DifferenceLaw
from estimators.estimate import Counts, Estimate, Floats
from estimators.mechanisms.mechanism import Levels, Reports
from estimators.mechanisms.shared.symbols import ReportedSymbols
from estimators.question import Question
from estimators.weights import LevelFacts, level_weights, total_weight

Signed = NDArray[np.signedinteger[Any]]


class BlockDifferences(ReportedSymbols):
    """A frequency mechanism whose reports are +1, -1 or 0 for each category.

    At a level, category x belongs to block x mod B, and a report names one block. For the
    categories of other blocks the report is D = 0; for those of its own block, +1 or -1. A user who
    holds the category reports +1 with probability p and -1 with u. A user who holds another
    category of its block reports each with (p + u) / 2; all others report each with u. Hence E D =
    c f, c = p - u, f the category's share, and P(D != 0) = 2u + g c, g the share of its block.

    Parameters
    ----------
    epsilons : sequence of Fraction
        The privacy levels, ascending.
    categories : int
        k, at least 2.
    blocks, symbols : sequence of int
        B and the number of symbols, per level.
    own, other : sequence of Fraction
        p and u per level, as exact fractions from the integer thresholds.

    Notes
    -----
    The variance of a report is (2u + g c - (c f)^2) / c^2. In the worst case all users hold another
    category of the block; if a block has one category, 1/2 or more hold that one. ``optimal``
    weights use it at f = 1/k, averaged over the categories. ``paper`` is HLDP's Algorithm 5,
    tanh^2(epsilon/2).
    """

    kinds = frozenset({"frequency"})

    def __init__(
        self,
        epsilons: Sequence[Fraction],
        categories: int,
        blocks: Sequence[int],
        symbols: Sequence[int],
        own: Sequence[Fraction],
        other: Sequence[Fraction],
    ) -> None:
        super().__init__(epsilons)
        self.categories = categories
        self.blocks = list(blocks)
        """B, per level."""
        self.symbols = list(symbols)
        """Per level."""
        self._count_symbols(symbols)
        self._integer = np.dtype(np.int32 if max(symbols) < 2**30 else np.int64)
        self._block_counts = np.array(blocks, dtype=self._integer)
        self._block_bits = np.array([n.bit_length() - 1 for n in blocks], dtype=self._integer)
        self.other = np.array([float(u) for u in other])
        """u per level."""
        self.contrast = np.array([float(p - u) for p, u in zip(own, other, strict=True)])
        """c per level."""
        alone = np.minimum(1, 1 / (2 * self.contrast)) * self.contrast
        shared = self._block_counts < categories
        self._worst = 2 * self.other + np.where(shared, self.contrast, alone - alone**2)
        epsilon = np.array([float(e) for e in self.epsilons])
        variances = [
            float(even_variance(categories, *level))
            for level in zip(blocks, own, other, strict=True)
        ]
        self.facts = LevelFacts(
            epsilons=epsilon, variances=np.array(variances), paper=np.tanh(epsilon / 2) ** 2
        )

    def _block_of(self, values: NDArray[Any], level: Levels) -> tuple[Signed, Signed]:
        """Return each category's number within its block, and the block's; B is a power of two."""
        held = values.astype(self._integer)
        return held >> self._block_bits[level], held & (self._block_counts - 1)[level]

    def differences(self, table: Counts, levels: NDArray[np.intp]) -> tuple[Floats, Floats]:
        """Return the sums of D and of abs(D) over each level's reports, shape (levels, k)."""
        sums, sizes = np.empty((2, levels.size, self.categories))
        for blocks in np.unique(self._block_counts[levels]).tolist():
            alike = np.flatnonzero(self._block_counts[levels] == blocks)
            sums[alike], sizes[alike] = self._differences(table[levels[alike], 1:], blocks)
        return sums, sizes

    @abstractmethod
    def _differences(self, symbols: Counts, blocks: int) -> tuple[Counts, Counts]:
        """Return the same from the symbols of levels with this number of blocks."""

    @abstractmethod
    def supports(self, reports: Reports, level: int, category: Any) -> NDArray[np.bool_]:
        """Return which of a level's reports are +1 for a category, shape (n,).

        Parameters
        ----------
        reports : ndarray of int, shape (n,)
            Of one level.
        level : int
            Its index.
        category : int
            An index, or the key of a string.
        """

    def log_likelihood(self, reports: Reports, level: int, value: Any) -> Floats:
        """Return the logarithm of the largest ratio for a report that is +1 for the category."""
        return np.where(self.supports(reports, level, value), self.log_ratio(level), 0.0)

    def report_range(self) -> tuple[Floats, Floats]:
        """Return the values that reports of -1 and +1 for the category represent."""
        return -1 / self.contrast, 1 / self.contrast

    def estimate(self, table: Counts, question: Question) -> Estimate:
        """Estimate the frequency of every category, with bounds that hold for all at once."""
        counts = table[:, 0]
        shares = level_weights(question.weights, counts, self.facts)
        if not counts.any():
            return self._nothing(question, counts, self.categories)
        used = np.flatnonzero(counts)
        asked = slice(None) if question.asked is None else question.asked
        sums, sizes = (x[:, asked] for x in self.differences(table, used))
        law = self.law(counts, shares, question)
        value = law.coefficient @ sums
        log_p = question.log_p(value.size)
        scale = total_weight(question.weights, counts, self.facts)
        bounds = difference_limits(law, sums, sizes, question, log_p, scale)
        apart = heterogeneity_of_differences(law, sums, sizes)
        worst = float(law.counts @ (law.coefficient**2 * self._worst[used]))
        return self._answer(question, counts, shares, value, bounds, 1 / (4 * worst), apart)

    def law(self, counts: Counts, shares: Floats, question: Question) -> DifferenceLaw:
        """Return the law of the weighted mean of unbiased reports; some count is above zero.

        Parameters are as in :meth:`estimators.mechanisms.count_sketch.CountSketch.law`.
        """
        used = counts > 0
        n, contrast, other = counts[used], self.contrast[used], self.other[used]
        known = self._block_counts[used] == 1  # all categories are in the one block: g = 1
        return DifferenceLaw(
            counts=n.astype(np.float64),
            coefficient=shares[used] / (n * contrast),
            contrast=contrast,
            least=2 * other + np.where(known, contrast, 0.0),
            largest=2 * other + contrast,
            free=not question.one_mean(len(n)),
            fixed=question.target == "sample",
        )


def even_variance(categories: int, blocks: int, own: Fraction, other: Fraction) -> Fraction:
    """Return the variance of a report if all frequencies are 1/k, averaged over categories.

    Parameters
    ----------
    categories : int
        k.
    blocks : int
        The number of blocks; the categories are spread over them as evenly as possible.
    own, other : Fraction
        p and u, as in :class:`BlockDifferences`.
    """
    small, larger = divmod(categories, blocks)
    squares = larger * (small + 1) ** 2 + (blocks - larger) * small**2
    block = Fraction(squares, categories**2)
    contrast = own - other
    return (2 * other + contrast * block) / contrast**2 - Fraction(1, categories**2)
