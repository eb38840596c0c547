"""The gains of bets on one report under their tilted laws, whatever the user's value is."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

from estimators.bounds.fourier.phases import Phases
from estimators.bounds.fourier.remainder import divide_cells, log_remainder
from estimators.bounds.piecewise.law import PiecewiseLaw
from estimators.estimate import Floats, Indices
from estimators.exact.piecewise_shapes import WindowShape
from estimators.exact.thresholds import WORD

NODE_STEP, LAST_NODE, MAX_NODES = 0.15, 600.0, 400
"""Of integrals over frequencies: the first step and the last node, in standard deviations of W."""
COARSE_LAST_NODE = 60.0
"""With it R is up to 5% of a width larger."""
MAX_FREQUENCY = 200.0
"""Of W: what is beyond gains less than 1% of R."""
DIVIDED_END, NODE_PARTS = 4.5, 8
"""Where most of the integral is, and into how many parts its cells are divided."""
MISSES_PER_STEP, MAX_COARSENESS = 8.0, 5.0
"""Steps are longer by the number of reports outside their window, over the first of these."""
LARGEST_TABLE = 2**16
"""Phases that are computed at a time, which a cache holds."""


# Theorem 4 (2) of docs/proofs/bets.md
def log_fourier_remainders(law: PiecewiseLaw, tilts: Floats, *, coarsely: bool = False) -> Floats:
    """Return ln R for all data, shape (k,).

    Parameters
    ----------
    law : PiecewiseLaw
        In rows.
    tilts : ndarray of float64, shape (k,)
    coarsely : bool
        With few nodes; R is larger then.
    """
    coarseness, last_node = _coarseness_of(law), LAST_NODE
    if coarsely:
        coarseness, last_node = np.full_like(coarseness, MAX_COARSENESS), COARSE_LAST_NODE
    gains = _KnotGains(law, tilts)
    sd = np.sqrt(np.vecdot(gains.variance, law.counts))
    breadth = np.floor(4 * np.log2(sd / np.sqrt(gains.variance.max(axis=-1))) + 1e-9)
    log_remainders = np.empty(tilts.shape)
    reach = np.minimum(2.0 ** np.ceil(np.log2(MAX_FREQUENCY * sd)), last_node)
    grids = np.stack([breadth, coarseness, reach], axis=-1)
    for grid in {*map(tuple, grids.tolist())}:
        phases = _phases(*grid)
        rows = np.flatnonzero((grids == grid).all(axis=1))
        number = max(1, LARGEST_TABLE // (phases.multiples.size * gains.knots.values.size))
        for begin in range(0, rows.size, number):
            part = rows[begin : begin + number]
            log_remainders[part] = gains.log_remainders(part, phases, sd[part])
    return log_remainders


def _coarseness_of(law: PiecewiseLaw) -> Floats:
    """Return the coarseness that hardly raises a remainder, by the reports outside of windows."""
    misses = law.counts @ _knots_of(law.shapes).missed
    return np.clip(misses // MISSES_PER_STEP, 1.0, MAX_COARSENESS)


@functools.lru_cache(maxsize=256)
def _phases(log_breadth: float, coarseness: float, last: float) -> Phases:
    """Return the nodes of W, in its standard deviations.

    `log_breadth`: 4 log2 of its standard deviation, in those of one report; `coarseness`: how much
    longer steps are than for few reports; `last`: the last node.
    """
    breadth = 2 ** (log_breadth / 4)
    growth, widest = 0.04 * coarseness, min(0.3 * coarseness, 0.6) * breadth
    multiples = [0]
    while len(multiples) < MAX_NODES and (x := multiples[-1] * NODE_STEP) < last:
        step = min(NODE_STEP * math.exp(min(x * x / 6, 99.0)), growth * x, widest)
        multiples.append(multiples[-1] + max(1, round(step / NODE_STEP)))
    return Phases(NODE_STEP, np.array(multiples))


class _Knots(NamedTuple):
    """The symbols of all levels in a row, and the knots of all levels in a row.

    Attributes
    ----------
    values, level : ndarray, shape (symbols,)
        y_j and their level.
    knots, level_of_knot : ndarray, shape (knots,)
        x_s and their level.
    first : ndarray of intp, shape (levels,)
        The first knot of each level.
    levels : list of triples of a slice, a slice and an ndarray of float64
        The symbols of each level, its knots, and the probabilities of its symbols given each knot.
    missed : ndarray of float64, shape (levels,)
        The probability of a symbol outside the window.
    """

    values: Floats
    level: Indices
    knots: Floats
    level_of_knot: Indices
    first: Indices
    levels: list[tuple[slice, slice, Floats]]
    missed: Floats


@functools.lru_cache(maxsize=64)
def _knots_of(shapes: tuple[WindowShape, ...]) -> _Knots:
    symbols = [shape.symbols for shape in shapes]
    knots = [shape.windows for shape in shapes]
    levels, first_symbol, first_knot = [], 0, 0
    for shape in shapes:
        level_symbols = slice(first_symbol, first_symbol := first_symbol + shape.symbols)
        level_knots = slice(first_knot, first_knot := first_knot + shape.windows)
        levels.append((level_symbols, level_knots, shape.chances))
    return _Knots(
        np.concatenate([shape.values for shape in shapes]),
        np.repeat(np.arange(len(shapes)), symbols),
        np.concatenate([shape.knots for shape in shapes]),
        np.repeat(np.arange(len(shapes)), knots),
        np.cumsum(knots, dtype=np.intp) - np.array(knots),
        levels,
        np.array([shape.threshold / WORD for shape in shapes]),
    )


class _KnotGains:
    """The tilted laws of the gain of one report of each level, given each knot, in rows of laws."""

    def __init__(self, law: PiecewiseLaw, tilts: Floats) -> None:
        self.counts = law.counts
        self.knots = table = _knots_of(law.shapes)
        stakes = tilts[:, None] * law.coefficient
        grown = stakes[:, table.level] * table.values
        self.growth, self.gain = 1 + grown, np.log1p(grown)
        self.fair = 1 + stakes[:, table.level_of_knot] * table.knots
        moments = self._sums(self.growth[..., None] * np.stack([self.gain, self.gain**2], axis=-1))
        mean, square = np.moveaxis(moments, -1, 0) / self.fair
        self.variance = np.maximum.reduceat(square - mean**2, table.first, axis=-1)

    def _sums(self, terms: Floats) -> Floats:
        """Return the means given each knot of terms of shape (laws, symbols, k)."""
        sums = np.empty((len(terms), self.knots.knots.size, terms.shape[-1]))
        for symbols, knots, chances in self.knots.levels:
            np.matmul(chances, terms[:, symbols], out=sums[:, knots])
        return sums

    def log_remainders(self, rows: Indices, phases: Phases, unit: Floats) -> Floats:
        """Return ln R of these rows, with nodes that are divided by the `unit` of each."""
        terms = phases.factors_of(self.gain[rows] / unit[:, None], self.growth[rows])
        sums = self._sums(terms.view(np.float64))
        np.square(sums, out=sums)
        square = (sums[..., ::2] + sums[..., 1::2]) / (self.fair[rows] ** 2)[..., None]
        modulus = np.sqrt(np.maximum.reduceat(square, self.knots.first, axis=1))
        nodes, variance = phases.nodes / unit[:, None], self.variance[rows]
        count = int(np.searchsorted(phases.nodes[:-1], DIVIDED_END))
        nodes, modulus = divide_cells(nodes, modulus, variance, count, NODE_PARTS)
        with np.errstate(divide="ignore"):
            log_modulus = np.minimum(np.log(modulus), 0.0)
        return log_remainder(1.0, nodes, log_modulus, self.counts[rows], variance)
