"""The collisions of a string in hashed rows: Theorems 11 to 13 of docs/proofs/differences.md."""

from __future__ import annotations

import functools
import math

import numpy as np

_RELATIVE_TILTS = np.geomspace(2.0**-12, 2.0**6, 1000)

HashTable = tuple[int, int]
"""The rows and the points of a row, t and K, of one level."""


# Theorem 11 of docs/proofs/differences.md
@functools.lru_cache(maxsize=1024)
def max_collision_share(rows: int, points: int, log_p: float) -> float:
    """Return B, at most 1: c is larger with probability at most p.

    Parameters
    ----------
    rows, points : int
        t and K.
    log_p : float

    Examples
    --------
    >>> round(max_collision_share(1024, 364, np.log(0.025)) - 1 / 364, 4)
    0.0055
    """
    cumulant = rows * np.log1p(np.expm1(_RELATIVE_TILTS) / points)
    return min(1.0, float(((cumulant - log_p) / (rows * _RELATIVE_TILTS)).min()))


# Theorem 12 of docs/proofs/differences.md
@functools.lru_cache(maxsize=1024)
def min_collision_share(rows: int, points: int, log_p: float) -> float:
    """Return b, at least 0: c is smaller with probability at most p.

    It is above 0 where t is large beside K ln(1 / p); parameters are as in
    :func:`max_collision_share`.

    Examples
    --------
    >>> round(1 / 80 - min_collision_share(4659, 80, np.log(0.025)), 4)
    0.0042
    >>> min_collision_share(1024, 364, np.log(0.025))
    0.0
    """
    cumulant = rows * np.log1p(np.expm1(-_RELATIVE_TILTS) / points)
    return max(0.0, float(((log_p - cumulant) / (rows * _RELATIVE_TILTS)).max()))


# Theorem 13 of docs/proofs/differences.md
def collision_log_p(log_p: float, levels: int) -> float:
    """Return ln p of one level's collisions: half of p is for collisions, at some level.

    For all times at once `levels` is the number of all levels, because any may come into use.
    """
    return log_p - math.log(2 * levels)
