r"""The factor by which a tail is below Chernoff's bound, proved for sums of any independent terms.

Let S be a sum of independent X_i. With K(t) = sum ln B_i(0), where B_i(tau) is at least |E e^((t +
i tau) X_i)|, :func:`log_remainder` returns ln R with

    P(S >= s) <= e^(K(t) - t s) R,    R = min(1, (2 / D) int_0^D b(tau / D) prod g_i(tau) d tau),

g_i(tau) = B_i(tau) / B_i(0). R depends on moduli only, and any upper bounds on these serve. So
unknown data cost nothing if B_i is the largest modulus over all data: no variance and no third
moment must be known, as for the Berry-Esseen theorem. For a normal law the half-width at 5% is 0.5%
above the normal one.

**A majorant.** Let L = 2 pi t / D and q = e^-L. Graham and Vaaler's (1981) function

    H(x) = (sin(pi x) / pi)^2 [sum_(n >= 0) q^n / (x - n)^2 - L sum_(n >= 1) q^n (1 / (x - n) - 1 /
    x)]

is at least e^(-L x) for x >= 0 and at least 0 for x < 0. Proof: let V(u) = u / (1 - e^-u), which
grows. For x < 0, expand the sums in powers of e^(x s): H(x) (pi / sin(pi x))^2 is the integral of
e^(x s) (V(L + s) - V(L)) over s > 0, which is at least 0. For -1 < x < 0, e^(-L x) (pi / sin(pi
x))^2 is the integral of e^(x s) V(L + s) over all real s. So the difference (H(x) - e^(-L x)) (pi /
sin(pi x))^2 is V(L) / x less the integral of e^(x s) V(L + s) over s < 0. That is analytic for x >
-1, and for x > 0 it is the integral of e^(x s) (V(L) - V(L + s)) over s < 0, which is at least 0.

**Its transform** is zero outside of [-1, 1], and for 0 <= y <= 1 it is (1 - y) / (1 - w) + (i L /
(2 pi)) (w / (1 - w) - q / (1 - q)) with w = q e^(-2 pi i y), from the transforms of (sin(pi x) /
(pi (x - n)))^2 and of sin(pi x)^2 / (pi^2 (x - n)). By the triangle inequality its modulus is at
most

    b(y) = (1 - y + c sin(pi y) / pi) / ((1 - q)^2 + 4 q sin(pi y)^2)^(1/2)

with c = L q / (1 - q), at most 1. b falls: the numerator falls, and the denominator grows up to
1/2. Beyond, with z = 1 - y, b is (z / sin(pi z) + c / pi) sin(pi z) over the denominator, and both
z / sin(pi z) and sin(pi z) over the denominator grow with z.

**The tail.** Let E' be the law with density e^(t S) / E e^(t S). P(S >= s) = E e^(t S) e^(-t s) E'
[e^(-t (S - s)); S >= s], and the last factor is at most E' H((S - s) D / (2 pi)). By Fourier
inversion that is at most 1 / D times the integral of b(|tau| / D) |E' e^(i tau S)| over [-D, D].

**The quadrature is an upper bound.** For centred X, |E' e^(i tau X)| is the largest of the real
parts of e^(i a) E' e^(i tau X) over all angles a. Each has a second derivative of at least -E' X^2.
So g + v tau^2 / 2 is convex, if v is at least the tilted variance of one report, or the largest one
where g is a maximum over data. Hence in a cell of length h between two nodes, g is at most the
chord between its values there plus v h^2 / 8. Let c_l be that line for each kind of report. The
logarithm of the product, k = sum n_l ln c_l, is concave, with a second derivative of at least -sum
n_l (slope / c_l)^2. So k is at most its own chord plus sum n_l (Delta c_l / min c_l)^2 / 8, and the
integral of the exponential of a chord is at most that of the trapezoid. The largest values of all
c_l, and 1, bound the product as well; the least of the three is taken. b is taken at a cell's
start. Every D is allowed, so the best of several is taken.
"""

from __future__ import annotations

import math

import numpy as np

from estimators.estimate import Floats

BULK_STEP, BULK_END = 0.05, 6.0
"""In standard deviations of the tilted law: the cells where most of the integral is."""
STEP_GROWTH = 0.04  # of cells beyond, as a share of tau
MAX_REPORT_STEP = 0.3  # of cells, in standard deviations of one report
LAST_NODE, MAX_NODES = 2_000.0, 400  # the last node, and how many nodes there are at most
CUTOFF_CANDIDATES = 16  # candidates for D
MIN_LOG_INTEGRAND = (
    -600.0
)  # ln of what is integrated: below it a double may be 0, and so would R be
LOG_FACTOR_ROUNDING = 1e-9  # of ln R: far above the rounding errors of a sum of some hundred terms


def frequency_nodes(counts: Floats, variance: Floats, step: float = BULK_STEP) -> Floats:
    """Return nodes from 0 on for :func:`log_remainder`; any others are valid, too.

    Parameters
    ----------
    counts : ndarray of float64, shape (parts,)
        How many reports of each kind there are.
    variance : ndarray of float64, shape (..., parts)
        The variance of one report of each kind, roughly; in no row are all zero.
    step : float
        The distance of the first nodes, in standard deviations of S under its tilted law.

    Returns
    -------
    ndarray of float64, shape (..., nodes)
        tau, in the inverse unit of S.
    """
    sd = np.sqrt(variance @ counts)
    coarser = step / BULK_STEP
    widest = MAX_REPORT_STEP * coarser * float((sd / np.sqrt(variance.max(axis=-1))).min())
    bulk_steps, growth = np.arange(0.0, BULK_END + step / 2, step), STEP_GROWTH * coarser
    growing_count = math.ceil(math.log(max(widest / (growth * BULK_END), 1.0)) / math.log1p(growth))
    growing_steps = BULK_END * (1 + growth) ** np.arange(1, growing_count + 1)
    last = float(growing_steps[-1]) if growing_count else BULK_END
    node_limit = int(MAX_NODES / coarser)
    even_steps = last + widest * np.arange(1, node_limit + 1)
    relative_nodes = np.concatenate([bulk_steps, growing_steps, even_steps])
    result: Floats = relative_nodes[relative_nodes <= LAST_NODE][:node_limit] / sd[..., None]
    return result


