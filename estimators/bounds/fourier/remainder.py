"""The factor of a tail below Chernoff's bound, from the modulus of a characteristic function.

The theorems are in docs/proofs/fourier.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from estimators.estimate import Floats

BULK_STEP, BULK_END = 0.05, 6.0
"""The step and the end of the cells where most of the integral is, in units of 1 / (S's tilted
standard deviation)."""
STEP_GROWTH = 0.04  # width of later cells, as a share of tau
MAX_REPORT_STEP = 0.3  # width of cells, in units of 1 / (a report's standard deviation)
LAST_NODE, MAX_NODES = 2_000.0, 400  # the last node, and how many nodes there are at most
CUTOFF_CANDIDATES = 16  # candidates for D
LEAST_INTEGRAND = 1e-260  # below it, a double may be 0, and R would be 0, too
LOG_FACTOR_ROUNDING = 1e-9  # added to ln R: far above the rounding errors of a sum of 400 terms
PAIRED_NODE_STEP = 0.1  # distance of nodes: half of it changes a width by about 0.1%


def frequency_nodes(counts: Floats, variance: Floats, step: float = BULK_STEP) -> Floats:
    """Return nodes tau from 0 on, in the inverse unit of S, shape (..., nodes).

    `counts`, shape (parts,): how many reports of each kind there are; `variance`, shape (...,
    parts): approximate variances of one report of each kind, not all zero in any row; `step`: the
    distance of the first nodes, in units of 1 / (the standard deviation of S under its tilted law).
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
    return relative_nodes[relative_nodes <= LAST_NODE][:node_limit] / sd[..., None]


class Interpolation:
    """Bounds on moduli at all `nodes`, from the moduli at some of them.

    `computed`, shape (some nodes,): ascending, with the first and the last of `nodes`, like the
    frequencies of :func:`log_remainder`.
    """

    def __init__(self, computed: Floats, nodes: Floats) -> None:
        right = np.searchsorted(computed, nodes[1:])
        self._right = np.concatenate([[1], right])
        step = np.diff(computed)[self._right - 1]
        distance = computed[self._right] - nodes
        self._share = distance / step
        self._bend = distance * (step - distance) / 2

    # Theorem 2 of docs/proofs/fourier.md
    def moduli(self, modulus: Floats, variance: Floats) -> Floats:
        """Return bounds on the moduli at all nodes, shape (..., nodes).

        `modulus`, shape (..., some nodes): bounds at the computed nodes; `variance`, shape (...):
        v_l, as in :func:`log_remainder`.
        """
        right = modulus[..., self._right]
        fall = (modulus[..., :-1] - modulus[..., 1:])[..., self._right - 1]
        bounds: Floats = right + self._share * fall + variance[..., None] * self._bend
        return bounds


# Theorem 1 of docs/proofs/fourier.md
def log_remainder(
    tilt: Floats | float, frequencies: Floats, log_modulus: Floats, counts: Floats, variance: Floats
) -> Floats:
    """Return an upper bound on ln R, at most 0, where P(S >= s) <= exp(K(tilt) - tilt s) R.

    `tilt`, shape (...): t, above 0; `frequencies`, shape (..., nodes): tau, ascending from 0. The
    last frequencies are candidates for D; `log_modulus`, shape (..., parts, nodes): ln g_l for one
    report of each kind: an upper bound on ln |E e^((t + i tau) X)|, the same for all data, minus
    the term of K for one report; it is at most 0 at tau = 0; `counts`, shape (..., parts): n_l, how
    many reports of each kind there are; `variance`, shape (..., parts): v_l, at least the variance
    of X under its tilted law, for all data. If `log_modulus` is only a bound on the logarithm of a
    largest modulus, v_l must be so large that g_l + v_l tau^2 / 2 is convex.

    >>> n, t = np.array([100.0]), 0.23  # a hundred normal terms of variance 1
    >>> tau = frequency_nodes(n, np.array([1.0]))
    >>> log_r = log_remainder(t, tau, -tau[None] ** 2 / 2, n, np.array([1.0]))
    >>> exact = 0.1510  # E'[e^(-t U); U >= 0] of a normal U with mean 0
    >>> bool(exact < np.exp(log_r) < 1.12 * exact)
    True
    """
    return Cutoffs(frequencies).log_remainder(tilt, np.exp(log_modulus), counts, variance)


