"""The remainder of discrete Laplace noise, and of values that are rounded to signs beside it."""

from __future__ import annotations

import numpy as np

from estimators.bounds.fourier.remainder import log_remainder, nodes
from estimators.estimate import Floats
from estimators.exact import discrete_laplace


def log_laplace_remainder(
    counts: Floats, rate: Floats, step: Floats, tilt: Floats, contrast: Floats | None = None
) -> Floats:
    """Bound ln R for sums with this noise; see :mod:`estimators.bounds.fourier.remainder`.

    Values and their rounding are independent of the noise, and the modulus of their transform is at
    most its value at tau = 0, which is in the cumulant. So the noise's modulus serves alone.

    Parameters
    ----------
    counts, rate, step : ndarray of float64, shape (levels,)
        Reports, the rate of the noise, and how far its step moves S. At a level with an infinite
        rate `step` is the distance of the signs that a value is rounded to.
    tilt : ndarray of float64, shape (k,)
        Below every rate / step.
    contrast : ndarray of float64, shape (levels,), optional
        a_l: at a level of signs, their means are within [-a_l, a_l].

    Returns
    -------
    ndarray of float64, shape (k,)
        At most 0.

    Notes
    -----
    E e^(z noise) = S / (S - sinh^2(z / 2)), S = sinh^2(rate / 2). With z = u + i v, S - sinh^2(z /
    2) is (a + b) - i c, a = S - sinh^2(u / 2), b = cosh(u) sin^2(v / 2) and c = sinh(u) sin(v) / 2.

    A sign whose mean is m under the tilted law has the modulus (1 - (1 - m^2) sin^2(v / 2))^(1/2),
    v = tau step. It grows with |m|, and |m| is at most (tanh + a) / (1 + a tanh) of u / 2.
    """
    noisy = np.isfinite(rate)
    u = tilt[:, None] * step
    safe = np.where(noisy, rate, 1.0)
    curvature = discrete_laplace.cumulant(safe, np.where(noisy, u, 0.0))[2]
    variance = np.where(noisy, curvature, 1 / 4) * step**2
    tau = nodes(counts, variance)
    u, v = u[..., None], tau[:, None, :] * step[:, None]
    sine = np.sin(v / 2) ** 2
    signs = np.ones_like(sine)
    if contrast is not None:
        tanh, most = np.tanh(u / 2), contrast[:, None]
        signs = (
            1 - ((1 - most) * (1 + most) * (1 - tanh) * (1 + tanh) / (1 + most * tanh) ** 2) * sine
        )
    u = np.where(noisy[:, None], u, 0.0)
    a = (np.sinh(safe / 2) ** 2)[:, None] - np.sinh(u / 2) ** 2
    b, c = np.cosh(u) * sine, np.sinh(u) * np.sin(v) / 2
    noise = np.log1p((b * (2 * a + b) + c**2) / a**2)
    with np.errstate(divide="ignore"):
        log_modulus = np.where(noisy[:, None], -noise, np.log(signs)) / 2
    return log_remainder(tilt, tau, log_modulus, counts, variance)
