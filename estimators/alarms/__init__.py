"""Detects, pane by pane, that a metric has moved, with a bound on the rate of false alarms."""

from estimators.alarms.detector import Detector, Step, check_watchable, smallest_shift

__all__ = ["Detector", "Step", "check_watchable", "smallest_shift"]
