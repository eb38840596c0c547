"""The remainder of discrete Laplace noise, whatever else is added to it."""

from __future__ import annotations

import numpy as np

from estimators.bounds.fourier.remainder import frequency_nodes, log_remainder
from estimators.estimate import Floats
from estimators.exact import discrete_laplace


def log_laplace_remainder(counts: Floats, rate: Floats, step: Floats, tilt: Floats) -> Floats:
    """Bound ln R for sums with this noise, shape (k,): Theorem 3 of docs/proofs/fourier.md.

    Parameters
    ----------
    counts, rate, step : ndarray of float64, shape (levels,)
        Reports, the rate of the noise, and how far its step moves S.
    tilt : ndarray of float64, shape (k,)
        Below every rate / step.
    """
    u = tilt[:, None] * step
    variance = discrete_laplace.cumulant(rate, u)[2] * step**2
    frequencies = frequency_nodes(counts, variance)
    u, v = u[..., None], frequencies[:, None, :] * step[:, None]
    a = (np.sinh(rate / 2) ** 2)[:, None] - np.sinh(u / 2) ** 2
    b, c = np.cosh(u) * np.sin(v / 2) ** 2, np.sinh(u) * np.sin(v) / 2
    log_modulus = -np.log1p((b * (2 * a + b) + c**2) / a**2) / 2
    return log_remainder(tilt, frequencies, log_modulus, counts, variance)