class Cutoffs:
    """Cells between nodes, and the parts of their weights that are the same for every tilt.

    `frequencies`: as for :func:`log_remainder`; `number`: how many candidates for D there are.
    """

    def __init__(self, frequencies: Floats, number: int = CUTOFF_CANDIDATES) -> None:
        count = frequencies.shape[-1]
        cutoff_nodes = np.linspace(count // 4, count - 1, number).astype(np.intp)
        tau, cutoff = frequencies[..., None, :-1], frequencies[..., cutoff_nodes, None]
        step = np.diff(frequencies)[..., None, :]
        share = np.minimum(tau / cutoff, 1.0)
        self._inverse, self._falling, self._sine = 1 / cutoff, 1 - share, np.sin(np.pi * share)
        self._width = np.where(tau < cutoff, 2 / cutoff * step, 0.0)
        self._convexity = step**2 / 8

    def weights(self, tilt: Floats | float) -> Floats:
        """Return the weight of each cell in R for each D, (..., number, nodes - 1)."""
        decay = 2 * np.pi * np.asarray(tilt)[..., None, None] * self._inverse
        return self._width * majorant(decay, self._falling, self._sine)

    def log_remainder(
        self, tilt: Floats | float, modulus: Floats, counts: Floats, variance: Floats
    ) -> Floats:
        """Return :func:`log_remainder` for these frequencies.

        `tilt`, `counts`, `variance`: as for that function; `modulus`: g_l in place of ln g_l.
        """
        log_factors = self.log_factors(self.weights(tilt), modulus, counts, variance)
        least: Floats = np.minimum(log_factors.min(axis=-1), 0.0)
        return least

    # Theorem 2 of docs/proofs/fourier.md
    def log_factors(
        self, weight: Floats, modulus: Floats, counts: Floats, variance: Floats
    ) -> Floats:
        """Return ln R for each D, not yet cut at 0: shape (..., number).

        `weight`, shape (..., number, nodes - 1): from :meth:`weights`; `modulus`, `counts`,
        `variance`: as for :func:`log_remainder`, with g_l in place of ln g_l.
        """
        terms = self.cell_terms(modulus, variance)
        return log_factors_of_cells(weight, [(counts[..., None, :] @ x)[..., 0, :] for x in terms])

    def cell_terms(self, modulus: Floats, variance: Floats) -> Floats:
        """Return a report's four terms in each cell, shape (4, ..., parts, nodes - 1).

        `modulus`, `variance`: as for :meth:`log_factors`. For :func:`log_factors_of_cells`, the
        terms of all reports are added.
        """
        ends = np.stack([modulus[..., :-1], modulus[..., 1:]])
        left, right = np.log(ends + variance[..., None] * self._convexity)
        curvature = np.expm1(np.minimum(np.abs(right - left), 300.0)) ** 2 / 8
        return np.stack([left, right, curvature, np.maximum(left, right)])


def log_factors_of_cells(weight: Floats, sums: Iterable[Floats]) -> Floats:
    """Return ln R for each D, not yet cut at 0: shape (..., number).

    `weight`: from :meth:`Cutoffs.weights`; `sums`: the sums over all reports of the four
    :meth:`Cutoffs.cell_terms`, each of shape (..., nodes - 1).
    """
    log_left, log_right, excess, log_highest = sums
    # exp takes a tenth of the time of logaddexp; an end above 1 makes the chord larger than 1
    left, right = (np.exp(np.minimum(end + excess, 1.0)) for end in (log_left, log_right))
    highest = np.exp(np.minimum(log_highest, 0.0))
    cell_integrals = np.maximum(np.minimum((left + right) / 2, highest), LEAST_INTEGRAND)
    if weight.ndim == 2:
        integrals = cell_integrals @ weight.T
    else:
        integrals = np.vecdot(weight, cell_integrals[..., None, :])
    log_factors: Floats = np.log(integrals) + LOG_FACTOR_ROUNDING
    return log_factors


def majorant(decay: Floats, falling: Floats, sine: Floats) -> Floats:
    """Return b(y) of Theorem 1, for y in [0, 1].

    `decay`: L; `falling`: 1 - y; `sine`: sin(pi y).
    """
    q = np.exp(-decay)
    c = decay * q / -np.expm1(-decay)
    b: Floats = (falling + c / np.pi * sine) / np.sqrt(np.expm1(-decay) ** 2 + 4 * q * sine**2)
    return b


class Pieces(NamedTuple):
    """Bounds on E[e^(z Y) | x] at the knots and between them, for one level.

    `psi`, shape (knots - 1,): from :func:`largest_cumulants`, for the tilt of one report;
    `modulus`, shape (knots - 1, nodes): for all x between two knots, a bound on |E[e^((t + i tau)
    Y) | x]| divided by the bound on E[e^(t Y) | x]; `variance`, shape (knots,): at least the
    variance of Y under the tilted law, in the unit of S squared.
    """

    psi: Floats
    modulus: Floats
    variance: Floats


# Theorem 4 of docs/proofs/fourier.md
def largest_cumulants(tilt: Floats, knots: Floats, grown: Floats) -> Floats:
    """Return the largest ln E[e^(t (Y - x)) | x] between neighbouring knots, (..., knots - 1).

    `tilt`, shape (...): t, above 0; `knots`, shape (..., knots): ascending; `grown`, shape (...,
    knots): E[e^(t Y) | x] - 1 at the knots, or more. The shapes broadcast.
    """
    t, first, last = tilt[..., None], knots[..., :-1], knots[..., 1:]
    left, rise = grown[..., :-1], np.maximum(np.diff(grown), 0) / np.diff(knots)
    with np.errstate(divide="ignore"):
        x = np.clip(first + 1 / t - (1 + left) / rise, first, last)
    largest: Floats = np.log1p(left + rise * (x - first)) - t * x
    return largest


# Theorem 5 of docs/proofs/fourier.md
def log_paired_remainder(
    tilt: float,
    frequencies: Floats,
    counts: Floats,
    shares: Floats,
    levels: Sequence[Pieces],
    number: int = CUTOFF_CANDIDATES,
) -> Floats:
    """Return an upper bound on ln R, at most 0, if K(t) is the sum of n_l times the largest psi_l.

    `tilt`: t, above 0; `frequencies`, shape (nodes,): tau, from :func:`.remainder.frequency_nodes`;
    `counts`, `shares`, shape (..., levels): n_l, and 1 / p_l: above zero, with sum 1. Shares of the
    variance are best; `levels`: the bounds of each level; `number`: how many candidates for D there
    are.
    """
    cutoffs = Cutoffs(frequencies, number)
    weight = cutoffs.weights(tilt)
    log_total = np.zeros((*counts.shape[:-1], len(weight)))
    for level, (psi, modulus, variance) in enumerate(levels):
        n, share = (x[..., level, None, None] for x in (counts, shares))
        spread = np.maximum(variance[:-1], variance[1:])[:, None]
        factors = cutoffs.log_factors(weight, modulus[:, None], n / share, spread)
        pieces = n * psi[:, None] + share * factors
        log_total += pieces.max(axis=-2) - n[..., 0] * psi.max()
    least: Floats = np.minimum(log_total.min(axis=-1), 0.0)
    return least
