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
from estimators.bounds.bets.symbol_bets import BOLDEST, SymbolBets
from estimators.bounds.fourier.remainder import log_remainder, nodes
from estimators.bounds.intervals import normal_quantile
from estimators.bounds.inversion import SAFETY
from estimators.bounds.laws.window_law import WindowLaw
from estimators.bounds.tails import BERRY_ESSEEN
from estimators.estimate import Floats
from estimators.exact.windows import WindowShape
from estimators.question import Question

SHARE = 0.01
"""d: of the failure probability, for each of the four statements that choose cells."""
RATIO = 1.15  # between neighbouring cells
NEAR = 0.15
"""Of a report's least standard deviation: how far a mean is from the centre of squares at most."""
BINS = 8  # of the mean: the third moment of Berry and Esseen is small near it
PARTS = 32  # of the range of the users' own variance, if their means are free
FARTHEST = 200.0  # of tau: what is beyond gains less than 1% of R


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
        Within [-1, 1], around the estimate if it is.

    Examples
    --------
    >>> from fractions import Fraction
    >>> from estimators.exact.windows import shape_at
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
        lower, upper = (at_all_times(x, log_p, total) for x in (bets, bets.mirrored()))
        upper = -upper
    else:
        lower, upper = fixed(bets, log_p)
    centre = min(max(bets.mean, -1.0), 1.0)  # with p near 1/2, both sides may reject it
    return min(lower, centre), max(upper, centre)


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
    law, other = bets.law, bets.mirrored()
    inner = log_p + math.log(SHARE)
    total = float(law.counts.sum())  # the tilts of the mixture suit reports of one weight
    low, high = (sign * at_all_times(x, inner, total) for sign, x in ((1, bets), (-1, other)))
    log_left = log_p + math.log1p(-4 * SHARE)
    edges, lower, upper = cell_edges(law), 1.0, -1.0
    for cell in cells_of(edges, spread(bets, (low, high), inner)):
        bet = Bet(law, float(edges[cell]), float(edges[cell + 1]), bets.steepest, log_left)
        lower = min(lower, bet.lower_limit(bets, low))
        upper = max(upper, -bet.lower_limit(other, -high))
    return max(lower, low), min(upper, high)


def _normal(bets: SymbolBets, log_p: float) -> tuple[float, float]:
    """Return the limits of a normal law with the variance that was observed."""
    theta = bets.mean
    variance = bets.spread(min(max(theta, -1.0), 1.0))
    margin = normal_quantile(log_p) * math.sqrt(variance)
    lower, upper = np.clip([theta - margin, theta + margin], -1, 1).tolist()
    return lower, upper


def cell_edges(law: WindowLaw) -> Floats:
    """Return the edges of the cells, from the least to the largest tau^2 or beyond."""
    number = math.ceil(math.log(law.worst_variance / law.least_variance) / math.log(RATIO))
    edges: Floats = law.least_variance * RATIO ** np.arange(max(number, 1) + 1.0)
    return edges


def cells_of(edges: Floats, ends: tuple[float, float]) -> range:
    """Return the cells that an interval for tau^2 meets.

    Parameters
    ----------
    edges : ndarray of float64, shape (cells + 1,)
    ends : tuple of float
    """
    within = np.searchsorted(edges, ends, side="right") - 1
    first, last = np.clip(within, 0, edges.size - 2).tolist()
    return range(first, last + 1)


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
    ends = [squares(bets, 2 * x * half, log_p) for x in range(first, last + 1)]
    low = min(x[0] for x in ends) - half**2 * weight
    rounding = 1e-12 * law.worst_variance
    return low - rounding, max(x[1] for x in ends) + rounding


def squares(bets: SymbolBets, a: float, log_p: float) -> tuple[float, float]:
    """Return an interval for the mean of the sum of all (s Y - m)^2: m is s a, or a / n.

    Parameters
    ----------
    bets : SymbolBets
    a : float
    log_p : float
        ln of the probability with which each end fails.
    """
    law = bets.law
    n, s = float(law.counts.sum()), law.coefficient
    centre = np.full_like(s, a / n) if law.free else s * a
    z = (s[:, None] * law.symbols.values - centre[:, None]) ** 2
    most = float((np.abs(s * law.symbols.largest) + np.abs(centre)).max()) ** 2
    number = 2 + max(0, math.ceil(math.log2(n) / 2))
    tilts = BOLDEST / most * 2.0 ** -np.arange(number)
    cost = SAFETY - log_p + math.log(number)
    gained, lost = (
        np.einsum("mlj,lj->m", np.log1p(sign * tilts[:, None, None] * z), bets.counts)
        for sign in (1, -1)
    )
    low = n / tilts * np.expm1((gained - cost) / n)
    high = -n / tilts * np.expm1((lost - cost) / n)
    return float(low.max()), float(high.min())


