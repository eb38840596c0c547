"""Scores, on the normal scale, of how far a level's reports deviate from a hypothesis.

Theorems 7 and 8 of docs/proofs/laws.md; only scores of counts are proved.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import numpy as np

from estimators.bounds.piecewise.law import PiecewiseLaw
from estimators.bounds.signs.law import MAX_SIGN_TILT, Law, tilted_signs
from estimators.bounds.signs.repeated import RepeatedLaw
from estimators.estimate import Floats, Indices
from estimators.exact import discrete_laplace
from estimators.interruption import checkpoint

LawOfLevels = TypeVar("LawOfLevels", bound=Law)

NEWTON_STEPS, TILT_TOLERANCE = 5, 1e-4
"""The most steps, and the largest last step relative to the tilt: the error is about its square."""
MIN_CORRECTED_ROOT = 0.1
"""A smaller signed root is not corrected, because the correction would lose its digits."""
PROBABILITY_ROUNDING = 2.0**-53
"""The least distance of a probability from 0 and 1, to which it may round for a large epsilon."""


def binomial_scores(sign_counts: Floats, trials: Floats, chance: Floats) -> Floats:
    """Return the scores of binomial counts: Theorem 7 of docs/proofs/laws.md.

    `sign_counts`, `trials`: whole numbers, the first at most the second; `chance`: in [0, 1].

    >>> binomial_scores(np.array([5.0, 12.0, 2.0]), np.array([10.0, 20.0, 20.0]), 0.5).round(3)
    array([ 0.   ,  0.448, -3.289])
    """
    mean = trials * np.clip(chance, PROBABILITY_ROUNDING, 1 - PROBABILITY_ROUNDING)
    neighbour = sign_counts - np.sign(sign_counts - mean)
    deviation = np.where((neighbour - mean) * (sign_counts - mean) > 0, neighbour - mean, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        up = (mean + deviation) * np.log1p(deviation / mean)
        down = (trials - mean - deviation) * np.log1p(-deviation / (trials - mean))
    entropy = np.where(deviation == 0, 0.0, np.nan_to_num(up) + np.nan_to_num(down))
    return np.asarray(np.sign(deviation) * np.sqrt(2 * np.maximum(entropy, 0.0)))


def difference_scores(sums: Floats, trials: Floats, mean: Floats, share: Floats) -> Floats:
    """Return the scores of sums of +1, -1 and 0: Theorem 8 of docs/proofs/laws.md.

    With `share` = 1, the result is that of :func:`binomial_scores`. `sums`, `trials`: whole
    numbers, abs(sums) <= trials; `mean`, `share`: the expectation of one report, and the
    probability that it is not 0, at least abs(mean).
    """
    mean = np.clip(mean, PROBABILITY_ROUNDING - 1, 1 - PROBABILITY_ROUNDING)
    expected = trials * mean
    neighbour = sums - 2 * np.sign(sums - expected)
    is_beyond_neighbour = (neighbour - expected) * (sums - expected) > 0
    mean_report = np.where(is_beyond_neighbour, neighbour / trials, mean)
    up, down, none = (share + mean) / 2, (share - mean) / 2, 1 - share
    up, down = np.maximum(up, 1e-300), np.maximum(down, 1e-300)
    middle = mean_report * none / 2
    grown = middle + np.sqrt(middle**2 + up * down * (1 - mean_report) * (1 + mean_report))
    tilted = np.maximum(grown, 1e-300) / (up * (1 - mean_report))
    entropy: Floats = mean_report * np.log(tilted) - np.log(none + up * tilted + down / tilted)
    return np.sign(mean_report - mean) * np.sqrt(2 * trials * np.maximum(entropy, 0.0))


def mean_scores(law: Law, levels: Indices, means: Floats, theta: Floats) -> Floats:
    """Return the scores of levels' means, shape (levels, shape of `theta`); they are approximate.

    `law`: the law of the reports; `levels`, shape (levels,): the levels' rows in `law`; `means`,
    shape (levels, ...): the unbiased mean of each level; of a shape that broadcasts with `theta`;
    `theta`: the hypothetical means.
    """
    law = select_levels(law, levels)
    level_means = np.moveaxis(np.broadcast_to(means, (levels.size, *theta.shape)), 0, -1)
    sign = np.sign(level_means - theta[..., None])  # mirror images have opposite scores
    roots = _signed_roots(law, sign * level_means, sign * theta[..., None])
    return np.moveaxis(sign * roots, -1, 0)


def select_levels(law: LawOfLevels, rows: Indices) -> LawOfLevels:
    """Return the law of the levels in `rows`, which may repeat; s is 1 / (n a), `free` False."""
    counts, contrast = law.counts[..., rows], law.contrast[rows]
    law_fields: dict[str, Any] = {"coefficient": 1 / (counts * contrast)}
    if law.rate is not None:
        law_fields["rate"] = law.rate[rows]
    if law.offset is not None:
        law_fields["offset"] = law.offset[rows]
    if isinstance(law, RepeatedLaw):
        law_fields["repeats"] = law.repeats[rows]
    if isinstance(law, PiecewiseLaw):
        law_fields["shapes"] = tuple(law.shapes[row] for row in rows.tolist())
    return dataclasses.replace(law, counts=counts, contrast=contrast, free=False, **law_fields)


def _signed_roots(law: Law, observed: Floats, theta: Floats) -> Floats:
    """Return the scores, at least 0, of observed means above theta, shape (..., levels)."""
    slope = law.contrast * observed
    tilt = _best_tilts(law, observed, theta)
    value, _, variance = _tilted_moments(law, theta, tilt)
    root: Floats = np.sqrt(2 * law.counts * np.maximum(tilt * slope - value, 0.0))
    positive_root = np.maximum(root, MIN_CORRECTED_ROOT)
    standardized_tilt = tilt * np.sqrt(law.counts * variance)
    correction = np.log(np.maximum(standardized_tilt, 1e-300) / positive_root) / positive_root
    corrected = root + np.where(root > MIN_CORRECTED_ROOT, np.minimum(correction, 0.0), 0.0)
    return np.maximum(corrected, 0.0)


def _best_tilts(law: Law, observed: Floats, theta: Floats, start: Floats | None = None) -> Floats:
    """Return tilts close to the best ones; 0 where a mean is below theta; shape (..., levels).

    `law`: the law of the levels; `observed`, `theta`, shape (..., levels): the observed and the
    hypothetical means; `start`: tilts to begin with where they are above 0.
    """
    max_tilt = np.full(law.contrast.shape, MAX_SIGN_TILT)
    if law.rate is not None:
        max_tilt = np.minimum(max_tilt, 0.999 * law.rate / law.unit)
    if isinstance(law, PiecewiseLaw):
        max_tilt = max_tilt / np.array([shape.values[-1] for shape in law.shapes])
    slope = law.contrast * observed
    if isinstance(law, PiecewiseLaw):
        variance = law.symbols.squares[:, 0] - theta**2
    elif isinstance(law, RepeatedLaw):
        variance = law.user_variances(theta)
    else:
        variance = _tilted_moments(law, theta, np.zeros_like(theta))[2]
    normal = law.contrast * (observed - theta) / np.maximum(variance, 1e-12)
    tilt: Floats = np.clip(normal, 0.0, max_tilt)
    if start is not None:
        tilt = np.where((start > 0) & (tilt > 0), start, tilt)
    is_settled = np.zeros((*tilt.shape[:-1], 1), dtype=np.bool_)  # of each row alone
    for _ in range(NEWTON_STEPS):
        checkpoint()
        _, mean, variance = _tilted_moments(law, theta, tilt)
        next_tilt = tilt + (slope - mean) / np.maximum(variance, 1e-300)
        next_tilt = np.minimum(np.clip(next_tilt, tilt / 4, tilt * 4), max_tilt)
        previous_tilt, tilt = tilt, np.where(is_settled, tilt, next_tilt)
        is_close = np.abs(tilt - previous_tilt) <= TILT_TOLERANCE * tilt
        is_settled |= is_close.all(axis=-1, keepdims=True)
        if is_settled.all():
            break
    return tilt


@dataclasses.dataclass
class SignDeviances:
    """Q of levels whose reports are signs, as a function of the common mean.

    `law`: the law of the compared levels, or of k windows, in rows; `means`, shape (k, levels): the
    unbiased means; `tilt`: the tilts at the previous common mean, from which the next search
    begins; None before the first.
    """

    law: Law
    means: Floats
    tilt: Floats | None = None

    def at(self, theta: Floats) -> tuple[Floats, Floats, Floats]:
        """Return a lower bound on Q at k means, close to it, and its slope and bend there.

        The line with this value and slope is below Q.
        """
        law, theta = self.law, theta[:, None]
        terms = (
            self._of_users(law, theta) if isinstance(law, RepeatedLaw) else self._of_signs(theta)
        )
        statistic, slope, bend = (x.sum(axis=1) for x in terms)
        return statistic, slope, bend

    def _of_signs(self, theta: Floats) -> tuple[Floats, Floats, Floats]:
        n, contrast, offset = self.law.counts, self.law.contrast, self.law.offsets
        sign_counts = np.rint(n * (1 + offset + contrast * self.means) / 2)
        chance = (1 + offset + contrast * theta) / 2
        chance = np.clip(chance, PROBABILITY_ROUNDING, 1 - PROBABILITY_ROUNDING)
        expected, variance = n * chance, chance * (1 - chance)
        nearest = np.clip(expected, sign_counts - 1, sign_counts + 1)
        excess = (expected - nearest) / variance
        bend = np.where(excess == 0, 0.0, (n - excess * (1 - 2 * chance)) / variance)
        scores = binomial_scores(sign_counts, n, chance)
        return scores**2, contrast * excess, contrast**2 * bend / 2

    # Theorem 4 of docs/proofs/laws.md
    def _of_users(self, law: RepeatedLaw, theta: Floats) -> tuple[Floats, Floats, Floats]:
        n, contrast, sign = law.counts, law.contrast, np.sign(self.means - theta)
        observed = sign * self.means - 2 / (n * contrast * law.repeats)
        law = dataclasses.replace(law, offset=sign * law.offsets)
        tilt = self.tilt = _best_tilts(law, observed, sign * theta, self.tilt)
        value, _, spread, mean_gap, growth, denominator = law.tilted_users(sign * theta, tilt)
        exponent = tilt * contrast * observed - value
        twice = np.where(exponent > 0, 2 * n, 0.0)
        by_theta, cross = growth / (2 * denominator), mean_gap * (1 + growth) / (2 * denominator**2)
        bend = by_theta**2 + cross**2 / spread
        return twice * exponent, -twice * sign * by_theta, twice * bend


def _tilted_moments(law: Law, theta: Floats, tilt: Floats) -> tuple[Floats, Floats, Floats]:
    """Return ln E exp(tilt (Y - o)) of one report of each level, and its first two derivatives."""
    if isinstance(law, RepeatedLaw):
        value, mean, variance, *_ = law.tilted_users(theta, tilt)
        return value, mean, variance
    if isinstance(law, PiecewiseLaw):
        thetas = law.tilted(theta, tilt)
        return thetas.value, thetas.mean, thetas.variance
    value, mean, variance, *_ = tilted_signs(tilt, law.offsets + law.contrast * theta)
    value, mean = value - tilt * law.offsets, mean - law.offsets
    if law.rate is None:
        return value, mean, variance
    noise = discrete_laplace.cumulant(law.rate, law.unit * tilt)
    return value + noise[0], mean + law.unit * noise[1], variance + law.unit**2 * noise[2]
