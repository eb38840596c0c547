"""How many collisions a string can have in rows of hashed points.

A report of a level supports v with probability q + (p - q)(f + (1 - f) c): f is the frequency of v,
and c the share of the others who hold a string with the same point as v in their row. Let a_x be
the share of the level's t rows in which x has v's point, one of K: 1/t Bin(t, 1/K), over the
hashes. c is a weighted mean of the a_x, and the weights do not depend on the hashes.

**At most.** By Jensen's inequality E e^(z c) is at most the weighted mean of the E e^(z a_x), which
are all the same; so the worst data is one other string. By Markov's inequality P(c > B) <= p with

    B = min over u > 0 of [t ln(1 + (e^u - 1) / K) - ln p] / (t u).

(A second proof, without the convexity of the mean: by Hoelder's inequality E prod e^(z w_x a_x) <=
prod (E e^(z a_x))^(w_x), which is E e^(z a) again.)

**At least.** The same holds for negative z: P(c < b) <= p with

    b = max over u > 0 of [ln p - t ln(1 + (e^(-u) - 1) / K)] / (t u), or 0 if that is negative.

It is above 0 where t is large beside K ln(1 / p).

**Several levels** have rows of their own, so c differs between them, and there is no common mean f
+ (1 - f) c. But given the hashes, a coin of a report is no likelier than the coin of a level with c
= B, and no less likely than that with c = b. Both have a law that f alone determines, with q
replaced by q + (p - q) B or q + (p - q) b. A lower limit for f in the first law holds for the
reports, because their sum is at most the sum of its coins (coupled, report by report); an upper
limit in the second law likewise.
"""

from __future__ import annotations

import functools
import math

import numpy as np

_RELATIVE_TILTS = np.geomspace(2.0**-12, 2.0**6, 1000)

HashTable = tuple[int, int]
"""The rows and the points of a row, t and K, of one level."""


@functools.lru_cache(maxsize=1024)
def max_collision_share(rows: int, points: int, log_p: float) -> float:
    """Return B, at most 1: c is larger with probability at most p.

    Parameters
    ----------
    rows, points : int
        t and K.
    log_p : float
        ln p.

    Examples
    --------
    >>> round(most_collisions(1024, 364, np.log(0.025)) - 1 / 364, 4)
    0.0055
    """
    cumulant = rows * np.log1p(np.expm1(_RELATIVE_TILTS) / points)
    return min(1.0, float(((cumulant - log_p) / (rows * _RELATIVE_TILTS)).min()))


@functools.lru_cache(maxsize=1024)
def min_collision_share(rows: int, points: int, log_p: float) -> float:
    """Return b, at least 0: c is smaller with probability at most p.

    Parameters
    ----------
    rows, points : int
        t and K.
    log_p : float
        ln p.

    Examples
    --------
    >>> round(1 / 80 - least_collisions(4659, 80, np.log(0.025)), 4)
    0.0042
    >>> least_collisions(1024, 364, np.log(0.025))
    0.0
    """
    cumulant = rows * np.log1p(np.expm1(-_RELATIVE_TILTS) / points)
    return max(0.0, float(((log_p - cumulant) / (rows * _RELATIVE_TILTS)).max()))


def collision_log_p(log_p: float, levels: int) -> float:
    """Return ln p of one level's collisions: half of p is for collisions, at some level.

    Parameters
    ----------
    log_p : float
        ln p, the failure probability of one side.
    levels : int
        How many there are in use. For all times at once: how many there are, because any may come
        into use.
    """
    return log_p - math.log(2 * levels)
