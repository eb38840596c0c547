"""Finds roots of a function of one number, without the 26 MB of `scipy.optimize`."""

from __future__ import annotations

from collections.abc import Callable


def crossing(
    function: Callable[[float], float], start: float, end: float, tolerance: float
) -> float:
    """Return where a continuous function crosses zero, within a tolerance.

    Chandrupatla's method (1997): inverse quadratic interpolation where it is safe, else bisection.

    Parameters
    ----------
    function : callable
        The function of one float.
    start, end : float
        Points at which the function has different signs.
    tolerance : float
        The largest error of the result.

    Examples
    --------
    >>> round(crossing(lambda x: x**3 - 8, 0, 10, 1e-9), 6)
    2.0
    """
    x, y, share = (start, end, start), (function(start), function(end), 0.0), 0.5
    while True:
        point = x[0] + share * (x[1] - x[0])
        value = function(point)
        if (value > 0) == (y[0] > 0):
            x, y = (point, x[1], x[0]), (value, y[1], y[0])
        else:
            x, y = (point, x[0], x[1]), (value, y[0], y[1])
        least_share = tolerance / abs(x[1] - x[0])
        if not value or least_share > 0.5:
            return x[0] if abs(y[0]) < abs(y[1]) else x[1]
        part, rise = (x[0] - x[1]) / (x[2] - x[1]), (y[0] - y[1]) / (y[2] - y[1])
        share = 0.5
        if rise**2 < part and (1 - rise) ** 2 < 1 - part:
            share = y[0] / (y[1] - y[0]) * y[2] / (y[1] - y[2])
            share += (x[2] - x[0]) / (x[1] - x[0]) * y[0] / (y[2] - y[0]) * y[1] / (y[2] - y[1])
        share = min(max(share, least_share), 1 - least_share)
