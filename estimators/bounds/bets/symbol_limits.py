r"""Bounds on a mean from counts of symbols: at all times, and near the normal width for a fixed n.

:class:`.symbol_bets.SymbolBets` has the bets, with gain W and K(theta) >= ln E e^W.

**All times.** With the fixed tilts and weights pi_k of :mod:`estimators.bounds.anytime`, sum pi_k
e^(W_k - K_k(theta)) is at most a supermartingale that starts at 1, so it reaches 1/p at any time
with probability at most p (Ville). Tilts that are too steep are left out.

**A fixed number of reports.** One tilt t. With the law P' of density e^(W - K), K exact,

    P(W >= K + x0) = e^-x0 E'[e^-(W - K - x0); W >= K + x0] <= e^-x0 R,

and theta is rejected if W - K(theta) >= ln(R / p). R is the least of three.

1. One (Markov).
2. The remainder of Graham and Vaaler (:mod:`estimators.bounds.fourier.remainder`) for W at tilt 1.
   Given a knot x, E e^((1 + i tau) w) / (1 + t s x) is known; mixtures of knots have a ratio below
   the largest one. It holds whatever the users' values are.
3. Berry and Esseen's (:mod:`estimators.bounds.differences`): erfcx(sqrt(2 v)) + 1.12 r / v^1.5 with
   the variance v and the third moment r of the tilted law. Let u = 1 + t s theta and p = 1 + t s Y,
   so that w = ln p has weight p / u under P', and let ln q = E' w. By Jensen's inequality q is in
   [u, u + t^2 s^2 sigma^2 / u], sigma^2 = Var Y. With the logarithmic mean L(p, q) = (p - q) / ln(p
   / q), Var' w = E p (p - q)^2 / (L^2 u) >= t^2 s^2 sigma^2 min p / (L^2 u), where L grows with q.
   And r <= v max |w - ln q|.

**Cells.** The best t, and v, depend on tau^2 = sum n s^2 E Y^2 - e(theta), where e is what K
accounts for: theta^2 sum n s^2 with one mean, so that tau^2 is the variance of the estimate, and
theta^2 / n with free means. The
range of tau^2 is cut into cells that counts and public constants fix, each with its t and R. (With
one mean, R also depends on the bin of theta that is tested.) The limits shown are the widest over
all cells that an interval for tau^2 meets. It comes from four statements that fail with a share d
of p each, so each side fails with probability at most p: two are limits of the mixture above, and
two are bets again. For a fixed a, let m_l = s_l a with one mean, m = a / n with free means. Then M
= sum E (s Y - m)^2 = tau^2 + (theta - a)^2 w, w = sum n s^2 or 1 / n. With Z = (s Y - m)^2, E prod
(1 +- z Z_i) <= (1 +- z M / n)^n by Jensen's inequality, which bounds M on both sides. The centres a
are fixed, too, and each has all of its share: only the one next to theta has to be right.

**Free means**, Berry and Esseen. tau^2 = sigma^2 + b, with the users' own variance sigma^2 = sum
s^2 Var Y_i, at least that of the noise, and b = sum (s_i m_i - theta / n)^2, unknown. But where b
is large, K is too: ln is strongly concave up to h = 1 + t max s, so K exceeds its exact value by at
least t^2 b / (2 h^2), which lowers R by as much. R is the largest over all splits of tau^2.
"""

from __future__ import annotations

import math

import numpy as np

from estimators.bounds.anytime import LOG_WEIGHTS, TILTS
from estimators.bounds.bets.cells import Bet, cell_edges, cells_of, narrowest_common
from estimators.bounds.bets.symbol_bets import BOLDEST, SymbolBets
from estimators.bounds.intervals import normal_quantile
from estimators.bounds.inversion import SAFETY
from estimators.estimate import Floats
from estimators.question import Question

SHARE = 0.01
"""d: of the failure probability, for each of the four statements that choose cells."""
NEAR = 0.15
"""Of a report's least standard deviation: how far a mean is from the centre of squares at most."""
CENTRES = 64  # of squares, whose intervals are computed together


def symbol_limits(
    bets: SymbolBets, question: Question, log_p: float, total: float
) -> tuple[float, float]:
    """Return bounds on the mean for a question.

    Parameters
    ----------
    bets : SymbolBets
    question : Question
        Its `bound` determines the interval.
    log_p : float
        ln p, the failure probability of one side.
    total : float
        From :func:`estimators.weights.total_weight`, for ``anytime``.

    Returns
    -------
    lower, upper : float
        Within [-1, 1]. With p near 1/2, both sides may reject the estimate.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from estimators.bounds import WindowLaw
    >>> from estimators.exact.piecewise_shapes import shape_at
    >>> shape, counts = shape_at(Fraction(4)), np.full((1, 30), 100)
    >>> law = WindowLaw.of([shape], np.array([3e3]), np.array([1 / 3e3]), free=False)
    >>> question = Question(bound="fixed")
    >>> lower, upper = symbol_limits(SymbolBets(law, counts), question, np.log(0.025), 3e3)
    >>> round(lower, 3), round(upper, 3)
    (-0.033, 0.033)
    """
    if question.bound == "normal":
        return _normal(bets, log_p)
    if question.bound == "anytime":
        return at_all_times(bets, log_p, total), -at_all_times(bets.mirrored(), log_p, total)
    return fixed(bets, log_p)


