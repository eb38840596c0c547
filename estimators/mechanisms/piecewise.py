"""Windows of symbols for the mean of a value in [-1, 1]: nearly the least possible noise."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from estimators.bounds import Law, PiecewiseLaw
from estimators.bounds.piecewise.bets import SymbolBets
from estimators.bounds.piecewise.limits import symbol_limits
from estimators.bounds.piecewise.noise import PiecewiseNoise
from estimators.estimate import Array, Counts, Floats, Indices, Limits
from estimators.exact.piecewise_shapes import MOST_SYMBOLS, WindowShape, shape_at
from estimators.exact.randomness import Bits
from estimators.exact.sampling import bernoulli, bytes_below, round_up
from estimators.mechanisms.mechanism import Epsilons, Levels, Reports
from estimators.mechanisms.shared.means import ScalarMean
from estimators.mechanisms.shared.outputs import ReportedSymbols
from estimators.question import Question
from estimators.shuffling.set_laws import SetLaw
from estimators.weights import LevelFacts

VALUES_AT_A_TIME = 65_536
"""Values that are randomized together: their temporary arrays stay in the processor's cache."""


class Piecewise(ReportedSymbols, ScalarMean):
    """A report is one of M symbols, most likely one of the W in the window around the value.

    A value x in [-1, 1] is rounded at random to one of two neighbouring knots, without bias. Each
    knot has a window of W of the M symbols. The report is uniform in that window or, with the odds
    M - W to W e^epsilon, uniform outside it. The variance is at most 5% above the least that any
    mechanism can have in the worst case (theorem 2 of docs/proofs/mechanisms.md). Statistic of a
    level: the number of reports and the number for each symbol.

    Source: the shapes are not from a paper. With a continuum of symbols this is the piecewise
    mechanism of Wang et al. (2019), with two symbols the mechanism of Warner (1965), and with W = 1
    randomized response on a grid.

    **Privacy.** Theorem 1 of docs/proofs/privacy.md, given M, W and epsilon, from which a device
    computes T.

    **Unbiased.** Theorem 1 of docs/proofs/mechanisms.md. Each symbol has a number z. Let Z_s be the
    sum of the numbers in the window that begins at s, and p and q the probabilities of a symbol in
    and outside the window. With c = (p - q) Z_(M-W), E z / c is the knot x_s = Z_s / Z_(M-W).

    **Random words.** In this order, for one value x: (1) the coin that rounds, true with the
    probability (x Z_(M-W) - Z_s) / (Z_(s+1) - Z_s) in doubles: one byte of a word, 53 bits of
    another if it ties; true moves the window from s to s + 1. (2) The coin that leaves the window:
    the first byte of T against one byte of a word, the other 56 bits against those of another word
    if it ties. (3) A rank below W, or below M - W outside: one byte of a word, drawn again while it
    is not below the largest multiple of the bound up to 256; the remainder counts. A rank r outside
    stands for the symbol r before the window and r + W after it.

    **Memoization.** There are no bounds for memoized reports here: use `randomized_response`.

    `symbols`: the largest M, 64 to 255. A level below epsilon = 9 uses fewer than 128 symbols. With
    `symbols` = 128, the variance of levels from 9 to 10 is up to 4% larger.

    >>> from estimators.exact.randomness import SeededBits
    >>> mechanism = Piecewise([Fraction(4)])
    >>> mechanism.randomize(np.full(8, 0.5), np.zeros(8, dtype=int), SeededBits(1))
    array([22, 16, 21, 16, 18, 17, 19, 22], dtype=uint8)
    """

    name = "windows"
    is_exact_together = False

    def __init__(self, epsilons: Epsilons, *, symbols: int = MOST_SYMBOLS) -> None:
        super().__init__(epsilons)
        self._use([shape_at(epsilon, symbols) for epsilon in self.epsilons])

    def _use(self, shapes: Sequence[WindowShape]) -> None:
        """Set the windows' shapes, one for each level."""
        self.shapes = tuple(shapes)
        self._count_symbols([shape.symbols for shape in shapes])
        variances = np.array([float(max(shape.exact_squares)) for shape in shapes])
        self.facts = LevelFacts.of(self.epsilons, variances)
        self._thresholds = np.array([shape.threshold for shape in shapes], dtype=np.uint64)
        self._bounds = np.array(
            [(shape.window, shape.symbols - shape.window) for shape in shapes], dtype=np.uint8
        )

    @property
    def public_constants(self) -> dict[str, Any]:
        """The window and the symbols' numbers of each level."""
        return {
            "window": [shape.window for shape in self.shapes],
            "z": [list(shape.z) for shape in self.shapes],
        }

    def randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        """Return one symbol for each value in [-1, 1]."""
        reports = np.empty(len(level), dtype=self.dtype)
        for start in range(0, len(level), VALUES_AT_A_TIME):
            part = slice(start, start + VALUES_AT_A_TIME)
            reports[part] = self._randomize(np.asarray(values)[part], level[part], bits)
        return reports

    def _randomize(self, values: Array, level: Levels, bits: Bits) -> Reports:
        row = level.astype(np.intp)
        start = self._rounding.starts(np.clip(values, -1, 1), row, bits)
        missed = bernoulli(bits, self._thresholds, row)
        rank = bytes_below(bits, self._bounds.reshape(-1)[2 * row + missed])
        window = self._bounds[:, 0][row]
        shift = np.where(missed, window * (rank >= start), start)
        return np.asarray(rank + shift)

    @functools.cached_property
    def _rounding(self) -> _Rounding:
        return _Rounding(self.shapes)

    def level_means(self, table: Counts) -> Floats:
        """Return the unbiased mean of each level, zero without reports."""
        numbers = np.zeros((len(self.shapes), self.columns - 1), dtype=np.int64)
        for row, shape in zip(numbers, self.shapes, strict=True):
            row[: shape.symbols] = shape.z
        scale = np.array([float(shape.scale) for shape in self.shapes])
        totals = np.einsum("ij,ij->i", table[:, 1:], numbers)
        return np.asarray(totals / (np.maximum(table[:, 0], 1) * scale))

    def law(self, counts: Counts, shares: Floats, question: Question | None = None) -> Law:
        """Return the law of the weighted mean of reports; see :meth:`ScalarMean.law`.

        If every level of the metric has two symbols, it is the law of signs.
        """
        used = np.flatnonzero(counts)
        n = counts[used].astype(np.float64)
        free = question is not None and not question.one_mean(len(n))
        if all(shape.symbols == 2 for shape in self.shapes):
            contrast = 1 / self.report_range()[1][used]
            return Law(n, shares[used] / (n * contrast), contrast, free=free)
        return PiecewiseLaw.of([self.shapes[row] for row in used], n, shares[used] / n, free=free)

    def bets(self, law: Law, table: Counts) -> SymbolBets | None:
        """Return bets on the counts of symbols; None if every level has only two symbols."""
        if not isinstance(law, PiecewiseLaw):
            return None
        symbols = max(shape.symbols for shape in law.shapes)
        used = table.reshape(-1, *table.shape[-2:])[0, :, 0] > 0
        return SymbolBets(law, table[..., used, 1 : 1 + symbols])

    def limits_of_windows(
        self, tables: Counts, law: Law, means: Floats, question: Question, totals: Floats
    ) -> Limits | None:
        """Return bounds on the means of windows; for a population, from the counts of symbols.

        None if the bounds must be computed window by window. `tables`, `law`, `means`, `question`,
        `totals`: as in :meth:`.shared.means.ScalarMean.limits_of_windows`.
        """
        bets, centre = self.bets(law, tables), np.clip(means, -1.0, 1.0)
        if bets is None or question.panes != 1 or question.target == "sample":
            return super().limits_of_windows(tables, law, means, question, totals)
        lower, upper = symbol_limits(bets, question, question.log_p(1), totals)
        return np.minimum(lower, centre), np.maximum(upper, centre)

    def noise(self, law: Law, counts: Counts) -> PiecewiseNoise | None:
        """Return the law of the noise given the users' values; None if all levels report signs."""
        if not isinstance(law, PiecewiseLaw):
            return None
        used = [shape for shape, n in zip(self.shapes, counts, strict=True) if n]
        return PiecewiseNoise(law.counts, law.coefficient, tuple(used))

    def log_likelihood(self, reports: Reports, level: int, value: Any) -> Floats:
        """Return the logarithm of each report's probability under a value in [-1, 1].

        It is -inf for a symbol that this level does not have.
        """
        shape = self.shapes[level]
        knot = float(np.interp(value, shape.knots, np.arange(shape.windows)))
        start = np.arange(shape.symbols)[:, None] - np.arange(shape.windows)
        is_inside = (start >= 0) & (start < shape.window)
        down = min(int(knot), shape.windows - 2)
        share = is_inside[:, down] * (down + 1 - knot) + is_inside[:, down + 1] * (knot - down)
        p_inside, p_outside = float(shape.inside), float(shape.outside)
        log_likelihood = np.full(self.columns - 1, -np.inf)
        log_likelihood[: shape.symbols] = np.log(p_outside + (p_inside - p_outside) * share)
        return log_likelihood[reports]

    def report_range(self) -> tuple[Floats, Floats]:
        """Return the values that the first and the last symbol represent."""
        largest = np.array([shape.values[-1] for shape in self.shapes])
        return -largest, largest

    def privacy_ratio(self, level: int) -> Fraction:
        """Return the probability of a symbol in a window over that of a symbol outside.

        It is (2^64 - T) (M - W) / (T W).
        """
        return self.shapes[level].privacy_ratio

    def set_laws(self, level: int) -> tuple[SetLaw, ...]:
        """Return the law of a symbol, for the privacy of crowds.

        Of all windows, the first and the last share the fewest symbols.
        """
        symbols, window = self.shapes[level].symbols, self.shapes[level].window
        overlap = Fraction(max(0, 2 * window - symbols), symbols)
        inside = Fraction(window, symbols)
        return (SetLaw(self.privacy_ratio(level), inside, overlap, is_sign=symbols == 2),)


