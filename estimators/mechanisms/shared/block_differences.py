"""The base of mechanisms whose reports name a block of categories and a sign within it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from estimators.bounds.block_differences.law import DifferenceLaw
from estimators.bounds.block_differences.limits import difference_limits
from estimators.bounds.heterogeneity import heterogeneity_of_differences
from estimators.bounds.signs.law import blocks, laws_in_rows
from estimators.estimate import Array, Counts, Estimate, Floats, Indices
from estimators.mechanisms.mechanism import Epsilons, Levels, Weighed
from estimators.mechanisms.shared.outputs import OutputSets, ReportedSymbols, SupportReports
from estimators.question import Question
from estimators.weights import LevelFacts

Signed = NDArray[np.signedinteger[Any]]


class Differences(SupportReports):
    """A frequency mechanism whose reports count as +1, -1 or 0 for each value.

    `signed`: whether the mean of these numbers may be negative, as collisions can make it;
    `p_else`, shape (levels,): u, the probability that a user whose value is in another block
    reports +1; `contrast`, shape (levels,): c = p - u, where p is the probability of +1 if the user
    has the value.
    """

    signed: ClassVar[bool] = False
    p_else: Floats
    contrast: Floats

    def _set_chances(self, p_holder: Iterable[Fraction], p_else: Epsilons) -> None:
        """Set `p_else` and `contrast` from the exact p and u of each level."""
        self.p_else = np.array([float(u) for u in p_else])
        self.contrast = np.array([float(p - u) for p, u in zip(p_holder, p_else, strict=True)])

    @property
    @abstractmethod
    def _least_chance(self) -> Floats:
        """The least probability, per level, that a report is not 0 for a value."""

    def report_range(self) -> tuple[Floats, Floats]:
        """Return the frequencies that reports of -1 and +1 for a value represent, per level."""
        return -1 / self.contrast, 1 / self.contrast

    def law(self, counts: Counts, shares: Floats, question: Question) -> DifferenceLaw:
        """Return the law of the weighted mean of unbiased reports; `counts` are not all zero.

        `counts`, shape (levels,): reports of each level; `shares`, shape (levels,): their weights,
        which sum to 1; `question`: says for which users and times the law is needed.
        """
        used = counts > 0
        n, contrast = counts[used], self.contrast[used]
        return DifferenceLaw(
            counts=n.astype(np.float64),
            coefficient=shares[used] / (n * contrast),
            contrast=contrast,
            least_share=self._least_chance[used],
            largest_share=2 * self.p_else[used] + contrast,
            free=not question.one_mean(len(n)),
            signed=self.signed,
            fixed=question.target == "sample" and not self.signed,
        )


class BlockDifferences(OutputSets, ReportedSymbols, Differences):
    """A frequency mechanism whose reports are +1, -1 or 0 for each category.

    At a level, category x belongs to block x mod B, and a report names one block. The report counts
    as D = +1 or -1 for the categories of this block, and as D = 0 for all others. For a category
    with the share f in a block with the share g: a user of the category reports +1 with probability
    p and -1 with u; a user of another category of the block reports each with (p + u) / 2; all
    others report each with u. Hence E D = c f with c = p - u, and P(D != 0) = 2u + g c.

    `epsilons`: the privacy levels, ascending; `categories`: k, at least 2; `blocks`: B per level;
    `symbols`: the number of symbols, per level; p and u are exact fractions from the integer
    thresholds. The variance of a report is (2u + g c - (c f)^2) / c^2. In the worst case all users
    hold another category of the block; in a block of one category, at least half of them hold it.
    ``optimal`` weights use the variance at f = 1/k, averaged over the categories; ``paper`` is
    HLDP's Algorithm 5, tanh^2(epsilon/2).
    """

    def __init__(
        self,
        epsilons: Epsilons,
        categories: int,
        blocks: Sequence[int],
        symbols: Sequence[int],
        p_holder: Epsilons,
        p_else: Epsilons,
    ) -> None:
        super().__init__(epsilons)
        self.categories = categories
        self.blocks = list(blocks)
        """B, the number of blocks, per level."""
        self.symbols = list(symbols)
        """The number of symbols, per level."""
        self._count_symbols(symbols)
        self._integer = np.dtype(np.int32 if max(symbols) < 2**30 else np.int64)
        self._block_counts = np.array(blocks, dtype=self._integer)
        self._block_bits = np.array([n.bit_length() - 1 for n in blocks], dtype=self._integer)
        self._set_chances(p_holder, p_else)
        alone = np.minimum(1, 1 / (2 * self.contrast)) * self.contrast
        shared = self._block_counts < categories
        self._worst = 2 * self.p_else + np.where(shared, self.contrast, alone - alone**2)
        levels = zip(blocks, p_holder, p_else, strict=True)
        variances = [float(even_variance(categories, *level)) for level in levels]
        self.facts = LevelFacts.of(self.epsilons, np.array(variances))

    @property
    def _least_chance(self) -> Floats:
        in_it = self._block_counts == 1  # if there is only one block, g = 1
        return 2 * self.p_else + np.where(in_it, self.contrast, 0.0)

    def _least_overlap(self, level: int) -> Fraction:
        """Return the overlap of orthogonal rows, or zero where sets may lie in different blocks."""
        set_size, complement_size = self._outputs[level]
        all_share = self.blocks[level] == 1
        return all_share * Fraction(set_size, 2 * (set_size + complement_size))

    def _block_of(self, values: Array, level: Levels) -> tuple[Signed, Signed]:
        """Return each category's index within its block, and the block; B is a power of two."""
        categories = values.astype(self._integer)
        return categories >> self._block_bits[level], categories & (self._block_counts - 1)[level]

    def differences(self, tables: Counts, levels: Indices) -> tuple[Floats, Floats]:
        """Return the sums of D and of abs(D) over each level's reports, shape (..., levels, k).

        `tables`, shape (..., levels, columns): a statistic's table, or those of many windows.
        """
        shape = *tables.shape[:-2], levels.size, self.categories
        sums, sizes = np.empty((2, *shape))
        for number in np.unique(self._block_counts[levels]).tolist():
            same_blocks = np.flatnonzero(self._block_counts[levels] == number)
            symbols = tables[..., levels[same_blocks], 1:]
            signs_and_sizes = self._differences(symbols.reshape(-1, symbols.shape[-1]), number)
            for total, numbers in zip((sums, sizes), signs_and_sizes, strict=True):
                total[..., same_blocks, :] = numbers.reshape(*symbols.shape[:-1], -1)
        return sums, sizes

    @abstractmethod
    def _differences(self, symbols: Counts, blocks: int) -> tuple[Counts, Counts]:
        """Return the sums of :meth:`differences`, for rows of a level with `blocks` blocks.

        `symbols`, shape (rows, symbols): the number of reports of each symbol.
        """

    def estimate_alike(self, tables: Sequence[Counts], question: Question) -> list[Estimate]:
        """Return estimates of the requested frequencies, with bounds that hold together."""
        weighed = [self._weigh(table[:, 0], question) for table in tables]
        used = np.flatnonzero(weighed[0].counts)
        if not used.size:
            return [self._empty_estimate(window, self.categories) for window in weighed]
        parts = blocks(len(tables), used.size * self.categories)
        return [
            x
            for part in parts
            for x in self._estimates(np.array(tables[part]), weighed[part], used)
        ]

    def _estimates(
        self, tables: Counts, weighed: Sequence[Weighed], used: Indices
    ) -> list[Estimate]:
        """Return the estimates of windows; `used`: the levels that have reports."""
        question = weighed[0].question
        selected = slice(None) if question.asked is None else question.asked
        sums, sizes = (x[..., selected] for x in self.differences(tables, used))
        law = laws_in_rows([self.law(counts, shares, question) for _, counts, shares, _ in weighed])
        values = (law.coefficient[:, None] @ sums)[:, 0]
        totals = np.array([x.total for x in weighed])
        lower, upper = difference_limits(law, sums, sizes, question, totals)
        p_values = heterogeneity_of_differences(law, sums, sizes)
        effective = 1 / (4 * np.vecdot(law.counts, law.coefficient**2 * self._worst[used]))
        bounds = zip(lower, upper, strict=True)
        numbers = zip(weighed, values, bounds, effective.tolist(), p_values, strict=True)
        return [self._build_estimate(*window) for window in numbers]


def even_variance(categories: int, blocks: int, p_holder: Fraction, p_else: Fraction) -> Fraction:
    """Return the variance of a report if all frequencies are 1/k, averaged over categories.

    `categories`: k, spread over the `blocks` as evenly as possible; `p_holder`, `p_else`: p and u,
    as in :class:`BlockDifferences`.
    """
    small, larger = divmod(categories, blocks)
    squares = larger * (small + 1) ** 2 + (blocks - larger) * small**2
    block = Fraction(squares, categories**2)
    contrast = p_holder - p_else
    return (2 * p_else + contrast * block) / contrast**2 - Fraction(1, categories**2)
