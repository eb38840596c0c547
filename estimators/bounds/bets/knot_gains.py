"""The gain of a bet on one report under its tilted law, whatever the user's value is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from estimators.bounds.fourier.phases import Phases
from estimators.bounds.fourier.remainder import log_remainder, nodes
from estimators.bounds.laws.window_law import WindowLaw
from estimators.estimate import Floats
from estimators.exact.windows import T, WindowShape

FARTHEST = 200.0  # of tau: what is beyond gains less than 1% of R


def log_fourier(law: WindowLaw, tilt: float) -> float:
    """Return ln R by Graham and Vaaler, for all data.

    Parameters
    ----------
    law : WindowLaw
    tilt : float
        t.
    """
    gains = [_KnotGains(*x, tilt) for x in zip(law.shapes, law.coefficient, strict=True)]
    variance = np.array([gain.variance for gain in gains])
    at = nodes(law.counts, variance)
    phases = Phases.near(at[: max(64, int(np.searchsorted(at, FARTHEST)))])
    modulus = np.array([gain.log_modulus(phases) for gain in gains])
    return float(log_remainder(1.0, phases.nodes, modulus, law.counts, variance))


class _KnotGains:
    """The tilted laws of the gain of one report, given each knot."""

    def __init__(self, shape: WindowShape, coefficient: float, tilt: float) -> None:
        self.shape = shape
        self.growth = 1 + tilt * coefficient * shape.values
        self.gain = np.log1p(tilt * coefficient * shape.values)
        self.fair = 1 + tilt * coefficient * shape.knots
        mean, square = self._means(np.stack([self.gain, self.gain**2]))
        self.variance = float((square - mean**2).max())

    def _means(self, terms: NDArray[T]) -> NDArray[T]:
        """Return the tilted means given each knot, of terms of shape (k, symbols)."""
        return self.shape.means(terms * self.growth) / self.fair

    def log_modulus(self, phases: Phases) -> Floats:
        """Return ln of the largest modulus over the knots, shape (nodes,)."""
        means = self._means(phases.of(self.gain))
        square = (means.real**2 + means.imag**2).max(axis=-1)
        with np.errstate(divide="ignore"):
            found: Floats = np.log(square) / 2
        return np.minimum(found, 0.0)
