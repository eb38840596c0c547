"""Which moves an alarm would have seen by now."""

from __future__ import annotations

import math

from estimators.alarms.detector import Detector

POWER_Z = 1.2816
"""The 90% quantile of the normal law."""


def smallest_shift(detector: Detector, panes: int) -> float | None:
    """Return about how large a move has to be to be seen within so many panes, with 90%.

    By the normal law: a bet at the right shift x gains n V x^2 / 2 in n panes, give or take x
    sqrt(n V); it has to reach what an alarm needs, and what the mixture over shifts and the
    baseline cost. The baseline's own error adds to that of the panes.

    Parameters
    ----------
    detector : Detector
    panes : int
        Panes like the last one, all after the move.

    Returns
    -------
    float or None
        In the metric's unit; None before the first pane with evidence.
    """
    if detector.precision is None or panes < 1:
        return None
    known = detector.baseline_precision
    total = panes * detector.precision
    if known is not None:
        total = 1 / (1 / total + 1 / known)
    cost = detector.needed + math.log(detector.bets)
    if known is not None:
        cost += math.log(10.0)
    reached = (POWER_Z + math.sqrt(POWER_Z**2 + 2 * cost)) / math.sqrt(total)
    return detector.scale * reached + detector.least
