"""The remainder if a report's law depends on an unknown number, between known knots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from estimators.bounds.fourier.remainder import cutoff_weights, log_cutoff_factors
from estimators.estimate import Floats

PAIRED_NODE_STEP = 0.1  # between nodes: half as wide ones change a width by some 0.1%


class Pieces(NamedTuple):
    """What is known of E[e^(z Y) | x] at the knots, for one level.

    Attributes
    ----------
    psi : ndarray of float64, shape (knots - 1,)
        From :func:`largest_cumulants`, for the tilt of one report.
    log_modulus : ndarray of float64, shape (knots - 1, nodes)
        For all x between two knots, a bound on ln |E[e^((t + i tau) Y) | x]| less the line's ln.
    variance : ndarray of float64, shape (knots,)
        At least the variance of Y under the tilted law, in the unit of S squared.
    """

    psi: Floats
    log_modulus: Floats
    variance: Floats


# Theorem 4 of docs/proofs/fourier.md
def largest_cumulants(tilt: Floats, knots: Floats, grown: Floats) -> Floats:
    """Return the largest ln E[e^(t (Y - x)) | x] between each two knots, shape (k, knots - 1).

    Parameters
    ----------
    tilt : ndarray of float64, shape (k,)
    knots : ndarray of float64, shape (knots,)
        Ascending.
    grown : ndarray of float64, shape (k, knots)
        E[e^(t Y) | x] - 1 at the knots, or more.
    """
    t = tilt[:, None]
    left, rise = grown[:, :-1], np.maximum(np.diff(grown), 0) / np.diff(knots)
    with np.errstate(divide="ignore"):
        x = np.clip(knots[:-1] + 1 / t - (1 + left) / rise, knots[:-1], knots[1:])
    return np.log1p(left + rise * (x - knots[:-1])) - t * x


# Theorem 5 of docs/proofs/fourier.md
def log_paired_remainder(
    tilt: float, frequencies: Floats, counts: Floats, shares: Floats, levels: Sequence[Pieces]
) -> float:
    """Bound ln R, at most 0, less the sum of n_l times the largest psi_l.

    Parameters
    ----------
    tilt : float
    frequencies : ndarray of float64, shape (nodes,)
        tau, from :func:`.remainder.frequency_nodes`.
    counts, shares : ndarray of float64, shape (levels,)
        n_l, and 1 / p_l: above zero, with sum 1. Shares of the variance are best.
    levels : sequence of Pieces
    """
    weight = cutoff_weights(tilt, frequencies)
    log_total = np.zeros(len(weight))
    for n, share, (psi, log_modulus, variance) in zip(counts, shares, levels, strict=True):
        spread = np.maximum(variance[:-1], variance[1:])[:, None]
        factors = log_cutoff_factors(
            frequencies, log_modulus[:, None], np.array([n / share]), spread, weight
        )
        pieces = n * psi[:, None] + share * factors
        log_total += pieces.max(axis=0) - n * psi.max()
    return min(float(log_total.min()), 0.0)
