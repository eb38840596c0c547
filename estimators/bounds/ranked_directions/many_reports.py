"""Bounds on coordinates if reports are many: Theorem 4 of docs/proofs/ranked-directions.md."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.bounds.fourier.remainder import LEAST_INTEGRAND, LOG_FACTOR_ROUNDING, majorant
from estimators.bounds.ranked_directions.remainder import concave_majorant_at
from estimators.bounds.ranked_directions.report_law import SQUARE_CELLS, ReportLaw, powers_of
from estimators.bounds.signs.law import blocks
from estimators.estimate import Floats, Indices, Integers
from estimators.interruption import checkpoint

WIDE_LOG_STEP, TILTS_TOGETHER = 0.06, 4  # a grid of ln t; tilts with joint tables
TRIED_STEPS = np.arange(-10, 2)  # from the best tilt of Chernoff's bound, if the law were normal
FREQUENCY_KNOTS = np.array([0.0, 1.3, 2.6, 4.5, 9.0, 25.0])
FREQUENCY_NODES = np.concatenate(
    [np.arange(0.0, 4.0, 0.1), np.geomspace(4.0, FREQUENCY_KNOTS[-1], 40)]
)
"""Both in units of the tilt that is best for Chernoff's bound, divided by (-2 ln p)^(1/2)."""
FAR_NODES = np.array([0.5, 0.8, 1.2, 1.6, 2.1, 2.6, 3.1, 3.6, 4.1, 4.5, 4.99])
"""Larger frequencies, in units of sqrt(d) for the largest coefficient; D is the last of them."""
FAR_CELLS = 200
COLUMN_BLOCKS = 0, 10, 40, 90, SQUARE_CELLS + 1  # columns that share prices
MORE_STEPS, LARGE_LOG_RATIO = 4, 0.03
"""How many larger tilts are tried if ln R is larger than that of a normal law by this."""
STEEP_TILT, STEEP_LOG_RATIO = 0.06, 0.1
"""Larger tilts, in units of sqrt(d), are not used if ln R is larger than that of a normal law by
the second number: bounds could be wider than those from exact moduli."""
MAX_RELATIVE_TILT = 0.2  # in units of sqrt(d), so that D is beyond all nodes
MAX_EXPONENT = 700.0  # no double is too small for it; then the remainder is 1
KEPT_TABLES = 192  # each of TILTS_TOGETHER tilts and a law, 36 kB


