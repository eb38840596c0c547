"""Has a metric moved? Evidence that grows pane by pane, with a promise about false alarms."""

from estimators.alarms.detector import Detector, Step, smallest_shift
from estimators.alarms.watchable import check_watchable

__all__ = ["Detector", "Step", "check_watchable", "smallest_shift"]
