"""The size of a move that an alarm would have detected by now."""

from __future__ import annotations

import math

from estimators.alarms.detector import BASELINE_TILTS, Detector

POWER_Z = 1.2816
"""The 90% quantile of the normal law."""
BASELINE_BETS = 2 * BASELINE_TILTS.size


def smallest_shift(detector: Detector, panes: int | None = None) -> float | None:
    """Return the move detected within some panes with a probability of about 90%.

    Parameters
    ----------
    detector : Detector
    panes : int, optional
        How many panes like the last one with evidence follow the move. By default, the panes since
        the last alarm or the start; at least one.

    Returns
    -------
    float or None
        In the metric's unit; None before the first pane with evidence, or if it exceeds the range.

    Notes
    -----
    By the normal law: a bet on the shift x gains P (x delta - x^2 / 2) at a move of delta, give or
    take x sqrt(P), P the precision of the panes or of their difference from the baseline. In
    simulations, 84% to 99% of such moves are seen.
    """
    if detector.precision is None or detector.tilts is None or (panes is not None and panes < 1):
        return None
    cost, precision = detector.needed + math.log(detector.bets), (panes or 1) * detector.precision
    if panes is None:
        precision = max(precision, detector.gathered)
    if detector.baseline_precision is not None:
        precision = 1 / (1 / precision + 1 / detector.baseline_precision)
        cost += math.log(BASELINE_BETS)
    shifts = detector.tilts / detector.precision
    reached = shifts / 2 + cost / (precision * shifts) + POWER_Z / math.sqrt(precision)
    low, high = detector.metric.domain.ends
    shift = detector.scale * float(reached.min()) + detector.least
    return shift if shift <= high - low else None
