"""Evidence as a function of the unknown baseline theta: log-convex, bounded below by tangents."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from estimators.alarms.panes import EValues
from estimators.estimate import Bools, Floats

FINE_WIDTH, FINE_STEPS = 0.75, 10
"""The distance of points near the baseline, in its standard errors, and how many there are on each
side. Beyond them each step is twice the last. Steps half as wide shorten delays by at most 2%."""


class Lowest(NamedTuple):
    """A lower bound on a function, and the index of a point next to its minimum."""

    value: float
    point: int


def points_around(middle: float, error: float) -> Floats:
    """Return points that cover [-1, 1], densely around `middle`, which is one of them.

    `middle`: in [-1, 1]; `error`: the standard error there.

    >>> points_around(0.0, 1.0)
    array([-1.  , -0.75,  0.  ,  0.75,  1.  ])
    """
    steps = [FINE_WIDTH * error] * FINE_STEPS
    while sum(steps) < 2:
        steps.append(2 * steps[-1])
    away = np.cumsum(steps)
    points = np.concatenate([middle - away, [middle], middle + away])
    return np.unique(np.concatenate([points[(points > -1) & (points < 1)], [-1.0, middle, 1.0]]))


def mixed(log: Floats, slope: Floats) -> tuple[Floats, Floats]:
    """Return the logarithm of the mean of all terms at each point, and its slope.

    `log`, `slope`, shape (points, terms): the logarithms of the terms, at least one of them finite
    at each point, and their slopes.
    """
    peak = log.max(axis=1, keepdims=True)
    share = np.exp(log - peak)
    total = share.sum(axis=1)
    return peak[:, 0] + np.log(total / log.shape[1]), (share * slope).sum(axis=1) / total


def update_bets(previous: EValues, pane: EValues, begins: Bools) -> EValues:
    """Return ln of the new M = (M + 1) L for each bet, and its slope.

    `previous`: ln M, where M is the evidence of a bet before the pane; `pane`: ln L, where L is the
    pane's e-value; `begins`, shape (tilts,): if False, the new M is M L.
    """
    grown = np.logaddexp(previous.log, np.where(begins, 0.0, -np.inf))
    carried = np.exp(previous.log - np.maximum(grown, -np.finfo(np.float64).max))
    return EValues(grown + pane.log, carried * previous.slope + pane.slope)


def lowest(points: Floats, value: Floats, slope: Floats) -> Lowest:
    """Return a lower bound on a function from tangents that lie below it.

    The maximum of the tangents is least at a point, or where the tangents at two neighbouring
    points meet. `points`, shape (points,): ascending; the range of the function goes from the first
    to the last; `value`, `slope`, shape (points,): the tangents.

    >>> lowest(np.array([-1.0, 1.0, 3.0]), np.array([1.0, 1.0, 9.0]), np.array([-2.0, 2.0, 6.0]))
    Lowest(value=-1.0, point=0)
    """
    if points.size > 1:
        width, bend = np.diff(points), np.diff(slope)
        meet = np.divide(
            value[:-1] - value[1:] + slope[1:] * width,
            bend,
            out=np.zeros_like(bend),
            where=bend > 0,
        ).clip(0.0, width)
        left, right = value[:-1] + slope[:-1] * meet, value[1:] + slope[1:] * (meet - width)
        between = np.maximum(left, right)
        cell = int(between.argmin())
        if between[cell] < value.min():
            return Lowest(float(between[cell]), cell)
    at = int(value.argmin())
    return Lowest(float(value[at]), at)
