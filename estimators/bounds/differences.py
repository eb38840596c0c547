"""Bounds for a sum of reports that are +1, -1 or 0, where it is not known how many are 0.

A report D of Hadamard response is +1 or -1 in the category's block of symbols and 0 elsewhere, with
E D = c f for a frequency f and P(D != 0) = A, which depends on how frequent the block's other
categories are. For every A,

    E exp(t D - |D| ln cosh t) = 1 - A + A + c f sinh t / cosh t = 1 + c f tanh t,

so that the number of reports in the block, which is observed, stands in for the unknown A: a
self-normalised Chernoff bound (after de la Pena, Lai and Shao, 2009). Markov's inequality makes of
it, for every t fixed before the reports were seen,

    P(sum t s D - sum |D| ln cosh(t s) >= sum ln(1 + c f tanh(t s)) + x) <= e^-x.

The exponential of the difference is a supermartingale in the number of reports, so that (Ville)
this holds at all numbers at once where t s, on the scale of a report, is fixed as they grow.

In a count sketch, f stands for a frequency and what hash collisions add to it: any number from -1
to 1. Nothing changes but for users with an f of their own (see :meth:`DifferenceLaw.invert`).
"""

from __future__ import annotations

import dataclasses

import numpy as np

from estimators.bounds import anytime
from estimators.bounds.answer import normal_quantile
from estimators.bounds.inversion import SAFETY
from estimators.bounds.law import STEEPEST
from estimators.estimate import Floats
from estimators.question import Question


@dataclasses.dataclass(frozen=True)
class DifferenceLaw:
    """The law of S = sum of s_l D over independent reports of several levels, with E S = f.

    Parameters
    ----------
    counts : ndarray of float64, shape (levels,)
        Reports per level, each above zero.
    coefficient : ndarray of float64, shape (levels,)
        s_l, above zero; sum n_l s_l c_l = 1.
    contrast : ndarray of float64, shape (levels,)
        c_l, in (0, 1].
    least, largest : ndarray of float64, shape (levels,)
        Of P(D != 0) over all data: they say where good tilts lie, and nothing of the bound's
        validity depends on them.
    free : bool
        False: f is the same at all levels. True: it is the mean of the levels' own, weighted by
        n s c.
    fixed : bool
        True: each user holds the category, or does not, and f is the weighted share of these.
    signed : bool
        Whether f may be anything in [-1, 1]; it is in [0, 1] else, and `fixed` supposes so.
    """

    counts: Floats
    coefficient: Floats
    contrast: Floats
    least: Floats
    largest: Floats
    free: bool = False
    fixed: bool = False
    signed: bool = False

    @property
    def lowest(self) -> float:
        """The least value of f."""
        return -1.0 if self.signed else 0.0

    def tilts(self, log_p: float) -> Floats:
        """Return tilts for the range of possible variances, a factor of 2 apart.

        The worst of them is a factor of sqrt 2 from the best tilt, which costs 6% of the width.
        """
        weight = self.counts * self.coefficient**2
        # a steeper tilt than this gains nothing, and loses digits
        floor = -2 * log_p * (float(self.coefficient.max()) / STEEPEST) ** 2
        least = max(float(weight @ self.least), floor)
        largest = max(float(weight @ self.largest), 2 * floor)
        steps = max(1, int(np.ceil(np.log2(largest / least) / 2)))
        spread = np.geomspace(least, largest, 2 * steps + 1)[1::2]
        tilts: Floats = np.sqrt(-2 * log_p / spread)
        return tilts

    def slopes(self, tilt: float) -> tuple[float, float]:
        """Return g and h: the cumulants above are at most N ln(1 + f g / N) and N ln(1 - f h / N).

        N is the number of reports. One frequency: Jensen's inequality over the levels, g = h = sum
        n c tanh(t s). Frequencies of the users' own: Jensen over the users, and tanh z <= z for g,
        tanh z >= z tanh(z') / z' up to the largest z' for h, with sum n c s f = f.
        """
        z = tilt * self.coefficient
        if self.free:
            largest = float(z.max())
            return tilt, tilt * float(np.tanh(largest)) / largest
        slope = float((self.counts * self.contrast) @ np.tanh(z))
        return slope, slope

    def fixed_slopes(self, tilt: float) -> tuple[float, float]:
        """Return g and h: where users' values are fixed, the cumulants are at most g f and -h f.

        One who holds the category adds ln(1 +- c tanh(t s)) and weighs s c; others add nothing.
        """
        tanh = self.contrast * np.tanh(tilt * self.coefficient)
        weight = self.coefficient * self.contrast
        return float((np.log1p(tanh) / weight).max()), float((-np.log1p(-tanh) / weight).min())

    def invert(self, tilt: float, above: Floats, below: Floats) -> tuple[Floats, Floats]:
        """Return limits on f: the cumulant at f is above `above`, and at -f above `below`.

        Where users have an f_i of their own in [-1, 1], tanh z <= z says nothing of negative ones.
        But f_i + 1 >= 0, so that with z = tilt s, sum n c s = 1 and G = sum n c tanh z

            sum c f_i tanh z = sum c (f_i + 1) tanh z - G <= tilt (f + 1) - G:

        f tilt + (tilt - G) takes the place of f tilt; for -f_i by symmetry. What this adds is below
        tilt / 3 times the largest z^2: it falls as the reverse of the number of reports.
        """
        n = float(self.counts.sum())
        if self.fixed:
            g, h = self.fixed_slopes(tilt)
            return above / g, -below / h
        g, h = self.slopes(tilt)
        low, high = n * np.expm1(above / n), -n * np.expm1(below / n)
        if self.free and self.signed:
            slack = tilt - float((self.counts * self.contrast) @ np.tanh(tilt * self.coefficient))
            return (low - slack) / tilt, (high + slack) / tilt
        return low / g, high / h


