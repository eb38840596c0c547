"""The remainder for a coordinate: Theorem 4 of docs/proofs/ranked-directions.md."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from estimators.bounds.fourier import remainder
from estimators.bounds.ranked_directions import report_law
from estimators.bounds.spheres import LOG_TILT_STEP, RELATIVE_DIGITS
from estimators.estimate import Floats, Indices
from estimators.interruption import checkpoint

NODE_STEP = 0.1  # distance of nodes, in units of 1 / (the sum's standard deviation)
MIN_NODES = 20  # with fewer nodes there are too few reports
PRICE_STEPS = 3  # prices of c^2 that are tried; further ones narrow a width by less than 0.01%
LOG_VARIANCE_STEP = 0.1  # step of ln variance on the grid that windows share
TRIED_CUTOFFS = 32  # candidates for D
BLOCK_COLUMNS = 8  # columns that share the prices of the middle one
CACHED_TABLES = 40  # pairs of a grid and a law whose tables are kept


def log_remainder(
    laws: tuple[report_law.ReportLaw, ...],
    counts: Floats,
    coefficient: Floats,
    columns: Indices,
    unit: float,
    tilt: float,
) -> Floats:
    """Return an upper bound on ln R, where P(N_j >= x) <= exp(K(tilt) - tilt x) R; shape (k,).

    `laws`: the law of a report of each level; `counts`, `coefficient`, shape (levels,): reports of
    each level, and the factor of one report; `columns`, shape (levels, k): the columns of
    :meth:`ReportLaw.growth` in K, for k coordinates with similar q; `unit`: the step of the grid;
    `tilt`: from :meth:`VectorNoise.tilts_at`.
    """
    dimension, size = laws[0].dimension, float(coefficient.max())
    relative = (coefficient / size).round(RELATIVE_DIGITS)
    middle_columns = zip(laws, columns[:, columns.shape[1] // 2].tolist(), strict=True)
    variance = np.array([law.variances(unit)[column] for law, column in middle_columns])
    part = relative**2 * variance
    log_tilt = math.log(tilt * size)
    log_total, log_largest = math.log(float(counts @ part)), math.log(float(part.max()))
    spreads = np.rint(np.array([log_total, log_largest]) / LOG_VARIANCE_STEP)
    grid = _grid(dimension, round(log_tilt / LOG_TILT_STEP), *spreads.tolist())
    if grid.frequencies.size < MIN_NODES:
        return np.zeros(columns.shape[1])
    sums = np.zeros((columns.shape[1], 4, grid.frequencies.size - 1))
    for law, n, s, level_columns in zip(laws, counts, relative.tolist(), columns, strict=True):
        sums += n * _cell_terms(grid, law, s, unit).of_columns(level_columns)
    log_factors = remainder.log_factors_of_cells(grid.weights, sums.swapaxes(0, 1))
    least: Floats = np.minimum(log_factors.min(axis=-1), 0.0)  # ln R <= 0 is always valid
    return least


@dataclasses.dataclass(frozen=True, eq=False)
class _Grid:
    """A tilt and nodes, times the largest coefficient, on coarse steps that windows share.

    `dimension`, `tilt_step`: d, and ln of the tilt, in steps; `variance_step`, `largest_step`: ln
    of the variance of the sum, and ln of the largest variance of a report, in steps.
    """

    dimension: int
    tilt_step: int
    variance_step: float
    largest_step: float

    @functools.cached_property
    def tilt(self) -> float:
        """The tilt, times the largest coefficient."""
        return math.exp(LOG_TILT_STEP * self.tilt_step)

    @functools.cached_property
    def frequencies(self) -> Floats:
        """The nodes, times the largest coefficient, shape (nodes,)."""
        largest, reports = self.largest_step, self.variance_step - self.largest_step
        counts, variance = np.exp(LOG_VARIANCE_STEP * np.array([[reports], [largest]]))
        nodes = remainder.frequency_nodes(counts, variance, NODE_STEP)
        max_exponent = report_law.MAX_REPORT_TILT * math.sqrt(self.dimension)
        return nodes[np.hypot(nodes, self.tilt) < max_exponent]

    @functools.cached_property
    def cutoffs(self) -> remainder.Cutoffs:
        """The cells between nodes."""
        return remainder.Cutoffs(self.frequencies, TRIED_CUTOFFS)

    @functools.cached_property
    def weights(self) -> Floats:
        """The weight of each cell in R for each candidate for D."""
        return self.cutoffs.weights(self.tilt)


_grid = functools.lru_cache(maxsize=64)(_Grid)


class _CellTerms:
    """A report's terms in each cell between nodes, computed for blocks of columns when needed."""

    def __init__(
        self, grid: _Grid, law: report_law.ReportLaw, relative: float, unit: float
    ) -> None:
        self._arguments = grid, law, relative, unit
        blocks = math.ceil((report_law.SQUARE_CELLS + 1) / BLOCK_COLUMNS)
        self._terms = np.empty((blocks, BLOCK_COLUMNS, 4, grid.frequencies.size - 1))
        self._is_computed = np.zeros(blocks, dtype=bool)

    def of_columns(self, columns: Indices) -> Floats:
        """Return the terms for some columns, shape (columns, 4, nodes - 1)."""
        block = columns // BLOCK_COLUMNS
        for number in set(block[~self._is_computed[block]].tolist()):
            self._compute(number)
        terms: Floats = self._terms[block, columns % BLOCK_COLUMNS]
        return terms

    def _compute(self, number: int) -> None:
        grid, law, relative, _ = self._arguments
        paired, growth, second_moment = _paired_modulus(*self._arguments)
        columns = slice(number * BLOCK_COLUMNS, (number + 1) * BLOCK_COLUMNS)
        bound = concave_majorant_at(law.squares[:-1], paired, law.squares[columns])
        modulus = np.exp(bound - growth[columns, None])
        terms = grid.cutoffs.cell_terms(modulus, np.array(second_moment * relative**2))
        self._terms[number, : len(modulus)] = terms.swapaxes(0, 1)
        self._is_computed[number] = True