def at_all_times(bets: SymbolBets, log_p: float, total: float) -> float:
    """Return a theta that the mixture rejects as too small: now, or at any time before.

    Parameters
    ----------
    bets : SymbolBets
    log_p : float
        ln p, the failure probability over all times.
    total : float
        N, from :func:`estimators.weights.total_weight`.
    """
    tilts = TILTS * total
    allowed = tilts <= bets.steepest
    tilts = tilts[allowed]
    return bets.lower_limit(tilts, bets.gains(tilts) + LOG_WEIGHTS[allowed] + log_p - SAFETY)


def fixed(bets: SymbolBets, log_p: float) -> tuple[float, float]:
    """Return both limits for a number of reports that is fixed in advance.

    Parameters
    ----------
    bets : SymbolBets
    log_p : float
        ln p, the failure probability of one side.
    """
    law, inner = bets.law, log_p + math.log(SHARE)
    low, high = mean_range(bets, inner)
    log_left = log_p + math.log1p(-4 * SHARE)
    edges = cell_edges(law)
    cells = [
        Bet(law, float(edges[cell]), float(edges[cell + 1]), bets.steepest, log_left)
        for cell in cells_of(edges, spread(bets, (low, high), inner))
    ]
    lower, upper = narrowest_common(bets, cells, (low, -high))
    return lower, -upper


def mean_range(bets: SymbolBets, log_p: float) -> tuple[float, float]:
    """Return an interval for the mean; each of its ends fails with probability p.

    Counts that no mean explains, such as fabricated ones, may reject all means. Then the interval
    is from the one limit to the other, whichever is smaller.

    Parameters
    ----------
    bets : SymbolBets
    log_p : float
        ln p.
    """
    total = float(bets.law.counts.sum())  # the tilts of the mixture suit reports of one weight
    low, high = at_all_times(bets, log_p, total), -at_all_times(bets.mirrored(), log_p, total)
    return min(low, high), max(low, high)


def _normal(bets: SymbolBets, log_p: float) -> tuple[float, float]:
    """Return the limits of a normal law with the variance that was observed."""
    theta = bets.mean
    variance = bets.spread(min(max(theta, -1.0), 1.0))
    margin = normal_quantile(log_p) * math.sqrt(variance)
    lower, upper = np.clip([theta - margin, theta + margin], -1, 1).tolist()
    return lower, upper


def spread(bets: SymbolBets, within: tuple[float, float], log_p: float) -> tuple[float, float]:
    """Return an interval for tau^2; each of its ends fails with probability p.

    Parameters
    ----------
    bets : SymbolBets
    within : tuple of float
        The ends of an interval for the mean, which has to be right.
    log_p : float
        ln p.
    """
    law, weight = bets.law, bets.square_weight
    half = NEAR * math.sqrt(law.least_variance / weight)
    first, last = (math.floor(x / (2 * half) + 0.5) for x in within)
    low, high = math.inf, -math.inf
    for start in range(first, last + 1, CENTRES):
        centres = 2 * half * np.arange(start, min(start + CENTRES, last + 1), dtype=np.float64)
        least, most = squares(bets, centres, log_p)
        low, high = min(low, float(least.min())), max(high, float(most.max()))
    rounding = 1e-12 * law.worst_variance
    return low - half**2 * weight - rounding, high + rounding


def squares(bets: SymbolBets, a: Floats, log_p: float) -> tuple[Floats, Floats]:
    """Return intervals for the means of the sums of all (s Y - m)^2: m is s a, or a / n.

    Parameters
    ----------
    bets : SymbolBets
    a : ndarray of float64, shape (k,)
    log_p : float
        ln of the probability with which each end fails, for each a by itself.

    Returns
    -------
    low, high : ndarray of float64, shape (k,)
    """
    law = bets.law
    n, s = float(law.counts.sum()), law.coefficient
    centre = a[:, None] * (np.full_like(s, 1 / n) if law.free else s)
    z = (s[:, None] * law.symbols.values - centre[..., None]) ** 2
    most = (np.abs(s * law.symbols.largest) + np.abs(centre)).max(axis=1) ** 2
    number = 2 + max(0, math.ceil(math.log2(n) / 2))
    tilts = BOLDEST / most[:, None] * 2.0 ** -np.arange(number)
    stakes = tilts[:, :, None] * z.reshape(a.size, 1, -1)
    gained, lost = (np.log1p(x) @ bets.counts.ravel() for x in (stakes, -stakes))
    cost = SAFETY - log_p + math.log(number)
    low = n / tilts * np.expm1((gained - cost) / n)
    high = -n / tilts * np.expm1((lost - cost) / n)
    return low.max(axis=1), high.min(axis=1)
