"""The largest change of an estimate by fabricated reports: Theorems 13 and 14 of laws.md."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from estimators.estimate import Counts, Floats

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

    `values`, shape (k,): the estimate E; `counts`, shape (levels,): the reports in the estimate;
    `reach`: what one report of each level can do; `reports`: m, the number of fabricated reports,
    at levels that the attacker chooses; `among`: whether the fabricated reports are among the
    counted reports; the change is then from the estimate without them to E. Otherwise they are
    added to the counted reports, and the change is from E. The result, of shape (k,), is NaN
    without reports, and infinite if all reports are fabricated.

    Examples
    --------
    >>> signs = Reach(np.ones(1), np.array([-2.0]), np.array([2.0]))
    >>> values, counts = np.zeros(1), np.array([99])
    >>> largest_shifts(values, counts, signs, 1, among=False)  # 2 / 100
    array([0.02])
    >>> largest_shifts(values, counts, signs, 1, among=True).round(6)  # 2 / 98
    array([0.020408])
    """
    if not counts.any():
        return np.full(values.shape, np.nan)
    gain = np.concatenate([reach.highest - values[:, None], values[:, None] - reach.lowest])
    total = float(counts @ reach.weights)
    if among:
        change = _largest_removal(gain, counts, reach.weights, total, reports)
    else:
        weight = reports * reach.weights
        change = (gain * (weight / (total + weight))).max(axis=1)
    return np.asarray(np.maximum(change.reshape(2, -1).max(axis=0), 0.0))


def shift_of_values(
    distance: float, counted: int, reports: int, *, among: bool, share: float = 1.0
) -> float:
    """Return how far fabricated values can move the mean of some values, or of a share of them.

    The result is NaN without values, and infinite if all of them can be fabricated. `distance`: the
    largest distance of a value from the mean; `counted`: the number of counted values; `reports`,
    `among`: as for :func:`largest_shifts`; `share`: the share of the counted values over which the
    mean is taken.
    """
    if not counted:
        return np.nan
    total = counted * share + (-reports if among else reports)
    if not min(share, total) > 0 or (among and reports >= counted):
        return np.inf
    return reports * distance / total


# Theorem 6 of docs/proofs/shares.md
def largest_ratio_shift(
    ratio: float,
    denominator: float,
    counts: Counts,
    weights: Floats,
    scores: Floats,
    reports: int,
    *,
    among: bool,
) -> float:
    """Return the largest change of a share of A among B, in either direction.

    The result is NaN without reports, and infinite if the fabricated reports can make the estimated
    share of B 0. `ratio`, `denominator`: the share, and the estimated share of users in B;
    `counts`, shape (levels,): reports of each level; `weights`, shape (levels,): the weight of one
    report of each level; `scores`, shape (2, levels, kinds): the weighted scores of A, and of B, of
    each kind of report; `reports`, `among`: as for :func:`largest_shifts`.
    """
    if not counts.any():
        return np.nan
    first, base = scores
    total = float(counts @ weights) * denominator
    room = np.maximum((base if among else -base).max(axis=1), 0.0)
    taken = reports * room.max()
    if among and not total > taken:
        taken = _worthiest(room[None], counts, reports)[0] @ room
    if not total > taken or (among and reports >= counts.sum()):
        return np.inf
    gains = np.array([[[1.0]], [[-1.0]]]) * (first - ratio * base)
    sides, levels = np.arange(2)[:, None], np.arange(counts.size)
    change = np.zeros(2)
    for _ in range(MAX_DINKELBACH_STEPS):
        kinds = gains + (change if among else -change)[:, None, None] * base
        best = kinds.argmax(axis=2)
        worth = kinds[sides, levels, best]
        if among:
            moved = _worthiest(worth, counts, reports)
        else:
            moved = reports * (levels == worth.argmax(axis=1)[:, None])
        taken = np.vecdot(moved, base[levels, best])
        next_change = np.vecdot(moved, gains[sides, levels, best])
        next_change /= total - taken if among else total + taken
        if (next_change <= change * (1 + 1e-12)).all():
            break
        change = np.maximum(change, next_change)
    return float(change.max())


def _largest_removal(
    gain: Floats, counts: Counts, weights: Floats, total: float, reports: int
) -> Floats:
    """Return the largest change if `reports` of the counted reports are fabricated; shape (k,)."""
    change = np.zeros(len(gain))
    if reports >= counts.sum():
        return np.full_like(change, np.inf)
    for _ in range(MAX_DINKELBACH_STEPS):
        worth = weights * (gain + change[:, None])
        weight = _worthiest(worth, counts, reports) * weights
        next_change = np.vecdot(weight, gain) / (total - weight.sum(axis=1))
        if (next_change <= change * (1 + 1e-12)).all():
            break
        change = np.maximum(change, next_change)
    return change


def _worthiest(worth: Floats, counts: Counts, reports: int) -> Counts:
    """Return how many reports of each level to choose for the largest total worth.

    At most `reports` are chosen in all, and none whose worth is not above 0. `worth`, shape (k,
    levels): the worth of one report of each level; `counts`: the reports of each level. The result
    has the shape of `worth`.
    """
    rows, order = np.arange(len(worth))[:, None], np.argsort(-worth, axis=1)
    ordered = np.where(worth > 0, counts, 0)[rows, order]
    chosen = np.empty_like(ordered)
    chosen[rows, order] = np.clip(reports - np.cumsum(ordered, axis=1) + ordered, 0, ordered)
    return chosen