_cell_terms = functools.lru_cache(maxsize=CACHED_TABLES)(_CellTerms)


@functools.lru_cache(maxsize=CACHED_TABLES // 2)
def _paired_modulus(
    grid: _Grid, law: report_law.ReportLaw, relative: float, unit: float
) -> tuple[Floats, Floats, float]:
    """Return H(h) at each node h for each two neighbouring c, K of each column, and V: theorem 4.

    They are those of one report.
    """
    checkpoint()
    d, tilt, frequencies = law.dimension, grid.tilt * relative, grid.frequencies * relative
    series = law.series(math.hypot(tilt, float(frequencies[-1])))
    c, linear = np.sqrt(law.squares), law.mean * math.sqrt(d)
    moments = np.concatenate([[np.ones_like(c), linear * c], series.moments])
    scaled = np.asarray((tilt + 1j * frequencies) / math.sqrt(d), dtype=np.complex128)
    z = report_law.powers_of(scaled, len(moments))
    parts = np.concatenate([z.real, z.imag])
    # F(t + i h, c) is even + odd, F(t + i h, -c) even - odd
    even, odd = ((parts[:, i::2] @ moments[i::2]).reshape(2, frequencies.size, -1) for i in (0, 1))
    exponent = np.abs(tilt + 1j * frequencies)[:, None]
    rounding_factor = exponent**2 * unit**2 * math.exp(tilt * unit) / 8
    highest = np.full((frequencies.size, c.size), -np.inf)
    for sign, f in ((1, even + odd), (-1, even - odd)):
        modulus = np.sqrt(f[0] ** 2 + f[1] ** 2)
        modulus += rounding_factor * (even[0, 0] + sign * odd[0, 0]) - (
            1 + sign * tilt * law.mean * c
        )
        np.maximum(highest, modulus, out=highest)
    q = np.arange(2, len(moments))
    second = (q * (q - 1) * z[0].real[:-2]) @ series.moments / d
    growth = law.growth(np.array([tilt]), np.arange(c.size))[0] + (tilt * unit) ** 2 / 8
    return np.maximum(highest[:, :-1], highest[:, 1:]), growth, float(second.max()) * 1.01


def concave_majorant_at(x: Floats, y: Floats, abscissas: Floats) -> Floats:
    """Return upper bounds on the least concave increasing function above points, shape (k, rows).

    For any price b >= 0 a bound is b times the abscissa plus the largest y - b x. The best price is
    the slope of that function at the abscissa. `x`, shape (points,): ascending, from 0 on; `y`,
    shape (rows, points): a function for each row; `abscissas`, shape (k,): at least 0; all use the
    price that is best for the middle abscissa.
    """
    bound: Floats = np.tile(y.max(axis=1), (abscissas.size, 1))
    rows, last, middle = np.arange(len(y)), x.size - 1, float(abscissas[abscissas.size // 2])
    if x[last] <= middle:
        return bound
    left, right = np.zeros(len(y), dtype=np.intp), np.full(len(y), last)
    for _ in range(PRICE_STEPS):
        price = np.maximum((y[rows, right] - y[rows, left]) / (x[right] - x[left]), 0.0)
        residual = y - price[:, None] * x
        highest = residual.argmax(axis=1)
        bound = np.minimum(bound, residual[rows, highest] + abscissas[:, None] * price)
        is_left = x[highest] <= middle
        left, right = np.where(is_left, highest, left), np.where(is_left, right, highest)
    return bound
