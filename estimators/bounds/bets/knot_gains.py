"""The gains of bets on one report under their tilted laws, whatever the user's value is."""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.bounds.fourier.phases import Phases
from estimators.bounds.fourier.remainder import log_remainder, nodes
from estimators.bounds.laws.window_law import WindowLaw
from estimators.estimate import Floats
from estimators.exact.piecewise_shapes import T, WindowShape

FARTHEST = 200.0  # of tau: what is beyond gains less than 1% of R


def log_fourier(law: WindowLaw, tilt: float) -> float:
    """Return ln R by Graham and Vaaler, for all data.

    Parameters
    ----------
    law : WindowLaw
    tilt : float
        t.
    """
    gains = _KnotGains(law, tilt)
    at = nodes(law.counts, gains.variance)
    phases = Phases.near(at[: max(64, int(np.searchsorted(at, FARTHEST)))])
    modulus = gains.log_modulus(phases)
    return float(log_remainder(1.0, phases.nodes, modulus, law.counts, gains.variance))


class _Knots(NamedTuple):
    """The symbols of all levels in a row, and the windows of all levels in a row.

    `values` and `level`, of shape (symbols,), are y_j and their level. The others are of shape
    (windows,): the knots x_s, the level, the first symbol of the window and of the level, the one
    after their last, the probability outside of the window, and what is added inside. `first`, of
    shape (levels,), is the first window of each level.
    """

    values: Floats
    level: NDArray[np.intp]
    knots: Floats
    level_of_window: NDArray[np.intp]
    within: tuple[NDArray[np.intp], NDArray[np.intp]]
    whole: tuple[NDArray[np.intp], NDArray[np.intp]]
    outside: Floats
    extra: Floats
    first: NDArray[np.intp]


@functools.lru_cache(maxsize=64)
def _knots_of(shapes: tuple[WindowShape, ...]) -> _Knots:
    symbols, windows = (np.array([getattr(x, name) for x in shapes]) for name in _SIZES)
    begin = np.cumsum(symbols) - symbols
    first = np.cumsum(windows) - windows
    rows = np.arange(len(shapes))
    of_window = np.repeat(rows, windows)
    start = begin[of_window] + np.arange(windows.sum()) - first[of_window]
    width = np.array([shape.window for shape in shapes])
    outside = np.array([float(shape.outside) for shape in shapes])
    extra = np.array([float(shape.inside - shape.outside) for shape in shapes])
    return _Knots(
        np.concatenate([shape.values for shape in shapes]),
        np.repeat(rows, symbols),
        np.concatenate([shape.knots for shape in shapes]),
        of_window,
        (start, start + width[of_window]),
        (begin[of_window], (begin + symbols)[of_window]),
        outside[of_window],
        extra[of_window],
        first,
    )


_SIZES = ("symbols", "windows")


class _KnotGains:
    """The tilted laws of the gain of one report of each level, given each knot."""

    def __init__(self, law: WindowLaw, tilt: float) -> None:
        self.knots = one = _knots_of(law.shapes)
        stakes = tilt * law.coefficient
        self.grown = stakes[one.level] * one.values
        self.gain = np.log1p(self.grown)
        self.fair = 1 + stakes[one.level_of_window] * one.knots
        mean, square = self._means(np.stack([self.gain, self.gain**2]))
        self.variance = np.maximum.reduceat(square - mean**2, one.first)

    def _means(self, terms: NDArray[T]) -> NDArray[T]:
        """Return the tilted means given each knot, of terms of shape (k, symbols)."""
        one = self.knots
        running = np.zeros((len(terms), terms.shape[1] + 1), dtype=terms.dtype)
        np.cumsum(terms * (1 + self.grown), axis=1, out=running[:, 1:])
        pairs = (one.within, one.whole)
        within, whole = (running[:, end] - running[:, start] for start, end in pairs)
        within *= one.extra / self.fair
        whole *= one.outside / self.fair
        within += whole
        return within

    def log_modulus(self, phases: Phases) -> Floats:
        """Return ln of the largest modulus over the knots, shape (levels, nodes)."""
        means = self._means(phases.of(self.gain))
        square = np.maximum.reduceat(means.real**2 + means.imag**2, self.knots.first, axis=1)
        with np.errstate(divide="ignore"):
            found: Floats = np.log(square.T) / 2
        return np.minimum(found, 0.0)
