"""Has a metric moved? Evidence that grows pane by pane, with a promise about false alarms."""

from estimators.alarms.detector import Detector, Step, check_watchable, smallest_shift

__all__ = ["Detector", "Step", "check_watchable", "smallest_shift"]