class Bet:
    """The tilt for all data whose tau^2 is in a cell.

    Parameters
    ----------
    law : WindowLaw
    least, largest : float
        The ends of the cell.
    steepest : float
        The largest tilt.
    log_p : float
        ln p, the failure probability.
    """

    def __init__(
        self, law: WindowLaw, least: float, largest: float, steepest: float, log_p: float
    ) -> None:
        from scipy.special import erfcx

        self.law, self.least, self.largest, self.log_p = law, least, largest, log_p
        cost = -log_p
        for _ in range(3):
            tilt = math.sqrt(max(2 * cost, 1.0) / math.sqrt(least * largest))
            self.tilt = min(tilt, steepest)
            cost = -log_p + math.log(float(erfcx(self.tilt * math.sqrt(2 * least))))
        self.fourier = min(0.0, log_fourier(law, self.tilt))

    def log_remainder(self, low: Floats | float, high: Floats | float) -> float:
        """Return ln R for all means from `low` to `high`, which may differ between levels."""
        law, tilt, least = self.law, self.tilt, self.least
        if not law.free:
            own = log_berry_esseen(law, tilt, np.array([least]), self.largest, (low, high))
            return min(self.fourier, float(own[0]))
        # the variance of the reports may be anything from that of the noise to tau^2
        edges = np.linspace(min(law.least_variance, least), least, PARTS + 1)
        concave = 1 / (1 + tilt * float(law.coefficient.max())) ** 2
        gained = tilt**2 * concave * (least - edges[1:]) / 2
        own = log_berry_esseen(law, tilt, edges[:-1], np.inf, (-1.0, 1.0))
        return float((np.minimum(own, self.fourier) - gained).max())

    def lower_limit(self, bets: SymbolBets, known: float) -> float:
        """Return a theta up to which all are rejected, at least `known`, or -1."""
        one = np.array([self.tilt])
        gains = bets.gains(one)
        edges = np.array([-1.0, 1.0]) if self.law.free else np.linspace(-1, 1, BINS + 1)
        found = known
        for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            if high <= found:
                continue
            cost = SAFETY - self.log_p + self.log_remainder(low, high)
            found = max(found, min(bets.lower_limit(one, gains - cost), high))
            if found < high:
                break
        return found


def log_fourier(law: WindowLaw, tilt: float) -> float:
    """Return ln R by Graham and Vaaler, for all data.

    Parameters
    ----------
    law : WindowLaw
    tilt : float
        t.
    """
    gains = [_KnotGains(*x, tilt) for x in zip(law.shapes, law.coefficient, strict=True)]
    variance = np.array([gain.variance for gain in gains])
    at = nodes(law.counts, variance)
    at = at[: max(64, int(np.searchsorted(at, FARTHEST)))]
    modulus = np.array([gain.log_modulus(at) for gain in gains])
    return float(log_remainder(1.0, at, modulus, law.counts, variance))


class _KnotGains:
    """The tilted laws of the gain of one report, given each knot."""

    def __init__(self, shape: WindowShape, coefficient: float, tilt: float) -> None:
        self.shape = shape
        self.gain = np.log1p(tilt * coefficient * shape.values)
        self.fair = 1 + tilt * coefficient * shape.knots
        mean = self._means(self.gain)
        self.variance = float((self._means(self.gain**2) - mean**2).max())

    def _means(self, terms: Floats) -> Floats:
        """Return the tilted means given each knot, of terms of shape (..., symbols)."""
        shape, weighted = self.shape, terms * np.exp(self.gain)
        running = np.zeros((*terms.shape[:-1], shape.symbols + 1), dtype=terms.dtype)
        np.cumsum(weighted, axis=-1, out=running[..., 1:])
        within = running[..., shape.window :] - running[..., : -shape.window]
        outside, extra = float(shape.outside), float(shape.inside - shape.outside)
        found: Floats = (outside * running[..., -1:] + extra * within) / self.fair
        return found

    def log_modulus(self, at: Floats) -> Floats:
        """Return ln of the largest modulus over the knots, shape of `at`."""
        turned = np.exp(1j * at[:, None] * self.gain)
        found: Floats = np.log(np.abs(self._means(turned)).max(axis=-1))
        return np.minimum(found, 0.0)


def log_berry_esseen(
    law: WindowLaw,
    tilt: float,
    least: Floats,
    largest: float,
    within: tuple[Floats | float, Floats | float],
) -> Floats:
    """Return ln R by the Berry-Esseen theorem, for all data of these variances.

    Parameters
    ----------
    law : WindowLaw
    tilt : float
        t.
    least : ndarray of float64
        The least variance of S.
    largest : float
        The largest variance of S, infinite if it is unknown.
    within : tuple of float, or of ndarray of float64, shape (levels,)
        The ends of intervals for the means of all users.
    """
    from scipy.special import erfcx

    symbols, weight = law.symbols, law.counts * law.coefficient**2
    stake = tilt * law.coefficient
    each = np.minimum(symbols.squares.max(axis=1), largest / weight)
    low, high = 1 + stake * within[0], 1 + stake * within[1]
    top = high + stake**2 * each / low
    p = 1 + stake[:, None] * symbols.values  # 1 where there is no symbol, which only lowers `kept`
    gain = np.log(p)
    ratio = gain - np.log(top)[:, None]
    close = np.abs(ratio) < 1e-4
    mean = (p - top[:, None]) / np.where(close, 1.0, ratio)
    mean = np.where(close, np.maximum(p, top[:, None]), mean)
    kept = float((p / mean**2 / high[:, None]).min())
    farthest = np.maximum(gain.max(axis=1) - np.log(low), np.log(top) - gain.min(axis=1)).max()
    sd = np.sqrt(kept * least) * tilt
    remainder: Floats = erfcx(math.sqrt(2) * sd) + 2 * BERRY_ESSEEN * farthest / sd
    return np.log(np.minimum(remainder, 1.0))
