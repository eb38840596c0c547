"""The base of mechanisms that report one of several random directions, ranked by the value."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from estimators.bounds.heterogeneity import heterogeneity_of_vectors
from estimators.bounds.spheres import VectorLaw, deviations_of_windows
from estimators.errors import ReportError
from estimators.estimate import Array, Bools, Counts, Estimate, Floats, Integers
from estimators.exact.randomness import Bits
from estimators.exact.sampling import (
    bernoulli,
    normal_numbers,
    round_up,
    uniform_below,
    unit_vectors,
)
from estimators.mechanisms.mechanism import Epsilons, Levels, Reports, rows_by_level
from estimators.mechanisms.shared.outputs import OutputSets
from estimators.question import Question
from estimators.shuffling.set_laws import SetLaw

NUMBERS_AT_A_TIME = 2**17  # numbers drawn at a time: a megabyte an array, which a cache holds
LARGEST_GRID = 2**24  # squares of 2^14 such coordinates add up in 64 bits
ARITHMETIC_SLACK = 1e-8
"""By how much bounds are widened, in units of one report: far more than rounding can change u."""


class RankedDirections(OutputSets):
    """A report is one of k random directions, preferably one of the W nearest to the value.

    The base of `caps` and of `hemisphere`, which has k = 2 and W = 1. `epsilons`: the privacy
    levels, ascending; `dimension`: d, at least 1; `grid`: g, at most 2^24; `sets`: k and W of each
    level; k is even and W at most k / 2. `misses`: T, per level: the report is none of the best W
    if a word is below T; `chances`: the probabilities of each of the best W candidates, and of each
    other candidate, per level.
    """

    kinds = frozenset({"vector_mean"})
    scale: Floats
    """B per level: the factor that makes a report unbiased for a vector in the unit ball."""

    def __init__(self, epsilons: Epsilons, dimension: int, grid: int, sets: Sequence[Any]) -> None:
        super().__init__(epsilons)
        if not 1 <= grid <= LARGEST_GRID:
            raise ValueError(f"grid = {grid}: expected 1 to {LARGEST_GRID}")
        self.dimension, self.grid, self.sets = dimension, grid, tuple(sets)
        self.shape = (dimension,)
        self._set_misses(epsilons, [w for _, w in self.sets], [k - w for k, w in self.sets])
        # |U - g u| < sqrt(d); at d = 1, u is a sign and nothing is rounded
        slack = math.sqrt(dimension) if dimension > 1 else 0.0
        self._smallest_square = math.floor(max(0.0, grid - slack) ** 2)
        self._largest_square = math.ceil((grid + slack) ** 2)

    def randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        """Return one integer vector for each row of `values`, shape (n, d), in the unit ball."""
        reports = np.empty(values.shape, dtype=self.dtype)
        for k, best_count in dict.fromkeys(self.sets):
            has_set = np.array([level_set == (k, best_count) for level_set in self.sets])[level]
            rows = np.flatnonzero(has_set)
            step = max(1, NUMBERS_AT_A_TIME // (k // 2 * self.dimension))
            for start in range(0, rows.size, step):
                part = rows[start : start + step]
                drawn, turned = self._choose(values[part], level[part], k, best_count, bits)
                scaled = drawn * self.grid
                floor = np.floor(scaled)
                up = round_up(bits, (scaled - floor).ravel()).reshape(scaled.shape)
                rounded = floor.astype(self.dtype) + up
                reports[part] = np.where(turned[:, None], -rounded, rounded)
        return reports

    def _choose(
        self, values: Floats, level: Levels, candidates: int, best_count: int, bits: Bits
    ) -> tuple[Floats, Bools]:
        """Return for each value the chosen direction, and whether the report is its opposite."""
        n, pairs, d = len(values), candidates // 2, self.dimension
        # the candidates of a single value may take several blocks; only their words are kept
        block, blocks, parts = max(n * pairs if n > 1 else 1, NUMBERS_AT_A_TIME // d), [], []
        for start in range(0, n * pairs, block):
            size = min(block, n * pairs - start)
            words = bits.integers(-(-size * d // 2))
            vectors = normal_numbers(words)[: size * d].reshape(size, d)
            norm = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
            of_value = vectors.reshape(-1, pairs if n > 1 else size, d)
            products = np.matmul(of_value, values[:, :, None]).ravel()
            blocks.append(words)
            parts.append(np.divide(products, norm, out=products, where=norm > 0))
        scores = np.concatenate(parts).reshape(n, pairs)
        length = np.minimum(np.sqrt(np.einsum("ij,ij->i", values, values)), 1)
        opposite = ~round_up(bits, (1 + length) / 2)
        best = best_columns(np.concatenate([scores, -scores], axis=1), best_count)
        missed = bernoulli(bits, self._thresholds, level)
        column = np.zeros(n, dtype=np.int64)
        if candidates > 2:  # if one is inside and one outside, there is no choice
            bound = np.where(missed, candidates - best_count, best_count).astype(np.uint64)
            column = uniform_below(bits, bound).astype(np.int64)
        candidate = best[np.arange(n), np.minimum(column, best_count - 1)]
        other_candidate = column + (best - np.arange(best_count) <= column[:, None]).sum(axis=1)
        candidate = np.where(missed, other_candidate, candidate)
        direction = np.arange(n) * pairs + candidate % pairs
        if len(blocks) == 1:
            return unit_vectors(vectors[direction]), (candidate >= pairs) ^ opposite
        block_index, offset = np.divmod(direction, block)
        numbers = offset[:, None] * d + np.arange(d)
        chosen = np.empty((n, d))
        for index in np.unique(block_index).tolist():
            of_block = block_index == index
            chosen[of_block] = normal_numbers(blocks[index], numbers[of_block])
        return unit_vectors(chosen), (candidate >= pairs) ^ opposite

    def check_values(self, levels: bytes, values: bytes) -> None:
        """Raise ReportError for a vector farther from the unit sphere than rounding can move it."""
        reports = np.frombuffer(values, dtype=self.dtype).reshape(-1, self.dimension)
        rows = max(1, NUMBERS_AT_A_TIME // self.dimension)
        for start in range(0, len(reports), rows):
            wide_reports = reports[start : start + rows].astype(np.int64)
            square = np.einsum("ij,ij->i", wide_reports, wide_reports)
            strange = (square < self._smallest_square) | (square > self._largest_square)
            strange |= (wide_reports > self.grid).any(axis=1) | (wide_reports < -self.grid).any(
                axis=1
            )
            if strange.any():
                index = int(strange.argmax())
                raise ReportError(
                    "bad_value",
                    f"a vector of squared length {square[index]}: expected {self._smallest_square} "
                    f"to {self._largest_square}, and coordinates from -{self.grid} to {self.grid}",
                )

    def accumulate(self, table: Counts, level: Levels, reports: Reports) -> None:
        """Add reports to a table with columns (reports, sum of coordinate 0, 1, ...)."""
        for index, rows in rows_by_level(level, len(self.epsilons)):
            of_level = reports[rows]
            table[index, 0] += len(of_level)
            self._add(table[index, 1:], of_level)

    def _add(self, sums: Counts, reports: Reports) -> None:
        """Add the reports of one level to its sums."""
        sums += reports.sum(axis=0, dtype=np.int64)

    def estimate_alike(self, tables: Sequence[Counts], question: Question) -> list[Estimate]:
        """Return estimates of the mean vector; `radius` bounds the error in the l2 norm.

        The bounds hold for all coordinates at once with probability at least 1 - beta, unless
        pointwise bounds were requested. The radius holds with the same probability.
        """
        weighed = [self._weigh(table[:, 0], question) for table in tables]
        used = int(np.count_nonzero(tables[0][:, 0]))
        if not used:
            ones = np.ones(self.numbers)
            nothing = ones * np.nan, (-ones, ones), 0.0
            return [self._build_estimate(x, *nothing, radius=np.nan) for x in weighed]
        one_law = question.one_mean(used)
        of_windows = zip(tables, weighed, strict=True)
        parts = [self.mean_and_law(table, x.shares, one_law=one_law) for table, x in of_windows]
        totals = [of_window.total for of_window in weighed]
        deviations = deviations_of_windows([law for _, law, _ in parts], question, totals)
        p_values, estimates = self._heterogeneity(np.array(tables)), []
        windows = zip(weighed, p_values, parts, deviations, strict=True)
        for of_window, p_value, (mean, law, slack), deviation in windows:
            side, radius = (x + slack for x in deviation)
            side = np.broadcast_to(side, self.dimension)[: self.numbers]
            farthest = float(np.linalg.norm(mean)) + 1  # the true mean is in the unit ball
            bounds = np.clip(mean - side, -1, 1), np.clip(mean + side, -1, 1)
            numbers = mean, bounds, 1 / float(law.variance), p_value, min(float(radius), farthest)
            estimates.append(self._build_estimate(of_window, *numbers))
        return estimates

    def mean_and_law(
        self, table: Counts, shares: Floats, *, one_law: bool = False
    ) -> tuple[Floats, VectorLaw, float]:
        """Return the estimated mean vector, the law of its error, and a bound on its rounding.

        `table`, shape (levels, columns): it has reports; `shares`, shape (levels,): the weights of
        the levels, which sum to 1; `one_law`: whether the values of all levels have the same mean.
        """
        used = table[:, 0] > 0
        n = table[used, 0].astype(np.float64)
        coefficient = shares[used] / n * self.scale[used]
        mean: Floats = (coefficient / self.grid) @ table[used, 1 : 1 + self.dimension]
        law, slack = self._law(table, used, coefficient, mean, one_law), float(n @ coefficient)
        return mean[: self.numbers], law, ARITHMETIC_SLACK * slack

    @property
    def numbers(self) -> int:
        """The number of coordinates of an estimate, which are the first coordinates of a report."""
        return self.dimension

    @abstractmethod
    def _law(
        self, table: Counts, used: Bools, coefficient: Floats, mean: Floats, one_law: bool
    ) -> VectorLaw:
        """Return the law of the mean's error; `used`: levels with reports; `coefficient`: s_l."""

    def _heterogeneity(self, tables: Counts) -> list[float | None]:
        used = tables[0, :, 0] > 0
        n, scale = tables[:, used, 0].astype(np.float64), self.scale[used]
        means = tables[:, used, 1 : 1 + self.dimension] * ((scale / self.grid) / n)[..., None]
        return heterogeneity_of_vectors(n, self._squares(tables, used), means)

    @abstractmethod
    def _squares(self, tables: Counts, used: Bools) -> Floats:
        """Return the mean squares of coordinates of B U / g, (windows or 1, levels, d or 1)."""

    def report_range(self) -> tuple[Floats, Floats]:
        """Return the values that the coordinates -g and g of a report represent, per level."""
        return -self.scale, self.scale

    def report_norm(self) -> Floats:
        """Return the l2 norm of the longest vector that a report of each level can represent."""
        return self.scale * math.sqrt(self._largest_square) / self.grid

    def set_laws(self, level: int) -> tuple[SetLaw, ...]:
        """Return the law of the choice among k candidates, of which at most half are preferred.

        Its guarantee holds for the report, too: the report reveals no more than the candidates and
        the choice do.
        """
        candidates, best_count = self.sets[level]
        return (SetLaw(self.privacy_ratio(level), Fraction(best_count, candidates)),)


def best_columns(scores: Floats, count: int) -> Integers:
    """Return the columns of each row's largest scores, ascending, shape (n, count).

    If scores are equal, the smaller column numbers are taken.

    >>> best_columns(np.array([[1.0, 5.0, 3.0, 5.0], [2.0, 2.0, 2.0, 1.0]]), 2)
    array([[1, 3],
           [0, 1]])
    """
    last = scores.shape[1] - count
    cut = np.partition(scores, last, axis=1)[:, last, None]
    chosen = scores >= cut
    if chosen.sum() > count * len(scores):
        tied = scores == cut
        missing = count - (scores > cut).sum(axis=1)
        chosen &= ~tied | (np.cumsum(tied, axis=1) <= missing[:, None])
    return np.nonzero(chosen)[1].reshape(-1, count)
