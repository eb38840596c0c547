"""A bound on noise of a known law: Chernoff's bound times a remainder."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from estimators.estimate import Floats

RELATIVE_TILTS = np.geomspace(0.05, 4, 50)  # in units of the normal law's best tilt; 9% apart
BEST_TILT_FACTOR = 0.97  # ratio of the chosen tilt to that of Chernoff's best bound: measured


def sharpened_deviation(
    cumulant: Callable[[Floats], Floats],
    log_remainder: Callable[[Floats], Floats],
    scale: float,
    max_tilt: float,
    log_p: float,
) -> float:
    """Return a bound that a sum S exceeds with probability at most p, by Chernoff and a remainder.

    `cumulant`, `log_remainder`: upper bounds on ln E exp(tilt S) and on ln R, for tilts of shape
    (k,). The remainder costs more, so it is computed for a single tilt; `scale`: a tilt near the
    best one; `max_tilt`: the largest tilt of `cumulant`; `log_p`: ln p, where p is the failure
    probability of each side.
    """
    best = np.array([choose_tilt(cumulant, scale, max_tilt, log_p)])
    return float(((cumulant(best) + log_remainder(best) - log_p) / best)[0])


def choose_tilt(
    cumulant: Callable[[Floats], Floats], scale: float, max_tilt: float, log_p: float
) -> float:
    """Return a tilt near the one that would be best if the tilted laws were normal.

    `cumulant`, `scale`, `max_tilt`, `log_p`: as in :func:`sharpened_deviation`.
    """
    tilt = RELATIVE_TILTS * scale
    tilt = tilt[tilt < max_tilt] if tilt[2] < max_tilt else max_tilt * np.linspace(0.8, 1, 3)
    likely = float(tilt[np.argmin(likely_deviations(tilt, cumulant(tilt), log_p))])
    return likely * BEST_TILT_FACTOR


def likely_deviations(tilt: Floats, cumulant: Floats, log_p: float) -> Floats:
    """Return the bounds that each tilt would give if the tilted laws were normal.

    `tilt`, shape (tilts,): ascending; `cumulant`, shape (..., tilts): upper bounds on the cumulant;
    `log_p`: ln p, where p is the failure probability of each side.
    """
    curvature = np.gradient(np.gradient(cumulant, tilt, axis=-1), tilt, axis=-1)
    normal = -np.log(2 * np.pi * tilt**2 * np.maximum(curvature, 1e-300)) / 2
    deviations: Floats = (cumulant + np.minimum(normal, 0) - log_p) / tilt
    return deviations
