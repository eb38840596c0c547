r"""Bounds for a fixed number of reports that are +1, -1 or 0, near the normal law's width.

Chernoff's bound alone is wider than the normal law for any number of reports. A union over tilts,
which the unknown variance would require, makes it wider still. This module avoids both.

**One tilt.** Let W = sum (x D - psi |D|), x = t s, psi = ln cosh x, for a fixed t (or other x_l
that are fixed in advance: :meth:`DifferenceLaw.tilts`); D stands for both D and -D, phi = E D (+- c
f of the user), A = P(D != 0), T = tanh x. E e^W = prod (1 + phi T) = e^K exactly, whatever A is
(:class:`.laws.difference_law.DifferenceLaw`). Under the law P' with density e^(W - K),

    P(W >= K + x0) = e^-x0 E'[e^-U; U >= 0],    U = W - K - x0,

and E'[e^-U; U >= 0] is the integral of e^-u P'(0 <= U <= u) over u > 0. With v' = Var' W and r' the
sum of the third absolute central moments, P'(0 <= U <= u) <= 2 Phi(u / (2 sqrt v')) - 1 + 2 * 0.56
r' / v'^1.5 by the Berry-Esseen theorem (Shevtsova, 2010), so that it is at most

    R = erfcx(sqrt(2 v')) + 1.12 r' / v'^1.5,    erfcx(a) = e^(a^2) erfc(a), and at most 1.

**Moments.** A report adds w = x D - psi |D| to W. Its density under P' is at least e^(-x - psi) /
(1 + phi T) = (1 - T) / (1 + phi T), and a variance is the least mean square about any point, so
Var' w >= (1 - T) / (1 + c T) Var w. As Var |D| <= Var D, Var w >= (x - psi)^2 Var D (Minkowski).
Hence v' >= sigma^2 min_l (1 - T)((x - psi) / s)^2 / (1 + c T), where sigma^2 = Var S = sum s^2 (A
- phi^2) is the variance of the estimate. Of the third moment, r' <= v' max |w - E' w|, and

    E' w = (A xi + phi zeta) / (1 + phi T),    xi = x T - psi >= 0, zeta = x - psi T >= 0,

grows with phi and A, so for |phi| <= c and A <= A_max no w is farther from it than 2 x, x + psi +
(A_max xi + c zeta) / (1 + c T) for D and x - psi + c zeta / (1 - c T) for -D.

So a lower bound on sigma^2 determines R, and only the logarithm of R matters.

**Cells.** With V = sum s^2 A, the best tilt depends on tau^2 = V - e(f), where e(f) is the part
that K accounts for: `DifferenceLaw.explained_variance`. For one frequency tau^2 = sigma^2. For free
frequencies, sigma^2 is at least a known share of it. For fixed values, tau^2 is sigma^2 itself. The
range of tau^2 is cut into cells. Each has its own tilt t, an R for its lower end, and thus limits
that fail with probability p' a side for all laws in the cell: f is rejected if W - ln(R / p') >=
K(f). Cells are fixed by the counts and public constants. In the lowest one, which has too few
reports to gain from R, the limits are those of
:func:`~estimators.bounds.self_normalised.self_normalised_interval`, which hold for every law.

**Which cell?** V is estimated by sum s^2 |D|, a sum of independent terms in [0, q]. Its exponential
moments are below those of q times a Poisson variable of mean V / q (the exponential lies below its
chord), so Bernstein's inequality gives an interval for V that fails with probability d p a side.
The self-normalised interval for f fails with d p a side, and e grows with f. Together they give an
interval for tau^2. For fixed values, sigma^2 = sum s^2 (A - c E D) is itself the mean of such a
sum, of s^2 (|D| - c D). The limits shown are the *widest* over the cells that the interval meets.
If it covers, the true cell is among them; so each side fails with probability at most p' + 4 d p =
p. Neighbouring cells differ little, because the tilt matters only to second order: the unknown
variance costs almost nothing.

**All reports in the block** (one block, as at small epsilons) and one frequency: D is a sign of
mean c f, and the bounds are those of :class:`.laws.law.Law`, which are slightly sharper.
"""

from __future__ import annotations

import math

import numpy as np

from estimators.bounds.intervals import interval, normal_quantile
from estimators.bounds.inversion import LOG_P_SAFETY
from estimators.bounds.laws.difference_law import DifferenceLaw
from estimators.bounds.laws.law import Law
from estimators.bounds.self_normalised import exponents, log_cosh, self_normalised_interval
from estimators.bounds.tails import BERRY_ESSEEN
from estimators.estimate import Floats
from estimators.question import Question