@dataclasses.dataclass(frozen=True)
class ManyReports:
    """Bounds on coordinates of windows, in units of 1 over the largest coefficient.

    `dimension`, `unit`: as for :class:`RankedNoise`; `laws`, `relative`: the law of each level, and
    its coefficient over the largest; `log_p`: ln p.
    """

    dimension: int
    unit: float
    laws: tuple[ReportLaw, ...]
    relative: tuple[float, ...]
    log_p: float

    def deviations(self, counts: Floats, columns: Indices) -> Floats:
        """Return bounds on |N_j|, each wrong with probability at most 2 p, shape (windows, k).

        They are nan if reports are few. `counts`, shape (windows, levels): the numbers of reports;
        `columns`, shape (windows, levels, k): those of :meth:`ReportLaw.growth`.
        """
        deviations = np.full((len(counts), columns.shape[2]), np.nan)
        for part in blocks(len(counts), columns.shape[2] * 10):  # a longer block is quicker
            steps, log_factors = self._likely_steps(counts[part], columns[part])
            last = math.floor(self._last_step(MAX_RELATIVE_TILT))
            rows = np.flatnonzero((steps <= last).any(axis=1))
            if rows.size:
                windows = np.minimum(steps[rows], last), counts[part][rows], columns[part][rows]
                bounds = self._least_deviations(*windows, log_factors[rows])
                deviations[part.start + rows] = np.where(steps[rows] <= last, bounds, np.nan)
        return deviations

    def _last_step(self, relative_tilt: float) -> float:
        return math.log(relative_tilt * math.sqrt(self.dimension)) / WIDE_LOG_STEP

    def _likely_steps(self, counts: Floats, columns: Indices) -> tuple[Integers, Floats]:
        """Return steps of tilts that are best for normal laws, and then ln R, (windows, k)."""
        terms = np.zeros((4, len(counts), columns.shape[2]))
        levels = zip(counts.T, columns.swapaxes(0, 1), self.laws, self.relative, strict=True)
        for n, level_columns, law, s in levels:
            power = (s / math.sqrt(self.dimension)) ** np.array([[2], [3], [4], [2]])
            moments = power * np.concatenate([law.first_moments, law.first_moments[:1]])
            moments[[0, 3]] += (s * self.unit) ** 2 / 8
            moments[3] -= (s * law.mean) ** 2 * law.squares / 2
            terms += n[:, None] * moments[:, level_columns]
        normal = np.rint(np.log(-self.log_p / terms[0]) / (2 * WIDE_LOG_STEP)).astype(np.int64)
        tilts = np.exp(WIDE_LOG_STEP * (normal + TRIED_STEPS[:, None, None]))
        cumulants = tilts**2 * (terms[0] + tilts * (terms[1] + tilts * terms[2]))
        log_factors = -np.log(2 * np.pi * (2 * tilts**2 * terms[3] + 1)) / 2
        best = ((cumulants + np.minimum(log_factors, 0.0) - self.log_p) / tilts).argmin(axis=0)
        likely = np.take_along_axis(log_factors, best[None], axis=0)[0]
        return normal + TRIED_STEPS[best], likely

    def _least_deviations(
        self, steps: Integers, counts: Floats, columns: Indices, likely: Floats
    ) -> Floats:
        """Return :meth:`deviations` from these steps on, (windows, k).

        `likely`, shape (windows, k): ln R if the tilted law is normal.
        """
        deviations, log_factors = self._deviations_at(steps, counts, columns)
        excess, is_steep = log_factors - likely, steps > self._last_step(STEEP_TILT)
        deviations[(excess > STEEP_LOG_RATIO) & is_steep] = np.nan
        rows = np.flatnonzero(((excess > LARGE_LOG_RATIO) & ~is_steep).any(axis=1))
        for step in range(1, MORE_STEPS + 1):
            if not rows.size:
                break
            next_steps = steps[rows] + step, counts[rows], columns[rows]
            next_deviations, _ = self._deviations_at(*next_steps)
            is_less = (next_deviations < deviations[rows]).any(axis=1)
            deviations[rows] = np.minimum(deviations[rows], next_deviations)
            rows = rows[is_less]
        return deviations

    def _deviations_at(
        self, steps: Integers, counts: Floats, columns: Indices
    ) -> tuple[Floats, Floats]:
        """Return :meth:`deviations` for tilts at these steps, and ln R, both (windows, k)."""
        numbers = np.unique(steps // TILTS_TOGETHER)
        row = TILTS_TOGETHER * np.searchsorted(numbers, steps // TILTS_TOGETHER)
        row += steps % TILTS_TOGETHER
        unit = 1 / math.sqrt(-2 * self.log_p)
        exponents = np.zeros((*steps.shape, FREQUENCY_KNOTS.size + 1))
        for level, (law, s) in enumerate(zip(self.laws, self.relative, strict=True)):
            tables = [_exponents(law, s, self.unit, unit, number) for number in numbers.tolist()]
            of_rows = np.concatenate(tables)[row, columns[:, level]]
            exponents += counts[:, level, None, None] * of_rows
        cumulant = exponents[..., 0].copy()
        exponents -= cumulant[..., None]
        different_steps, index = np.unique(steps, return_inverse=True)
        weights, far_weights = _weights(self.dimension, unit, different_steps)
        index = index.reshape(steps.shape)
        cells = np.exp(np.minimum(exponents[..., :-1] @ _chords(), MAX_EXPONENT))
        integrals = np.vecdot(cells, weights[index])
        integrals += np.exp(exponents[..., -1]) * far_weights[index]
        log_factors = np.log(np.maximum(integrals, LEAST_INTEGRAND)) + LOG_FACTOR_ROUNDING
        tilts = np.exp(WIDE_LOG_STEP * steps)
        return (cumulant + np.minimum(log_factors, 0.0) - self.log_p) / tilts, log_factors


@functools.cache
def _chords() -> Floats:
    """Return the weights of values at knots in chords at the nodes, linear in h^2."""
    return np.array(
        [
            np.interp(FREQUENCY_NODES**2, FREQUENCY_KNOTS**2, knot)
            for knot in np.eye(FREQUENCY_KNOTS.size)
        ]
    )


def _weights(dimension: int, unit: float, steps: Integers) -> tuple[Floats, Floats]:
    """Return the weights in R of the nodes, (steps, nodes), and of all beyond them, (steps,).

    The integrand is below its chords in h^2. `unit`: that of the nodes over the tilt.
    """
    reach = FAR_NODES[-1] * math.sqrt(dimension) * np.exp(-WIDE_LOG_STEP * steps)[:, None]  # D / t
    nodes, near_cells = FREQUENCY_NODES * unit, FREQUENCY_NODES.size - 1
    far_nodes = np.exp(np.linspace(math.log(nodes[-1]), np.log(reach[:, 0]), FAR_CELLS).T)
    edges = np.concatenate([np.tile(nodes[:-1], (steps.size, 1)), far_nodes], axis=1)
    y = edges[:, :-1] / reach
    cells = 2 / reach * majorant(2 * np.pi / reach, 1 - y, np.sin(np.pi * y)) * np.diff(edges)
    end_share = (nodes[1:] + 2 * nodes[:-1]) / (3 * (nodes[1:] + nodes[:-1]))
    node_weights = np.zeros((steps.size, nodes.size))
    node_weights[:, 1:] += cells[:, :near_cells] * end_share
    node_weights[:, :-1] += cells[:, :near_cells] * (1 - end_share)
    return node_weights, cells[:, near_cells:].sum(axis=1)


@functools.lru_cache(maxsize=KEPT_TABLES)
def _exponents(
    law: ReportLaw, relative: float, rounding: float, unit: float, number: int
) -> Floats:
    """Return H of a report at each knot, and above all H beyond, shape (tilts, columns, knots + 1).

    `law`, `relative`: the report's law and coefficient; `rounding`: the step of the grid;
    `unit`: that of the knots over the tilt; `number`: that of TILTS_TOGETHER tilts.
    """
    checkpoint()
    root, signs = math.sqrt(law.dimension), np.array([[1.0], [-1.0]])
    steps = TILTS_TOGETHER * number + np.arange(TILTS_TOGETHER)
    tilt = np.exp(WIDE_LOG_STEP * steps)[:, None, None] * relative  # (tilts, signs, columns)
    far_nodes = FAR_NODES * (root * relative)
    series = law.series(math.hypot(float(tilt[-1, 0, 0]), float(far_nodes[-1])))
    q, linear = np.arange(len(series.moments) + 2.0), signs * (law.mean * np.sqrt(law.squares))

    def summed(powers: NDArray[Any]) -> Any:
        """Return sums from the square on for c and -c, shape (..., 2, columns)."""
        even, odd = (powers[..., 2 + i :: 2] @ series.moments[i::2] for i in (0, 1))
        return np.stack([even + odd, even - odd], axis=-2)

    # the derivatives of F times powers of the tilt; frequencies are in units of the tilt, too
    factors = np.cumprod([np.ones(q.size), q, q - 1, q - 2, q - 3], axis=0)[:, None]
    grown, first, second, third, fourth = summed(factors * powers_of(tilt[:, 0, 0] / root, q.size))
    total, first = 1 + tilt * linear + grown, first + tilt * linear
    rounded = total * ((rounding * tilt) ** 2 * np.exp(tilt * rounding) / 8)
    start = (grown + rounded)[:, None]
    variance = second - first**2 / total
    fall = (variance / 2 - rounded)[:, None]
    rise = ((2 * fourth + (6 * second**2 - 8 * first * third) / total) / 48)[:, None]
    square = np.square(unit * FREQUENCY_KNOTS)[:, None, None]
    knots = start - square * fall + square**2 * rise
    square = np.square(far_nodes[0] / tilt)[:, None]
    at_first = start - square * fall + square**2 * rise
    z = tilt[:, 0] + 1j * far_nodes
    powers = powers_of((z / root).ravel(), q.size).reshape(*z.shape, q.size)
    modulus = np.abs(1 + z[..., None, None] * linear + summed(powers))
    cells = np.maximum(modulus[:, :-1], modulus[:, 1:])
    widths = np.diff(far_nodes)[:, None, None] / tilt[:, None]
    cells += (1.01 / 8) * variance[:, None] * widths**2
    cells += rounded[:, None] * np.square(np.abs(z / tilt[:, 0]))[:, 1:, None, None]
    highest = cells.max(axis=1, keepdims=True) - (1 + tilt * linear)[:, None]
    highest = np.minimum(np.maximum(np.maximum(knots[:, -1:], at_first), highest), start)
    values = np.concatenate([knots, highest], axis=1).max(axis=2)
    values = np.maximum(values[..., :-1], values[..., 1:])
    rows = values.reshape(-1, values.shape[-1])
    parts = [
        concave_majorant_at(law.squares[:-1], rows, law.squares[start:end])
        for start, end in itertools.pairwise(COLUMN_BLOCKS)
    ]
    by_column = np.concatenate(parts).reshape(law.squares.size, *values.shape[:2])
    table: Floats = np.ascontiguousarray(by_column.swapaxes(0, 1))
    return table