def log_remainder(
    tilt: Floats | float, frequencies: Floats, log_modulus: Floats, counts: Floats, variance: Floats
) -> Floats:
    """Bound ln R from above, for P(S >= s) <= exp(K(tilt) - tilt s) R.

    The leading axes of all arrays broadcast, so that several tilts or laws take one call.

    Parameters
    ----------
    tilt : float or ndarray of float64, shape (...)
        t, above 0.
    frequencies : ndarray of float64, shape (..., nodes)
        tau, ascending from 0. The last ones are candidates for D.
    log_modulus : ndarray of float64, shape (..., parts, nodes)
        ln g_l for one report of each kind: an upper bound on ln |E e^((t + i tau) X)|, the same for
        all data, minus the term of K for one report. At most 0 at tau = 0.
    counts : ndarray of float64, shape (..., parts)
        n_l, how many reports of each kind there are.
    variance : ndarray of float64, shape (..., parts)
        v_l, at least the variance of X under its tilted law, for all data. If log_modulus is not
        the logarithm of a largest modulus but only bounds it: so large that g_l + v_l tau^2 / 2 is
        convex.

    Returns
    -------
    ndarray of float64, shape (...)
        At most 0.

    Examples
    --------
    >>> n, t = np.array([100.0]), 0.23  # a hundred normal terms of variance 1
    >>> tau = nodes(n, np.array([1.0]))
    >>> found = log_remainder(t, tau, -tau[None] ** 2 / 2, n, np.array([1.0]))
    >>> exact = 0.1510  # E'[e^(-t U); U >= 0] of a normal U with mean 0
    >>> bool(exact < np.exp(found) < 1.12 * exact)
    True
    """
    log_factor = log_cutoff_factors(
        frequencies, log_modulus, counts, variance, cutoff_weights(tilt, frequencies)
    )
    log_least: Floats = np.minimum(log_factor.min(axis=-1), 0.0)
    return log_least


def cutoff_weights(tilt: Floats | float, frequencies: Floats) -> Floats:
    """Return the weight of each cell in R for each of several D: shape (..., WIDTHS, nodes - 1).

    Parameters are those of :func:`log_remainder`.
    """
    cutoff_nodes = np.linspace(
        frequencies.shape[-1] // 4, frequencies.shape[-1] - 1, CUTOFF_CANDIDATES
    ).astype(np.intp)
    tau, cutoff = frequencies[..., None, :-1], frequencies[..., cutoff_nodes, None]
    cell_weights = (
        _majorant_weights(np.asarray(tilt)[..., None, None], tau, cutoff)
        * np.diff(frequencies)[..., None, :]
    )
    return np.where(tau < cutoff, cell_weights, 0.0)


def log_cutoff_factors(
    frequencies: Floats, log_modulus: Floats, counts: Floats, variance: Floats, weight: Floats
) -> Floats:
    """Return ln R for each D of `weight`, not yet cut at 0: shape (..., WIDTHS).

    Parameters
    ----------
    frequencies, log_modulus, counts, variance : ndarray of float64
        As for :func:`log_remainder`.
    weight : ndarray of float64, shape (..., WIDTHS, nodes - 1)
        From :func:`weights`.
    """
    with np.errstate(divide="ignore"):
        log_convexity = np.log(variance[..., None] * np.diff(frequencies)[..., None, :] ** 2 / 8)
    left, right = (
        np.logaddexp(x, log_convexity) for x in (log_modulus[..., :-1], log_modulus[..., 1:])
    )
    curvature = np.expm1(np.minimum(np.abs(right - left), 300.0)) ** 2 / 8
    n = counts[..., None]
    chord = np.logaddexp((left * n).sum(axis=-2), (right * n).sum(axis=-2)) - math.log(2)
    chord += (curvature * n).sum(axis=-2)
    log_highest = (np.maximum(left, right) * n).sum(axis=-2)
    cell_integrals = np.exp(np.clip(np.minimum(chord, log_highest), MIN_LOG_INTEGRAND, 0.0))
    log_integrals: Floats = (
        np.log((weight @ cell_integrals[..., None])[..., 0]) + LOG_FACTOR_ROUNDING
    )
    return log_integrals


def _majorant_weights(tilt: Floats, tau: Floats, cutoff: Floats) -> Floats:
    """Return 2 b(tau / D) / D for tau up to D."""
    tau = np.minimum(tau, cutoff)
    decay = 2 * np.pi * tilt / cutoff
    q, sine = np.exp(-decay), np.sin(np.pi * tau / cutoff)
    c = decay * q / -np.expm1(-decay)
    denominator = np.hypot(np.expm1(-decay), 2 * np.sqrt(q) * sine)
    weight: Floats = 2 / cutoff * (1 - tau / cutoff + c * sine / np.pi) / denominator
    return weight