CELL_CHOICE_SHARE = 0.01
"""d: of the failure probability, for each of the four statements that choose cells."""
BLOCK_CELL_RATIO = 1.25  # between neighbouring cells: with finer ones, no width gains more than 2%
MIN_CELL_REPORTS = 16.0  # reports' worth of variance per -ln p: below, R gains nothing; measured


def difference_limits(
    law: DifferenceLaw, sums: Floats, sizes: Floats, question: Question, log_p: float, total: float
) -> tuple[Floats, Floats]:
    """Return bounds on f for a question.

    Parameters
    ----------
    law, sums, sizes, log_p
        As in :func:`difference_interval`.
    question : Question
        Its `bound` determines the interval.
    total : float
        As in :func:`estimators.bounds.self_normalised.self_normalised_interval`.
    """
    if question.bound == "normal":
        observed = law.coefficient @ sums
        margin = normal_quantile(log_p) * np.sqrt(law.coefficient**2 @ sizes)
        return np.clip(observed - margin, 0, 1), np.clip(observed + margin, 0, 1)
    if question.bound == "anytime":
        return self_normalised_interval(law, sums, sizes, log_p, total)
    return difference_interval(law, sums, sizes, log_p)


def difference_interval(
    law: DifferenceLaw, sums: Floats, sizes: Floats, log_p: float
) -> tuple[Floats, Floats]:
    """Return bounds on f, each side failing with probability at most p.

    Parameters
    ----------
    law : DifferenceLaw
    sums, sizes : ndarray of float64, shape (levels, k)
        The sums of D and of abs(D), for each of k categories.
    log_p : float
        ln p, the failure probability of one side.

    Returns
    -------
    lower, upper : ndarray of float64, shape (k,)
        Within [0, 1].

    Examples
    --------
    >>> one = np.ones(1)
    >>> law = DifferenceLaw(1e4 * one, 1e-4 * one, one, 0.5 * one, one)
    >>> sums, sizes = np.array([[2000.0]]), np.array([[7000.0]])
    >>> lower, upper = difference_interval(law, sums, sizes, np.log(0.025))
    >>> float(lower[0].round(4)), float(upper[0].round(4))
    (0.1827, 0.2172)
    """
    observed = law.coefficient @ sums
    if law.has_single_block and not (law.free or law.fixed):
        signs = Law(law.counts, law.coefficient, law.contrast)
        lower, upper = interval(signs, observed, log_p)
        return np.clip(lower, 0, 1), np.clip(upper, 0, 1)
    weight = law.counts * law.coefficient**2
    largest_variance = float(weight @ law.largest_share)
    least_edge = -MIN_CELL_REPORTS * log_p * float(law.coefficient.max()) ** 2
    cell_count = max(
        0, math.ceil(math.log(largest_variance / least_edge) / math.log(BLOCK_CELL_RATIO))
    )
    edges = least_edge * BLOCK_CELL_RATIO ** np.arange(cell_count + 1, dtype=np.float64)
    first_cell, last_cell, first_interval = _choose_cells(
        law, sums, sizes, log_p + math.log(CELL_CHOICE_SHARE), edges
    )
    log_left = log_p + math.log1p(-4 * CELL_CHOICE_SHARE)
    lower, upper = np.ones_like(observed), np.zeros_like(observed)
    tilts, costs = cell_tilts(law, edges, log_left)
    for cell in range(int(first_cell.min(initial=0)), int(last_cell.max(initial=0)) + 1):
        members = np.flatnonzero((first_cell <= cell) & (cell <= last_cell))
        if members.size == 0:
            continue
        if cell == 0:
            cell_limits = self_normalised_interval(
                law, sums[:, members], sizes[:, members], log_left
            )
        else:
            tilt, cost = tilts[cell - 1 : cell], float(costs[cell - 1])
            above, below = (x[0, members] - cost for x in exponents(law, tilt, sums, sizes))
            cell_limits = law.limits(float(tilt[0]), above, below)
        lower[members] = np.minimum(lower[members], cell_limits[0])
        upper[members] = np.maximum(upper[members], cell_limits[1])
    estimate = np.clip(observed, 0, 1)  # where beta is near 1, both limits may be on one side of it
    return (
        np.minimum(np.maximum(lower, first_interval[0]), estimate),
        np.maximum(np.minimum(upper, first_interval[1]), estimate),
    )


