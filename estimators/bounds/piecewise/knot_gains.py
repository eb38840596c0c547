"""The gains of bets on one report under their tilted laws, for any value of the user."""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

import numpy as np

from estimators.bounds.fourier.phases import NUMBERS_PER_BLOCK, Phases
from estimators.bounds.fourier.remainder import CUTOFF_CANDIDATES, Cutoffs, Interpolation
from estimators.bounds.piecewise.law import PiecewiseLaw
from estimators.estimate import Floats, Indices
from estimators.exact.piecewise_shapes import WindowShape, sums_of_neighbours


class Spacing(NamedTuple):
    """Nodes of integrals over frequencies.

    `first_step`, `last`: the first step and the last node, in units of 1 / (the standard deviation
    of W); `parts`: the number of parts of each cell up to DIVIDED_END; `cutoffs`: how many
    candidates for D are tried; `min_share`: the modulus of a level with a smaller share
    of the variance is bounded by 1.
    """

    first_step: float
    last: float
    parts: int
    cutoffs: int
    min_share: float


FINE = Spacing(0.15, 600.0, 8, CUTOFF_CANDIDATES, 0.0)
COARSE = Spacing(0.45, 90.0, 4, 4, 0.05)
"""This spacing takes a fifth of the work of FINE, but R is mostly 5% to 20% larger."""
COARSE_STEPS = 3.0  # steps of COARSE, over those of FINE
MAX_NODES = 400
MAX_FREQUENCY = 200.0
"""The largest frequency, for W: larger ones lower R by less than 1%."""
DIVIDED_END = 4.5
"""The cells up to this node, where most of the integral is, are divided."""
NODE_STRIDE, THINNED_SYMBOLS = 4, 64
"""Moduli of levels with little noise are computed at every fourth node only, if they have at least
so many symbols."""
MAX_THINNED_RATIO, MAX_THINNED_SHARE = 0.3 / NODE_STRIDE, 0.05 / NODE_STRIDE
"""The largest variance of a report of such a level, over that of another level, and its largest
share of the variance of W: a width changes by less than 0.1%."""
MISSES_PER_STEP, MAX_COARSENESS = 8.0, 5.0
"""Steps are longer by a factor of 1/8 of the expected reports outside their window, from 1 to 5."""


