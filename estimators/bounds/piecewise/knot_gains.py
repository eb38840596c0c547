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
from estimators.exact.piecewise_shapes import T, WindowShape

MAX_RELATIVE_FREQUENCY = 200.0  # of tau: what is beyond gains less than 1% of R


def log_fourier_remainder(law: PiecewiseLaw, tilt: float) -> float:
    """Return ln R for all data at tilt t: Theorem 4 (2) of docs/proofs/bets.md."""
    gains = _KnotGains(law, tilt)
    frequencies = frequency_nodes(law.counts, gains.variance)
    phases = Phases.near_nodes(
        frequencies[: max(64, int(np.searchsorted(frequencies, MAX_RELATIVE_FREQUENCY)))]
    )
    modulus = gains.log_modulus(phases)
    return float(log_remainder(1.0, phases.nodes, modulus, law.counts, gains.variance))


class _Knots(NamedTuple):
    """The symbols of all levels in a row, and the windows of all levels in a row.

    Attributes
    ----------
    values, level : ndarray, shape (symbols,)
        y_j and their level.
    knots, level_of_window, outside, extra : ndarray, shape (windows,)
        The knots x_s, their level, the probability outside of the window, and what is added inside.
    window_symbols, level_symbols : pairs of ndarray of intp, shape (windows,)
        The first symbol of the window, and of its level, and the one after their last.
    first : ndarray of intp, shape (levels,)
        The first window of each level.
    """

    values: Floats
    level: NDArray[np.intp]
    knots: Floats
    level_of_window: NDArray[np.intp]
    window_symbols: tuple[NDArray[np.intp], NDArray[np.intp]]
    level_symbols: tuple[NDArray[np.intp], NDArray[np.intp]]
    outside: Floats
    extra: Floats
    first: NDArray[np.intp]


@functools.lru_cache(maxsize=64)
def _knots_of(shapes: tuple[WindowShape, ...]) -> _Knots:
    symbols = np.array([shape.symbols for shape in shapes])
    windows = np.array([shape.windows for shape in shapes])
    first_symbol = np.cumsum(symbols) - symbols
    first = np.cumsum(windows) - windows
    rows = np.arange(len(shapes))
    level_of_window = np.repeat(rows, windows)
    start = first_symbol[level_of_window] + np.arange(windows.sum()) - first[level_of_window]
    width = np.array([shape.window for shape in shapes])
    outside_probabilities = np.array([float(shape.outside) for shape in shapes])
    extra_probabilities = np.array([float(shape.inside - shape.outside) for shape in shapes])
    return _Knots(
        np.concatenate([shape.values for shape in shapes]),
        np.repeat(rows, symbols),
        np.concatenate([shape.knots for shape in shapes]),
        level_of_window,
        (start, start + width[level_of_window]),
        (first_symbol[level_of_window], (first_symbol + symbols)[level_of_window]),
        outside_probabilities[level_of_window],
        extra_probabilities[level_of_window],
        first,
    )


class _KnotGains:
    """The tilted laws of the gain of one report of each level, given each knot."""

    def __init__(self, law: PiecewiseLaw, tilt: float) -> None:
        self.knots = table = _knots_of(law.shapes)
        stakes = tilt * law.coefficient
        self.grown = stakes[table.level] * table.values
        self.gain = np.log1p(self.grown)
        self.fair = 1 + stakes[table.level_of_window] * table.knots
        mean, square = self._means(np.stack([self.gain, self.gain**2]))
        self.variance = np.maximum.reduceat(square - mean**2, table.first)

    def _means(self, terms: NDArray[T]) -> NDArray[T]:
        """Return the tilted means given each knot, of terms of shape (k, symbols)."""
        table = self.knots
        running = np.zeros((len(terms), terms.shape[1] + 1), dtype=terms.dtype)
        np.cumsum(terms * (1 + self.grown), axis=1, out=running[:, 1:])
        (first, last), (level_first, level_last) = table.window_symbols, table.level_symbols
        means = running[:, last] - running[:, first]
        means *= table.extra / self.fair
        level_sums = running[:, level_last] - running[:, level_first]
        level_sums *= table.outside / self.fair
        means += level_sums
        return means

    def log_modulus(self, phases: Phases) -> Floats:
        """Return ln of the largest modulus over the knots, shape (levels, nodes)."""
        means = self._means(phases.factors_of(self.gain))
        square = np.maximum.reduceat(means.real**2 + means.imag**2, self.knots.first, axis=1)
        with np.errstate(divide="ignore"):
            log_moduli: Floats = np.log(square.T) / 2
        return np.minimum(log_moduli, 0.0)