def _choose_cells(
    law: DifferenceLaw, sums: Floats, sizes: Floats, log_p: float, edges: Floats
) -> tuple[Floats, Floats, tuple[Floats, Floats]]:
    """Return the first and last cell that may contain tau^2, and an interval for f.

    Each of four statements fails with probability p. Cell 0 ends at the first of the edges.
    """
    square = law.coefficient**2
    largest = float(law.counts * square @ law.largest_share)
    if law.fixed:
        interval_of_f = np.zeros(sums.shape[1]), np.ones(sums.shape[1])
        terms, unit = sizes - law.contrast[:, None] * sums, square * (1 + law.contrast)
        low, high = bernstein_limits(square @ terms, float(unit.max()), log_p)
    else:
        interval_of_f = self_normalised_interval(law, sums, sizes, log_p, refined=False)
        is_known = law.least_share == law.largest_share
        low = high = np.full(
            sums.shape[1], float((law.counts * square)[is_known] @ law.least_share[is_known])
        )
        if not is_known.all():
            unknown_weight = np.where(is_known, 0, square)
            more = bernstein_limits(unknown_weight @ sizes, float(unknown_weight.max()), log_p)
            low, high = low + more[0], high + more[1]
        least_variance = float(law.counts * square @ law.least_share)
        low = np.clip(low, least_variance, largest) - law.explained_variance(interval_of_f[1])
        high = np.clip(high, least_variance, largest) - law.explained_variance(interval_of_f[0])
    rounding, last_cell = 1e-12 * largest, edges.size - 1
    return (
        np.minimum(np.searchsorted(edges, low - rounding, side="right"), last_cell),
        np.minimum(np.searchsorted(edges, high + rounding, side="right"), last_cell),
        interval_of_f,
    )


def bernstein_limits(total: Floats, unit: float, log_p: float) -> tuple[Floats, Floats]:
    """Return bounds on the mean of a sum of terms in [0, unit], by Bernstein's inequality.

    Parameters
    ----------
    total : ndarray of float64
        The observed sums.
    unit : float
        The largest value of a term.
    log_p : float
        ln of the probability with which each bound fails.
    """
    log_inverse_p, unit_count = -log_p, total / unit
    low = (
        unit_count
        + 2 * log_inverse_p / 3
        - np.sqrt(4 * log_inverse_p**2 / 9 + 2 * log_inverse_p * unit_count)
    )
    return unit * low, unit * (
        unit_count + log_inverse_p + np.sqrt(log_inverse_p**2 + 2 * log_inverse_p * unit_count)
    )


def cell_tilts(law: DifferenceLaw, edges: Floats, log_p: float) -> tuple[Floats, Floats]:
    """Return the cells' tilts, and ln(R / p); a few steps towards the best for a cell's middle.

    For large p, no tilt below 1 / sigma is tried.

    Parameters
    ----------
    law : DifferenceLaw
    edges : ndarray of float64
        Between the cells of tau^2, ascending; one more than cells.
    log_p : float
        ln of the probability p.
    """
    least_variance, largest_variance = edges[:-1], edges[1:]
    cost = np.full_like(least_variance, -log_p)
    for _ in range(3):
        tilt = np.sqrt(np.maximum(2 * cost, 1.0) / np.sqrt(least_variance * largest_variance))
        log_remainders = [log_remainder(law, x, least_variance) for x in law.tilts(tilt)]
        cost = LOG_P_SAFETY - log_p + np.maximum(*log_remainders)
    return tilt, cost


def log_remainder(law: DifferenceLaw, x: Floats, least_variance: Floats) -> Floats:
    """Return ln R for all laws whose tau^2 is at least `least_variance`.

    Parameters
    ----------
    law : DifferenceLaw
    x : ndarray of float64, shape (cells, levels)
    least_variance : ndarray of float64, shape (cells,)
    """
    from scipy.special import erfcx

    tanh, psi, c = np.tanh(x), log_cosh(x), law.contrast
    variance_factor = (1 - tanh) * ((x - psi) / law.coefficient) ** 2 / (1 + c * tanh)
    sd = np.sqrt(variance_factor.min(axis=1) * law.unexplained_share * least_variance)
    xi, zeta = x * tanh - psi, x - psi * tanh
    deviation_up = x + psi + (law.largest_share * xi + c * zeta) / (1 + c * tanh)
    deviation_down = x - psi + c * zeta / (1 - c * tanh)
    max_deviation = np.minimum(2 * x, np.maximum(deviation_up, deviation_down)).max(axis=1)
    positive_sd = np.maximum(sd, 1e-300)
    remainder: Floats = erfcx(math.sqrt(2) * sd) + 2 * BERRY_ESSEEN * max_deviation / positive_sd
    return np.log(np.minimum(remainder, 1.0))
