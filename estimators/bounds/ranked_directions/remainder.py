"""The remainder for a coordinate: Theorem 4 of docs/proofs/ranked-directions.md."""

from __future__ import annotations

import math

import numpy as np

from estimators.bounds.fourier import remainder
from estimators.bounds.ranked_directions import report_law
from estimators.estimate import Floats, Indices

NODE_STEP = 0.1  # between nodes, in standard deviations of the sum
MIN_NODES = 20  # with fewer nodes there are too few reports
PRICE_STEPS = 3  # prices of c^2 that are tried; more narrow a width by less than 0.01%
LOG_DECAYED = -200.0  # ln of a product of moduli below which further nodes do not matter
MIN_SERIES_TERM = 1e-15  # the least term of the power series that is added


def log_remainder(
    laws: tuple[report_law.ReportLaw, ...],
    counts: Floats,
    coefficient: Floats,
    columns: Indices,
    unit: float,
    tilt: float,
) -> Floats:
    """Return an upper bound on ln R, where P(N_j >= x) <= exp(K(tilt) - tilt x) R; shape (k,).

    Parameters
    ----------
    laws : tuple of ReportLaw
        Per level.
    counts, coefficient : ndarray of float64, shape (levels,)
        Reports of each level, and the factor of one report.
    columns : ndarray of intp, shape (levels, k)
        The columns of :meth:`ReportLaw.growth` in K, for k coordinates with similar q. All use the
        prices of the middle coordinate.
    unit : float
        The step of the grid.
    tilt : float
    """
    dimension, middle = laws[0].dimension, columns.shape[1] // 2
    middle_columns = zip(laws, columns[:, middle].tolist(), strict=True)
    variance = np.array([law.variances(unit)[column] for law, column in middle_columns])
    frequencies = remainder.frequency_nodes(counts, coefficient**2 * variance, NODE_STEP)
    max_exponent = report_law.MAX_REPORT_TILT * math.sqrt(dimension) / float(coefficient.max())
    frequencies = frequencies[np.hypot(frequencies, tilt) < max_exponent]
    if frequencies.size < MIN_NODES:
        return np.zeros(columns.shape[1])
    # ln R <= 0 is always valid
    moduli = np.zeros((columns.shape[1], len(laws), frequencies.size))
    convexity, node_count = np.zeros(len(laws)), frequencies.size
    log_product = np.zeros(node_count)
    for level in np.argsort(-counts * coefficient**2 * variance).tolist():
        law, n, s = laws[level], float(counts[level]), float(coefficient[level])
        log_moduli, second_moment = _log_modulus(
            law, columns[level], tilt * s, frequencies[:node_count] * s, unit
        )
        moduli[:, level, :node_count] = log_moduli
        log_product[:node_count] += n * log_moduli.max(axis=0)
        node_count = max(np.flatnonzero(log_product > LOG_DECAYED)[-1] + 1, 2)
        convexity[level] = second_moment * s * s
    return remainder.log_remainder(tilt, frequencies, moduli, counts, convexity)


def _log_modulus(
    law: report_law.ReportLaw, columns: Indices, tilt: float, frequencies: Floats, unit: float
) -> tuple[Floats, float]:
    """Return H(h) - K at each node h for each column, and V, of one report: theorem 4."""
    d = law.dimension
    relative_exponent = math.hypot(tilt, float(frequencies[-1])) / math.sqrt(d)
    largest = law.moments[:, -1] * relative_exponent ** np.arange(2.0, report_law.SERIES_ORDER + 1)
    order = 3 + int(np.flatnonzero(largest > MIN_SERIES_TERM * (1 + largest.max()))[-1])
    c, linear = np.sqrt(law.squares), law.mean * math.sqrt(d)
    moments = np.concatenate([[np.ones_like(c), linear * c], law.moments[: order - 2]])
    scaled = np.asarray((tilt + 1j * frequencies) / math.sqrt(d), dtype=np.complex128)
    z = report_law.powers_of(scaled, order)
    parts = np.concatenate([z.real, z.imag])
    # F(t + i h, c) is even + odd, F(t + i h, -c) even - odd
    even, odd = ((parts[:, i::2] @ moments[i::2]).reshape(2, frequencies.size, -1) for i in (0, 1))
    exponent = np.abs(tilt + 1j * frequencies)[:, None]
    rounding_factor = exponent**2 * unit**2 * math.exp(tilt * unit) / 8
    highest = np.full((frequencies.size, c.size), -np.inf)
    for sign, f in ((1, even + odd), (-1, even - odd)):
        modulus = np.sqrt(f[0] ** 2 + f[1] ** 2)
        modulus += rounding_factor * (even[0, 0] + sign * odd[0, 0]) - (
            1 + sign * tilt * law.mean * c
        )
        np.maximum(highest, modulus, out=highest)
    paired = np.maximum(highest[:, :-1], highest[:, 1:])
    bound = concave_majorant_at(law.squares[:-1], paired, law.squares[columns])
    growth_at_zero = law.growth(np.array([tilt]), columns)[0] + (tilt * unit) ** 2 / 8
    q = np.arange(2, order)
    second = (q * (q - 1) * z[0].real[: order - 2]) @ moments[2:] / d
    return bound - growth_at_zero[:, None], float(second.max()) * 1.01


def concave_majorant_at(x: Floats, y: Floats, abscissas: Floats) -> Floats:
    """Return upper bounds on the least concave increasing function above points, shape (k, rows).

    For any price b >= 0 a bound is b times the abscissa plus the largest y - b x. The best price is
    the slope of that function at the abscissa.

    Parameters
    ----------
    x : ndarray of float64, shape (points,)
        Ascending, from 0 on.
    y : ndarray of float64, shape (rows, points)
        A function for each row.
    abscissas : ndarray of float64, shape (k,)
        At least 0; the price used for all is the best for the middle abscissa.
    """
    bound: Floats = np.tile(y.max(axis=1), (abscissas.size, 1))
    rows, last, middle = np.arange(len(y)), x.size - 1, float(abscissas[abscissas.size // 2])
    if x[last] <= middle:
        return bound
    left, right = np.zeros(len(y), dtype=np.intp), np.full(len(y), last)
    for _ in range(PRICE_STEPS):
        price = np.maximum((y[rows, right] - y[rows, left]) / (x[right] - x[left]), 0.0)
        residual = y - price[:, None] * x
        highest = residual.argmax(axis=1)
        bound = np.minimum(bound, residual[rows, highest] + abscissas[:, None] * price)
        is_left = x[highest] <= middle
        left, right = np.where(is_left, highest, left), np.where(is_left, right, highest)
    return bound
