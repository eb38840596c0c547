"""How far reports that somebody made up can move an estimate.

An estimate is a weighted mean: of numbers c_i that the reports stand for (for each category or
coordinate), with weights w_i that are public and the same for all reports of a level,

    E = sum w_i c_i / W,  W = sum w_i.

A report of level l stands for a number between `low_l` and `high_l`, whoever made it: what lies
outside is refused on the wire. Noise makes that range far wider than the values', which is why
lies weigh more under local privacy. Source: Cheu, Smith and Ullman, "Manipulation attacks in local
differential privacy" (2021).
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.estimate import Counts, Floats

MOST_STEPS = 100
"""Of a search that takes a handful."""


@dataclasses.dataclass(frozen=True)
class Influence:
    """How far some reports can move an estimate, in the metric's unit.

    Attributes
    ----------
    reports : int
        How many are lies.
    shift : float or ndarray of shape (categories,) or (dimension,)
        The largest change of each number, up or down.
    largest : float
        Of all numbers: the l_inf norm of the change.
    l2 : float or None
        Of a vector: the l2 norm.
    without_privacy : float
        The same as `largest`, if reports were true values that all count alike.
    """

    reports: int
    shift: float | Floats
    largest: float
    l2: float | None
    without_privacy: float


class Reach(NamedTuple):
    """What one report of each level can stand for.

    Attributes
    ----------
    weights : ndarray of float64, shape (levels,)
        Of one report.
    lowest, highest : ndarray of float64, shape (levels,)
    """

    weights: Floats
    lowest: Floats
    highest: Floats


def largest_shifts(
    values: Floats, counts: Counts, reach: Reach, reports: int, *, among: bool
) -> Floats:
    """Return the largest change of each of an estimate's numbers, in either direction.

    Parameters
    ----------
    values : ndarray of float64, shape (k,)
        The estimate E.
    counts : ndarray of int64, shape (levels,)
        The reports that it rests on.
    reach : Reach
    reports : int
        m: whoever makes them up chooses their levels, too.
    among : bool
        True: they are among those counted, and the change is from the estimate without them to E.
        False: they are added to those counted, and the change is from E.

    Returns
    -------
    ndarray of float64, shape (k,)
        Not a number where nothing is counted; infinite where no other report is left.

    Notes
    -----
    **Added.** With m_l more reports at level l that stand for c_j, the estimate moves by

        sum_j w_j (c_j - E) / (W + sum_j w_j) <= sum_l m_l w_l d_l / (W + sum_l m_l w_l)

    where d_l = `high_l` - E (or E - `low_l`, downwards). A ratio of linear functions, with a
    positive denominator, is largest at a corner of {m_l >= 0, sum m_l <= m}: all m at one level, or
    none. There it is m w_l d_l / (W + m w_l), and m alike reports attain it. (So m reports do less
    than m times what one does: their weight is in the denominator.)

    **Among.** Without the lies J the estimate was (W E - sum_J w_j c_j) / (W - sum_J w_j), so that
    the change is

        sum_J w_j (c_j - E) / (W - sum_J w_j) <= sum_l m_l w_l d_l / (W - sum_l m_l w_l)

    with m_l of them at level l, at most as many as were counted there. Its largest value over all
    such m is the x at which max_m sum_l m_l w_l (d_l + x) = x W (Dinkelbach, 1967): the left side
    is reached by filling the levels in the order of w_l (d_l + x). It is attained if the reports of
    these levels do say so.

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
    moved = np.zeros(values.shape)
    for gain in (reach.highest - values[:, None], values[:, None] - reach.lowest):
        if among:
            found = _taken_away(gain, counts, reach.weights, total, reports)
        else:
            weight = reports * reach.weights
            found = (gain * (weight / (total + weight))).max(axis=1)
        moved = np.maximum(moved, found)
    return moved


def _taken_away(
    gain: Floats, counts: Counts, weights: Floats, total: float, reports: int
) -> Floats:
    """Return the largest change by `reports` of those counted; shape (k,)."""
    if reports >= counts.sum():
        return np.full(len(gain), np.inf)
    change = np.zeros(len(gain))
    for _ in range(MOST_STEPS):
        worth = weights * (gain + change[:, None])
        order = np.argsort(-worth, axis=1)
        there: NDArray[np.int64] = counts[order]
        before = np.cumsum(there, axis=1) - there
        taken = np.clip(reports - before, 0, there)
        taken[np.take_along_axis(worth, order, axis=1) <= 0] = 0
        weight = taken * weights[order]
        own = np.take_along_axis(gain, order, axis=1)
        found = (weight * own).sum(axis=1) / (total - weight.sum(axis=1))
        if (found <= change * (1 + 1e-12)).all():
            break
        change = np.maximum(change, found)
    return change
