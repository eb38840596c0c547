"""A bound on noise of a known law: Chernoff's bound times a remainder."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from estimators.estimate import Floats

TILTS = np.geomspace(0.05, 4, 50)  # in units of the normal law's; 9% apart
NEAR = 0.97  # the tilt that is taken, over the likely best one: measured


def sharpened_deviation(
    cumulant: Callable[[Floats], Floats],
    log_remainder: Callable[[Floats], Floats],
    scale: float,
    steepest: float,
    log_p: float,
) -> float:
    """Bound a sum by Chernoff's bound times a remainder.

    Parameters
    ----------
    cumulant, log_remainder : callable
        ln E exp(tilt S) and ln R from above, for tilts of shape (k,). The remainder is the dearer
        one: it is computed for one tilt, which would be best if the tilted laws were normal.
    scale : float
        A tilt near the best one.
    steepest : float
        The largest tilt.
    log_p : float
        ln p, the failure probability.
    """
    best = np.array([likely_tilt(cumulant, scale, steepest, log_p)])
    return float(((cumulant(best) + log_remainder(best) - log_p) / best)[0])


def likely_tilt(
    cumulant: Callable[[Floats], Floats], scale: float, steepest: float, log_p: float
) -> float:
    """Return a tilt that would be best if the tilted laws were normal.

    Parameters
    ----------
    cumulant : callable
        ln E exp(tilt S) from above, for tilts of shape (k,).
    scale, steepest : float
        A tilt near the best one, and the largest.
    log_p : float
        ln p, the failure probability.
    """
    tilt = TILTS * scale
    tilt = tilt[tilt < steepest] if tilt[2] < steepest else steepest * np.linspace(0.8, 1, 3)
    value = cumulant(tilt)
    curvature = np.gradient(np.gradient(value, tilt), tilt)
    normal = -np.log(2 * np.pi * tilt**2 * np.maximum(curvature, 1e-300)) / 2
    likely = float(tilt[np.argmin((value + np.minimum(normal, 0) - log_p) / tilt)])
    return likely * NEAR
