"""What devices report whose `RollUp` gathers whether they were active, a window at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from producers.populations.population import Column, Population


def report_activity(
    name: str, time_ms: NDArray[np.int64], devices: Column, window_ms: int
) -> Population:
    """Return one report of each device for each window: whether it was active in it.

    It is what ``RollUp(reporter, "active", window)`` reports on each device, if it is on from the
    first window to the last one.

    Parameters
    ----------
    name : str
        Of the metric.
    time_ms : ndarray of int64, shape (n,)
        When a device was active, in milliseconds since the epoch.
    devices : ndarray of object, shape (n,)
        Which one it was; "": nobody knows.
    window_ms : int
        The length of a window, in milliseconds. Windows begin at multiples of it.

    Returns
    -------
    Population
        One row a device and window, at the last millisecond of the window: 1 or 0.

    Examples
    --------
    >>> found = report_activity("on", np.array([5, 7, 25]), np.array(["a", "a", "b"]), 10)
    >>> found.time_ms, found.columns["on"]
    (array([ 9,  9, 19, 19, 29, 29]), array([1., 0., 0., 0., 0., 1.]))
    """
    known = devices != ""
    numbers: dict[str, int] = {}  # sorting text would take ten times as long
    device = np.array([numbers.setdefault(one, len(numbers)) for one in devices[known].tolist()])
    window = time_ms[known] // window_ms
    first = window.min()
    active = np.zeros((window.max() - first + 1, len(numbers)))
    active[window - first, device] = 1
    ends = (first + np.arange(1, len(active) + 1)) * window_ms - 1
    return Population(np.repeat(ends, active.shape[1]), {name: active.ravel()})
