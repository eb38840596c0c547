r"""What hash collisions can add to an estimate from a count sketch: a bound over the hashes.

The sketch has t rows with independent, uniform bucket hashes g_j into M buckets and sign hashes
h_j, which were fixed before the data and do not depend on it. An estimate of the frequency f of the
value v has mean f + b,

    b = sum over x != v of f_x a_x,    a_x = 1/t sum over j of h_j(v) h_j(x) 1[g_j(x) = g_j(v)].

**The worst data** is one other value that all others hold. The weights f_x / (1 - f) of the sum b /
(1 - f) are at least 0 and sum to 1, so by Jensen's inequality E exp(z b / (1 - f)) is at most the
weighted mean of the E exp(z a_x), which are all the same: a term of a_x is zero with probability 1
- 1/M and else +-1/t with equal chances, independently of the others:

    E exp(z a_x) = (1 + (cosh(z/t) - 1) / M)^t.

By Markov's inequality P(b > (1 - f) B) <= p with B = min over z of [t ln(1 + (cosh(z/t) - 1) / M) +
ln(1/p)] / z, and as much on the other side. The variance of b is sum f_x^2 / (t M) for any data:
where nobody holds much, b is far below B.
"""

from __future__ import annotations

import functools

import numpy as np

_TILTS = np.geomspace(2.0**-12, 2.0**6, 1000)  # z / t, 1.3% apart


@functools.lru_cache(maxsize=256)
def collision_bound(rows: int, buckets: int, log_p: float) -> float:
    """Return B: the chance that b exceeds (1 - f) B is at most p. At most 1, as b is.

    Parameters
    ----------
    rows, buckets : int
        t and M.
    log_p : float
        ln p.

    Examples
    --------
    >>> round(collision_bound(512, 64, np.log(0.025)), 4)
    0.0155
    """
    cumulant = rows * np.log1p((np.cosh(_TILTS) - 1) / buckets)
    return min(1.0, float(((cumulant - log_p) / (rows * _TILTS)).min()))