def difference_limits(
    law: DifferenceLaw,
    observed: Floats,
    sizes: list[Floats],
    question: Question,
    log_p: float,
    total: float,
) -> tuple[Floats, Floats]:
    """Return bounds on f as the question asks for them; `total` as in `answer.limits`."""
    if question.bound == "normal":
        spread = sum(s * s * x for s, x in zip(law.coefficient.tolist(), sizes, strict=True))
        margin = normal_quantile(log_p) * np.sqrt(spread)
        low = law.lowest
        return np.clip(observed - margin, low, 1), np.clip(observed + margin, low, 1)
    times = total if question.bound == "anytime" else None
    return difference_interval(law, observed, sizes, log_p, times)


def difference_interval(
    law: DifferenceLaw,
    observed: Floats,
    sizes: list[Floats],
    log_p: float,
    total: float | None = None,
) -> tuple[Floats, Floats]:
    """Return bounds on f, each side failing with probability at most p.

    Parameters
    ----------
    law : DifferenceLaw
    observed : ndarray of float64, shape (k,)
        S, for each of k categories.
    sizes : list of ndarray of float64, shape (k,)
        Per level, the sum of abs(D).
    log_p : float
        ln p, the failure probability of one side.
    total : float, optional
        From :func:`estimators.weights.total_weight`: the bounds then hold at all times at once.

    Returns
    -------
    lower, upper : ndarray of float64, shape (k,)
        Within [0, 1]; [-1, 1] where the law is signed.

    Notes
    -----
    Each of J tilts gives a limit that fails with probability p / J; the narrowest one counts. For
    all times, the tilts and their shares of p are those of `anytime`, fixed once and for all;
    which of them are tried may depend on anything.

    Examples
    --------
    >>> one = np.ones(1)
    >>> law = DifferenceLaw(1e4 * one, 1e-4 * one, one, 0.5 * one, one)
    >>> lower, upper = difference_interval(law, 0.2 * one, [7000 * one], np.log(0.025))
    >>> float(lower[0].round(4)), float(upper[0].round(4))
    (0.1778, 0.222)
    """
    tilts = law.tilts(log_p)
    log_shares = np.full(len(tilts), -np.log(len(tilts)))
    if total is not None:
        steepest = STEEPEST / float(law.coefficient.max())
        grid = anytime.TILTS * total
        near = (grid >= tilts.min() / 2) & (grid <= min(2 * tilts.max(), steepest))
        tilts, log_shares = grid[near], anytime.LOG_WEIGHTS[near]
    lower, upper = np.full_like(observed, law.lowest), np.ones_like(observed)
    for tilt, log_share in zip(tilts.tolist(), log_shares.tolist(), strict=True):
        z = tilt * law.coefficient
        costs = z + np.log1p(np.exp(-2 * z)) - np.log(2)
        spent = sum(c * x for c, x in zip(costs.tolist(), sizes, strict=True))
        spent = spent + (SAFETY - log_p - log_share)
        low, high = law.invert(tilt, tilt * observed - spent, -tilt * observed - spent)
        lower, upper = np.maximum(lower, low), np.minimum(upper, high)
    return np.clip(lower, law.lowest, 1), np.clip(upper, law.lowest, 1)