# Theorem 4 (2) of docs/proofs/bets.md
def log_fourier_remainders(law: PiecewiseLaw, tilts: Floats, spacing: Spacing) -> Floats:
    """Return an upper bound on ln R that holds for all data, for each of k laws, shape (k,).

    `law`: k laws, in rows; `tilts`, shape (k,): the tilt of each law; `spacing`: :data:`FINE` or,
    for larger bounds, :data:`COARSE`.
    """
    gains = _KnotGains(law, tilts)
    has_many_symbols = np.array([shape.symbols >= THINNED_SYMBOLS for shape in law.shapes])
    coarseness = np.clip(law.expected_misses // MISSES_PER_STEP, 1.0, MAX_COARSENESS)
    sd = np.sqrt(np.vecdot(gains.variance, law.counts))
    breadth = np.floor(4 * np.log2(sd / np.sqrt(gains.variance.max(axis=-1))) + 1e-9)
    log_remainders = np.empty(tilts.shape)
    reach = np.minimum(2.0 ** np.ceil(np.log2(MAX_FREQUENCY * sd)), spacing.last)
    grids = np.stack([breadth, coarseness, reach], axis=-1)
    if spacing is COARSE:  # one grid is fine enough for all
        steps = min(COARSE_STEPS * coarseness.max(), MAX_COARSENESS)
        grids[:] = breadth.min(), steps, reach.max()
    for names in {*map(tuple, grids.tolist())}:
        grid, rows = _grid(spacing, *names), np.flatnonzero((grids == names).all(axis=1))
        unit, counts, variance = sd[rows], law.counts[rows], gains.variance[rows]
        variance = variance / unit[:, None] ** 2
        share, largest = counts * variance, variance.max(axis=-1, keepdims=True)
        # the error of interpolation grows with the variance and the square of the step
        is_thinned = np.maximum(variance / largest / MAX_THINNED_RATIO, share / MAX_THINNED_SHARE)
        is_thinned = has_many_symbols & (is_thinned.max(axis=0) < 1)
        is_used = share.max(axis=0) >= spacing.min_share
        moduli = np.ones((*variance.shape, grid.nodes.size))
        for (phases, interpolation), is_chosen in zip(
            grid.thinned, (is_used & ~is_thinned, is_used & is_thinned), strict=True
        ):
            levels = np.flatnonzero(is_chosen)
            if levels.size:
                modulus = gains.modulus(rows, levels, phases, unit)
                moduli[:, levels] = interpolation.moduli(modulus, variance[:, levels])
        np.minimum(moduli, 1.0, out=moduli)
        log_remainders[rows] = grid.cutoffs.log_remainder(unit, moduli, counts, variance)
    return log_remainders


class _Grid(NamedTuple):
    """Nodes of the frequency of W, in units of 1 / (W's standard deviation).

    `thinned`: the nodes at which moduli are computed, of levels with much and with little noise.
    """

    nodes: Floats
    thinned: list[tuple[Phases, Interpolation]]
    cutoffs: Cutoffs


@functools.lru_cache(maxsize=64)
def _grid(spacing: Spacing, log_breadth: float, coarseness: float, last: float) -> _Grid:
    """Return the nodes of a law.

    `spacing`: how close the nodes are; `log_breadth`: 4 log2 of the ratio of the standard
    deviations of W and of one report; `coarseness`: the factor by which steps are longer than for
    few reports; `last`: the last node.
    """
    breadth, first_step = 2 ** (log_breadth / 4), spacing.first_step
    growth, widest = 0.04 * coarseness, min(0.3 * coarseness, 0.6) * breadth
    multiples = [0]
    while len(multiples) < MAX_NODES and (x := multiples[-1] * first_step) < last:
        step = min(first_step * math.exp(min(x * x / 6, 99.0)), growth * x, widest)
        multiples.append(multiples[-1] + max(1, round(step / first_step)))
    count = int(np.searchsorted(np.array(multiples[:-1]) * first_step, DIVIDED_END))
    divided = np.arange(count * spacing.parts) / spacing.parts
    nodes = np.interp(divided, np.arange(len(multiples)), multiples)
    nodes = np.concatenate([nodes, multiples[count:]]) * first_step
    thinned = []
    for stride in (1, NODE_STRIDE):
        phases = Phases(first_step, np.array(sorted({*multiples[::stride], multiples[-1]})))
        thinned.append((phases, Interpolation(phases.nodes, nodes)))
    return _Grid(nodes, thinned, Cutoffs(nodes, spacing.cutoffs))


class _Knots(NamedTuple):
    """The symbols of all levels in a row, and the knots of all levels in a row.

    `values`, `level`, shape (symbols,): y_j and their level; `knots`, `level_of_knot`, shape
    (knots,): x_s and their level; `first_symbol`, `first`, shape (levels,): the first symbol and
    the first knot of each level; `runs`: of neighbouring levels with the same W: W, their symbols,
    their knots, and the first of these symbols in the windows of these knots; `excess`, shape
    (knots, 1): how much larger the probability of each symbol in the window is than that of each
    symbol outside; `outside`, shape (levels, 1): the latter probability, over that difference.
    """

    values: Floats
    level: Indices
    knots: Floats
    level_of_knot: Indices
    first_symbol: Indices
    first: Indices
    runs: list[tuple[int, slice, slice, Indices]]
    outside: Floats
    excess: Floats

    def means(self, terms: Floats) -> Floats:
        """Return the means of terms over the symbols, divided by `excess`, (laws, knots, k).

        `terms`, shape (laws, symbols, k).
        """
        means = np.empty((len(terms), self.knots.size, terms.shape[-1]))
        for window, symbols, knots, begin in self.runs:
            means[:, knots] = sums_of_neighbours(terms[:, symbols], window).take(begin, axis=1)
        totals = np.add.reduceat(terms, self.first_symbol, axis=1) * self.outside
        means += totals.take(self.level_of_knot, axis=1)
        return means


@functools.lru_cache(maxsize=64)
def _knots_of(shapes: tuple[WindowShape, ...]) -> _Knots:
    symbols, knots = np.array([(shape.symbols, shape.windows) for shape in shapes]).T
    first_symbol, first = np.cumsum(symbols) - symbols, np.cumsum(knots) - knots
    level_of_knot = np.repeat(np.arange(len(shapes)), knots)
    symbol_of_knot = np.arange(knots.sum()) + (first_symbol - first)[level_of_knot]
    runs = []
    for window, group in itertools.groupby(range(len(shapes)), lambda level: shapes[level].window):
        levels = list(group)
        begin, end = levels[0], levels[-1]
        of_symbols = slice(first_symbol[begin], first_symbol[end] + symbols[end])
        of_knots = slice(first[begin], first[end] + knots[end])
        runs.append((window, of_symbols, of_knots, symbol_of_knot[of_knots] - of_symbols.start))
    excess = np.array([float(shape.inside - shape.outside) for shape in shapes])
    return _Knots(
        np.concatenate([shape.values for shape in shapes]),
        np.repeat(np.arange(len(shapes)), symbols),
        np.concatenate([shape.knots for shape in shapes]),
        level_of_knot,
        first_symbol,
        first,
        runs,
        np.array([float(shape.outside) for shape in shapes])[:, None] / excess[:, None],
        excess[level_of_knot, None],
    )


@functools.lru_cache(maxsize=64)
def _part_of(
    shapes: tuple[WindowShape, ...], levels: tuple[int, ...]
) -> tuple[_Knots, Indices, Indices]:
    """Return the table of some levels, and where their symbols and knots are in that of all."""
    table, part = _knots_of(shapes), _knots_of(tuple(shapes[level] for level in levels))
    symbols, knots = (
        np.flatnonzero(np.isin(x, levels)) for x in (table.level, table.level_of_knot)
    )
    return part, symbols, knots


class _KnotGains:
    """Tilted laws of a report's gain: one per row of `law`, level and knot (a user's value)."""

    def __init__(self, law: PiecewiseLaw, tilts: Floats) -> None:
        self.shapes, table = law.shapes, _knots_of(law.shapes)
        self.knots = table
        stakes = tilts[:, None] * law.coefficient
        grown = stakes[:, table.level] * table.values
        self.growth, self.gain = 1 + grown, np.log1p(grown)
        fair = 1 + stakes[:, table.level_of_knot] * table.knots
        moments = table.means(self.growth[..., None] * np.stack([self.gain, self.gain**2], axis=-1))
        mean, square = np.moveaxis(moments * table.excess, -1, 0) / fair
        self.variance = np.maximum.reduceat(square - mean**2, table.first, axis=-1)
        self.scale = (table.excess / fair[..., None]) ** 2

    def modulus(self, rows: Indices, levels: Indices, phases: Phases, unit: Floats) -> Floats:
        """Return the largest modulus over the knots of each level, shape (laws, levels, nodes).

        The moduli are those of the tilted laws in `rows` and of some `levels`, at the nodes of
        `phases` divided by each law's `unit`.
        """
        table, symbols, knots = _part_of(self.shapes, tuple(levels.tolist()))
        largest = np.empty((rows.size, levels.size, phases.multiples.size))
        number = max(1, NUMBERS_PER_BLOCK // (phases.multiples.size * symbols.size))
        for begin in range(0, rows.size, number):
            part = slice(begin, begin + number)
            laws = rows[part, None]
            gain, scale = self.gain[laws, symbols] / unit[part, None], self.scale[laws, knots]
            for nodes, terms in phases.factors_in_blocks(gain, self.growth[laws, symbols]):
                means = table.means(terms.view(np.float64))
                np.square(means, out=means)
                square = (means[..., ::2] + means[..., 1::2]) * scale
                largest[part, :, nodes] = np.maximum.reduceat(square, table.first, axis=1)
        return np.sqrt(largest)
