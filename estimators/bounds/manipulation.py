"""The largest change of an estimate by fabricated reports: Theorems 13 and 14 of laws.md."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.estimate import Counts, Floats

MAX_DINKELBACH_STEPS = 100
"""Of a search that takes a handful."""


@dataclasses.dataclass(frozen=True)
class Influence:
    """The largest change of an estimate by some fabricated reports, in the metric's unit.

    Attributes
    ----------
    reports : int
        The number of fabricated reports.
    shift : float or ndarray of shape (categories,) or (dimension,)
        The largest change of each number, up or down.
    largest : float
        The largest over all numbers: the l_inf norm of the change.
    l2 : float or None
        For a vector: the l2 norm.
    without_privacy : float
        The same as `largest`, if reports were true values with equal weights.
    """

    reports: int
    shift: float | Floats
    largest: float
    l2: float | None
    without_privacy: float


class Reach(NamedTuple):
    """The weight of one report of each level, and the range of numbers that it can represent."""

    weights: Floats
    lowest: Floats
    highest: Floats


# Theorems 13 and 14 of docs/proofs/laws.md
def largest_shifts(
    values: Floats, counts: Counts, reach: Reach, reports: int, *, among: bool
) -> Floats:
    """Return the largest change of each of an estimate's numbers, in either direction.

    Parameters
    ----------
    values : ndarray of float64, shape (k,)
        The estimate E.
    counts : ndarray of int64, shape (levels,)
        The reports in the estimate.
    reach : Reach
    reports : int
        m; an attacker chooses their levels, too.
    among : bool
        True: they are among the counted reports, and the change is from the estimate without them
        to E. False: they are added to the counted reports, and the change is from E.

    Returns
    -------
    ndarray of float64, shape (k,)
        NaN without reports; infinite if no other report is left.

    Examples
    --------
    >>> signs = Reach(np.ones(1), np.array([-2.0]), np.array([2.0]))
    >>> values, counts = np.zeros(1), np.array([99])
    >>> largest_shifts(values, counts, signs, 1, among=False)  # 2 / 100
    array([0.02])
    >>> largest_shifts(values, counts, signs, 1, among=True).round(6)  # 2 / 98
    array([0.020408])
    """
    total = float(counts @ reach.weights)
    if not counts.any():
        return np.full(values.shape, np.nan)
    shifts = np.zeros(values.shape)
    for gain in (reach.highest - values[:, None], values[:, None] - reach.lowest):
        if among:
            change = _largest_removal(gain, counts, reach.weights, total, reports)
        else:
            weight = reports * reach.weights
            change = (gain * (weight / (total + weight))).max(axis=1)
        shifts = np.maximum(shifts, change)
    return shifts


def _largest_removal(
    gain: Floats, counts: Counts, weights: Floats, total: float, reports: int
) -> Floats:
    """Return the largest change by `reports` of the counted ones; shape (k,)."""
    if reports >= counts.sum():
        return np.full(len(gain), np.inf)
    change = np.zeros(len(gain))
    for _ in range(MAX_DINKELBACH_STEPS):
        worth = weights * (gain + change[:, None])
        order = np.argsort(-worth, axis=1)
        ordered_counts: NDArray[np.int64] = counts[order]
        preceding = np.cumsum(ordered_counts, axis=1) - ordered_counts
        removed = np.clip(reports - preceding, 0, ordered_counts)
        removed[np.take_along_axis(worth, order, axis=1) <= 0] = 0
        weight = removed * weights[order]
        ordered_gain = np.take_along_axis(gain, order, axis=1)
        next_change = (weight * ordered_gain).sum(axis=1) / (total - weight.sum(axis=1))
        if (next_change <= change * (1 + 1e-12)).all():
            break
        change = np.maximum(change, next_change)
    return change
