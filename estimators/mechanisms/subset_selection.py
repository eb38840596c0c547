"""Subset selection for frequencies: a uniform subset with or without the category."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from estimators.bounds.shares.bets import CategorySets
from estimators.bounds.shares.subsets import SubsetKinds
from estimators.estimate import Array, Bools
from estimators.exact.randomness import Bits
from estimators.exact.sampling import bernoulli, uniform_below
from estimators.exact.thresholds import at_exp
from estimators.mechanisms.mechanism import Epsilons, Levels, refuse_first
from estimators.mechanisms.shared.frequencies import PackedBits
from estimators.mechanisms.shared.outputs import OutputSets
from estimators.mechanisms.shared.signs import ReportedSigns


class SubsetSelection(OutputSets, PackedBits):
    """A report is a subset of s categories: the user's is in it with odds s e^epsilon to k - s.

    The other members of the subset are uniform. The subset is sent as k bits, the first category in
    the lowest bit. Statistic of a level: the number of reports and the number that contain each
    category. Source: Ye and Barg (2018), section IV; Wang et al. (2019).

    **Privacy.** Theorem 1 of docs/proofs/privacy.md. Members are drawn by Floyd's algorithm with
    uniform integers by rejection (Bentley and Floyd, 1987), in s steps for all reports together.
    All levels' reports have k bits, and nothing depends on the order in which members were drawn.

    **Size.** p = P(true category in subset), q = p (s-1)/(k-1) + (1-p) s/(k-1). A larger s than the
    default has a lighter tail if few categories hold nearly all users.

    Parameters
    ----------
    categories : int
        k, at least 2.
    size : int, optional
        s at every level, 1 to k - 1. By default the integer nearest to k / (e^epsilon + 1) at each
        level, at least 1, which gives a rare category the least variance.

    Examples
    --------
    >>> from estimators.exact.randomness import SeededBits
    >>> mechanism = SubsetSelection([Fraction(1)], categories=8)
    >>> mechanism.sizes
    [2]
    >>> report = mechanism.randomize(np.array([3]), np.array([0]), SeededBits(1))
    >>> np.unpackbits(report, bitorder="little")
    array([0, 0, 0, 1, 0, 0, 0, 1], dtype=uint8)
    """

    name = "subset_selection"
    memoizable = True

    def __init__(self, epsilons: Epsilons, *, categories: int, size: int | None = None) -> None:
        if size is not None and not 1 <= size < categories:
            raise ValueError(f"size = {size}: expected 1 to {categories - 1}")
        self.sizes = [best_size(e, categories) if size is None else size for e in epsilons]
        """s, the size of subsets, per level."""
        self._set_misses(epsilons, self.sizes, [categories - s for s in self.sizes])
        p = [s * inside for s, (inside, _) in zip(self.sizes, self.chances, strict=True)]
        q = [(s - x) / (categories - 1) for s, x in zip(self.sizes, p, strict=True)]
        super().__init__(epsilons, categories, ReportedSigns(p, q))
        self._sizes = np.array(self.sizes, dtype=np.int64)

    def _bits(self, values: Array, level: Levels, bits: Bits) -> Bools:
        has_own = ~bernoulli(bits, self._thresholds, level)
        wanted = self._sizes[level] - has_own
        subsets = np.zeros((values.size, self.categories), dtype=np.bool_)
        for size in np.unique(wanted).tolist():
            rows = np.flatnonzero(wanted == size)
            other_members = uniform_subsets(bits, rows.size, self.categories - 1, size)
            # drawn indices skip the user's category: those from it on move up by one
            is_later = np.arange(self.categories - 1) >= values[rows, None]
            subsets[rows, :-1] = other_members & ~is_later
            subsets[rows, 1:] |= other_members & is_later
        subsets[np.arange(values.size), values] = has_own
        return subsets

    def _least_overlap(self, level: int) -> Fraction:
        size, categories = self.sizes[level], self.categories
        return Fraction(size * (size - 1), categories * (categories - 1))

    def report_kinds(self, level: int, sets: CategorySets) -> SubsetKinds:
        """Return the law of one report: it supports exactly s categories."""
        p = float(self.signs.p[level])
        return SubsetKinds.of(sets.sizes, self.categories, self.sizes[level], p)

    def check_values(self, levels: bytes, values: bytes) -> None:
        """Raise ReportError for a report whose subset does not have the size of its level."""
        super().check_values(levels, values)
        reports = np.frombuffer(values, dtype=np.uint8).reshape(-1, self.width)
        members = np.bitwise_count(reports).sum(axis=1, dtype=np.int64)
        expected = self._sizes[np.frombuffer(levels, dtype=np.uint8)]
        refuse_first(
            members != expected,
            lambda i: f"a subset of {members[i]}: expected {expected[i]} at its level",
        )


def best_size(epsilon: Fraction, categories: int) -> int:
    """Return s, the integer nearest to k / (e^epsilon + 1), at least 1, for k categories.

    The arithmetic is exact, because every device and the aggregator must agree on the size.

    >>> [best_size(Fraction(e), 1000) for e in (1, 4, 16)]
    [269, 18, 1]
    """
    nearest = at_exp(epsilon, lambda e: int(Fraction(categories) / (e + 1) + Fraction(1, 2)))
    return max(1, nearest)


def uniform_subsets(bits: Bits, n: int, total: int, size: int) -> Bools:
    """Return `n` uniform subsets of `size` out of `total` members, as rows of booleans.

    Floyd's algorithm: step i draws a uniform integer up to total - size + i, and adds this upper
    limit instead if the integer is already in the subset. `bits`: the source of randomness.

    >>> from estimators.exact.randomness import SeededBits
    >>> uniform_subsets(SeededBits(1), 2, 4, 2).sum(axis=1)
    array([2, 2])
    """
    smaller = min(size, total - size)
    subset = np.zeros((n, total), dtype=np.bool_)
    rows = np.arange(n)
    for last in range(total - smaller, total):
        drawn = uniform_below(bits, np.full(n, last + 1, dtype=np.uint64)).astype(np.int64)
        subset[rows, np.where(subset[rows, drawn], last, drawn)] = True
    return subset if smaller == size else ~subset
