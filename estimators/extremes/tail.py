"""The exponent alpha of the tail near the extreme, MIN's Definition 1."""

from __future__ import annotations

import dataclasses

import numpy as np

from estimators.estimate import Floats
from estimators.extremes.binary_search import Progress, Search

TRIED_ALPHAS = np.geomspace(0.1, 20, 160)
LARGEST_SHARE = 0.5  # the largest share of users that counts as a tail
MIN_TELLING_ROUNDS = 3  # the least number of informative rounds for an estimate
CHI_SQUARE = 3.84  # its 95% quantile with one degree of freedom
MAX_INTERVAL_RATIO = 4.0  # largest ratio of the interval's ends; a wider one is no estimate


@dataclasses.dataclass(frozen=True)
class Tail:
    """The exponent alpha: near the extreme, the share within x of it is C x^alpha.

    A smaller alpha means more users near the extreme and a more exact search: its error falls like
    n^(-1 / (2 alpha)). `alpha`: the likeliest exponent; `lower`, `upper`: the range of exponents
    that fit the rounds about as well.
    """

    alpha: float
    lower: float
    upper: float


def tail(search: Search, progress: Progress) -> Tail | None:
    """Return an estimate of the exponent of the tail, from the shares in a search's rounds.

    Returns
    -------
    Tail or None
        None if fewer than three rounds found a share between noise and one half, or if exponents
        that differ by more than a factor of four would fit.

    Notes
    -----
    The fit is by least squares of the shares on C (t - m)_+^alpha over the thresholds t, with m, C
    and alpha free. The interval has the exponents whose best fit is within 3.84 of the best fit of
    all, in units of the shares' variances. The interval is not a bound, because it assumes normal
    errors, and the power law for shares below one half.

    Examples
    --------
    >>> from estimators.extremes import Decision
    >>> search = Search(kind="minimum", range=(0, 1), levels=[1], rounds=6)
    >>> decisions = [
    ...     Decision(t, (10**8,), (0,), share=t**2, critical=0.001, outwards=t**2 > 0.001)
    ...     for t in (0.5, 0.25, 0.125, 0.0625, 0.03125)
    ... ]
    >>> round(tail(search, Progress(tuple(decisions))).alpha, 1)
    2.0
    """
    decisions = [d for d in progress.decisions if any(d.answers)]
    contrast = search.randomizer.signs.contrast
    square = np.array([float(np.array(d.answers) @ contrast**2) for d in decisions])
    share = np.array([d.share for d in decisions])
    threshold = np.array([d.threshold for d in decisions])
    low, high = search.range
    inwards = (threshold - low if search.kind == "minimum" else high - threshold) / (high - low)
    is_tail = share <= LARGEST_SHARE
    inwards, share, precision = inwards[is_tail], share[is_tail], 4 * square[is_tail]
    if (share * np.sqrt(precision) >= MIN_TELLING_ROUNDS).sum() < MIN_TELLING_ROUNDS:
        return None
    ends = search.interval(progress)
    inner = (ends[1] - low if search.kind == "minimum" else high - ends[0]) / (high - low)
    fit = np.array([_misfit(inwards, share, precision, inner, alpha) for alpha in TRIED_ALPHAS])
    fitting = np.flatnonzero(fit <= fit.min() + CHI_SQUARE)
    first, last = int(fitting[0]) - 1, int(fitting[-1]) + 1  # the exponents that do not fit
    if (
        first < 0
        or last >= TRIED_ALPHAS.size
        or TRIED_ALPHAS[last] > MAX_INTERVAL_RATIO * TRIED_ALPHAS[first]
    ):
        return None
    alpha = float(TRIED_ALPHAS[fit.argmin()])
    return Tail(alpha, float(TRIED_ALPHAS[first]), float(TRIED_ALPHAS[last]))


def _misfit(inwards: Floats, share: Floats, precision: Floats, inner: float, alpha: float) -> float:
    """Return the least weighted sum of squares over all m below `inner` and all C."""
    start = inner * (1 - np.append(np.geomspace(1e-4, 1, 400), 0.0))
    basis = np.maximum(inwards - start[:, None], 0) ** alpha
    along, size = basis @ (precision * share), basis**2 @ precision
    scale = np.maximum(along, 0) / np.maximum(size, 1e-300)
    misfit = ((share - scale[:, None] * basis) ** 2) @ precision
    return float(misfit.min())