class _Rounding:
    """Finds the window of each value: a table of cells, each with at most one knot.

    The knots are the integers Z_s, compared with x Z_(M-W) in doubles. Larger numbers never have
    smaller cells, so it suffices to compare a number with the knot in its cell.
    """

    def __init__(self, shapes: Sequence[WindowShape]) -> None:
        sums = [np.array(shape.sums, dtype=np.float64) for shape in shapes]
        self.top = np.array([float(row[-1]) for row in sums])
        self.cells = 64
        while any(np.diff(self._cell(row[:-1], row[-1])).min(initial=1) < 1 for row in sums):
            self.cells *= 2
        starts = np.cumsum([0, *(row.size for row in sums)])
        self.begin = starts[:-1]
        self.knots = np.concatenate(sums)
        self.gaps = np.diff(self.knots, append=1)
        numbers = np.arange(self.cells + 1)
        last = [
            start + np.searchsorted(self._cell(row[:-1], row[-1]), numbers, side="right") - 1
            for start, row in zip(starts, sums, strict=False)
        ]
        self.last = np.concatenate(last)

    def _cell(self, scaled: Floats, top: Any) -> Indices:
        return np.asarray((scaled + top) * (self.cells / (2 * top))).astype(np.intp)

    def starts(self, values: Array, level: Indices, bits: Bits) -> Array:
        """Return the first symbol of the window of each value, rounded at random; uint8."""
        top = self.top[level]
        scaled = values * top
        knot = self.last[self._cell(scaled, top) + level * (self.cells + 1)]
        knot -= scaled < self.knots[knot]
        up = round_up(bits, (scaled - self.knots[knot]) / self.gaps[knot])
        return np.asarray(knot - self.begin[level] + up).astype(np.uint8)
