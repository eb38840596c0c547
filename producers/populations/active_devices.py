"""Simulates devices that report once per window whether they were active."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from producers.populations.population import Column, Population


def report_activity(
    name: str, time_ms: NDArray[np.int64], devices: Column, window_ms: int
) -> Population:
    """Return a population that reports whether each device was active in each window.

    A device that runs ``RollUp(reporter, "active", window)`` all the time reports the same.

    Parameters
    ----------
    name : str
        The metric's name.
    time_ms : ndarray of int64, shape (n,)
        Times of activity, in milliseconds since the epoch.
    devices : ndarray of object, shape (n,)
        The active device at each time; "" if unknown.
    window_ms : int
        The length of a window, in milliseconds. Windows begin at multiples of it.

    Returns
    -------
    Population
        One row per device and window, at the window's last millisecond: 1 or 0.

    Examples
    --------
    >>> population = report_activity("on", np.array([5, 7, 25]), np.array(["a", "a", "b"]), 10)
    >>> population.time_ms, population.columns["on"]
    (array([ 9,  9, 19, 19, 29, 29]), array([1., 0., 0., 0., 0., 1.]))
    """
    is_identified = devices != ""
    index_by_device: dict[str, int] = {}  # sorting text would take ten times as long
    device_index = np.array(
        [
            index_by_device.setdefault(device_name, len(index_by_device))
            for device_name in devices[is_identified].tolist()
        ]
    )
    window = time_ms[is_identified] // window_ms
    first = window.min()
    active = np.zeros((window.max() - first + 1, len(index_by_device)))
    active[window - first, device_index] = 1
    ends = (first + np.arange(1, len(active) + 1)) * window_ms - 1
    return Population(np.repeat(ends, active.shape[1]), {name: active.ravel()})
