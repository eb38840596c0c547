"""The gains of bets on one report under their tilted laws, whatever the user's value is."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.bounds.fourier.phases import Phases
from estimators.bounds.fourier.remainder import frequency_nodes, log_remainder
from estimators.bounds.piecewise.law import PiecewiseLaw
from estimators.estimate import Floats
from estimators.exact.piecewise_shapes import WindowShape

MAX_RELATIVE_FREQUENCY = 200.0  # of tau: what is beyond gains less than 1% of R
COARSE_NODES = np.array([*range(13), 18, 27, 40])
"""In halves of a standard deviation of W; the bound is up to 5% of a width above that of all."""


def log_fourier_remainder(law: PiecewiseLaw, tilt: float) -> float:
    """Return ln R for all data at tilt t: Theorem 4 (2) of docs/proofs/bets.md."""
    gains = _KnotGains(law, np.array([tilt]))
    frequencies = frequency_nodes(law.counts, gains.variance[0])
    frequencies = frequencies[: max(64, int(np.searchsorted(frequencies, MAX_RELATIVE_FREQUENCY)))]
    return float(gains.log_remainders(Phases.near_nodes(frequencies), np.ones(1))[0])


def log_coarse_remainders(law: PiecewiseLaw, tilts: Floats) -> Floats:
    """Return larger bounds on ln R that cost less, shape (k,), for laws and tilts in rows."""
    gains = _KnotGains(law, tilts)
    sd = np.sqrt(np.vecdot(gains.variance, law.counts))
    step = int((sd / np.sqrt(gains.variance.max(axis=-1))).min())  # half a report's
    nodes = np.union1d(COARSE_NODES, np.arange(0, COARSE_NODES[-1], max(step, 1)))
    return gains.log_remainders(Phases(0.5, nodes), sd)


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
    """

    values: Floats
    level: NDArray[np.intp]
    knots: Floats
    level_of_knot: NDArray[np.intp]
    first: NDArray[np.intp]
    levels: list[tuple[slice, slice, Floats]]


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

    def log_remainders(self, phases: Phases, unit: Floats) -> Floats:
        """Return ln R of each law, shape (laws,), with nodes that are divided by its `unit`."""
        terms = phases.factors_of(self.gain / unit[:, None], self.growth)
        sums = self._sums(terms.view(np.float64))
        np.square(sums, out=sums)
        square = (sums[..., ::2] + sums[..., 1::2]) / (self.fair**2)[..., None]
        square = np.maximum.reduceat(square, self.knots.first, axis=1)
        with np.errstate(divide="ignore"):
            log_moduli = np.minimum(np.log(square) / 2, 0.0)
        nodes = phases.nodes / unit[:, None]
        return log_remainder(1.0, nodes, log_moduli, self.counts, self.variance)
