"""The largest change of an estimate by fabricated reports: Theorems 13 and 14 of laws.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from estimators.estimate import Counts, Floats, Integers

MAX_DINKELBACH_STEPS = 100
"""The most steps of a search, which usually takes fewer than ten."""


@dataclasses.dataclass(frozen=True)
class Influence:
    """The largest change of an estimate by some fabricated reports, in the metric's unit.

    `reports`: the number of fabricated reports; `shift`, shape (categories,) or (dimension,): the
    largest change of each number, up or down; `largest`: the largest change of all numbers, the
    l_inf norm; `l2`: for a vector, the largest l2 norm of the change; otherwise None;
    `without_privacy`: what `largest` would be if reports were true values with equal weights.
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
        m, the number of fabricated reports, at levels that the attacker chooses.
    among : bool
        Whether they are among the counted reports; the change is then from the estimate without
        them to E. Otherwise they are added to the counted reports, and the change is from E.

    Returns
    -------
    ndarray of float64, shape (k,)
        NaN without reports; infinite if all reports are fabricated.

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


# Theorem 6 of docs/proofs/shares.md
def largest_ratio_shift(
    ratio: float,
    denominator: float,
    counts: Counts,
    weights: Floats,
    scores: Sequence[Floats],
    reports: int,
    *,
    among: bool,
) -> float:
    """Return the largest change of a share of A among B, in either direction.

    It is infinite if with the fabricated reports the estimated share of B may be 0. `ratio`,
    `denominator`: the share, and the estimated share of users in B; `counts`, shape (levels,):
    reports of each level; `weights`, shape (levels,): the weight of one report of each level;
    `scores`, shape (kinds, 2): the scores of A and of B of each possible report of a level;
    `reports`, `among`: as for :func:`largest_shifts`.
    """
    if not counts.any():
        return np.nan
    total = float(counts @ weights) * denominator
    bases = [weight * level[:, 1] for weight, level in zip(weights, scores, strict=True)]
    room = np.array([max(x.max() if among else -x.min(), 0.0) for x in bases])
    remaining = total - reports * room.max()
    if among:
        remaining = total - _largest_sum(room, counts, reports)[0]
    if not remaining > 0 or (among and reports >= counts.sum()):
        return np.inf
    largest = 0.0
    for sign in (1, -1):
        gains = [
            sign * weight * (level[:, 0] - ratio * level[:, 1])
            for weight, level in zip(weights, scores, strict=True)
        ]
        change = 0.0
        for _ in range(MAX_DINKELBACH_STEPS):
            moved = change if among else -change
            kinds = [int((x + moved * y).argmax()) for x, y in zip(gains, bases, strict=True)]
            worth = np.array(
                [(x + moved * y)[kind] for x, y, kind in zip(gains, bases, kinds, strict=True)]
            )
            removed = (
                _largest_sum(worth, counts, reports)[1]
                if among
                else np.where(np.arange(worth.size) == worth.argmax(), reports, 0)
            )
            gain = float(removed @ [x[kind] for x, kind in zip(gains, kinds, strict=True)])
            base = float(removed @ [y[kind] for y, kind in zip(bases, kinds, strict=True)])
            next_change = gain / (total - base if among else total + base)
            if next_change <= change * (1 + 1e-12):
                break
            change = next_change
        largest = max(largest, change)
    return largest


def _largest_sum(worth: Floats, counts: Counts, reports: int) -> tuple[float, Counts]:
    """Return the largest total worth of at most `reports` counted reports, and their levels."""
    removed, left = np.zeros_like(counts), reports
    for level in np.argsort(-worth).tolist():
        if worth[level] > 0:
            removed[level] = min(left, counts[level])
            left -= removed[level]
    return float(removed @ worth), removed


def _largest_removal(
    gain: Floats, counts: Counts, weights: Floats, total: float, reports: int
) -> Floats:
    """Return the largest change if `reports` of the counted reports are fabricated; shape (k,)."""
    if reports >= counts.sum():
        return np.full(len(gain), np.inf)
    change = np.zeros(len(gain))
    for _ in range(MAX_DINKELBACH_STEPS):
        worth = weights * (gain + change[:, None])
        order = np.argsort(-worth, axis=1)
        ordered_counts: Integers = counts[order]
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
