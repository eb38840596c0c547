"""Streams of reports: sums whose cumulants are bounded by lines, for mixtures over tilts."""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import numpy as np

from estimators.bounds.block_differences.law import DifferenceLaw, log_cosh
from estimators.bounds.piecewise.bets import SymbolBets, log_expected_wealth
from estimators.bounds.signs.anytime import touch_cumulants
from estimators.bounds.signs.law import MAX_SIGN_TILT, Law
from estimators.bounds.signs.noise import Noise
from estimators.estimate import Floats, Indices


def joined(first: Any, second: Any) -> dict[str, Any]:
    """Return the fields of the law of two sums together: arrays and tuples of both are joined."""
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(first):
        a, b = getattr(first, field.name), getattr(second, field.name)
        if isinstance(a, np.ndarray):
            fields[field.name] = np.concatenate([a, b])
        elif isinstance(a, tuple):
            fields[field.name] = a + b
    return fields


@dataclasses.dataclass(frozen=True)
class _Sums:
    """The sums of k numbers, in the last axis of the arrays among the fields."""

    def at(self, rows: Indices) -> Self:
        """Return the sums of some of the k numbers; `rows`: the indices."""
        fields = vars(self).items()
        chosen = {name: x[..., rows] for name, x in fields if isinstance(x, np.ndarray)}
        return dataclasses.replace(self, **chosen)


@dataclasses.dataclass(frozen=True)
class LawStream(_Sums):
    """A sum whose law depends on its mean."""

    law: Law
    observed: Floats
    total: float

    @property
    def max_tilt(self) -> float:
        """The law's largest tilt."""
        return self.law.max_tilt

    def variance(self) -> Floats:
        """Return the largest variance at the observed mean."""
        return self.law.largest_variance(np.clip(self.observed, -1, 1))

    def lines(self, theta: Floats, tilts: Floats) -> tuple[Floats, Floats]:
        """Return tangents of the cumulants."""
        return touch_cumulants(self.law, theta, tilts)


@dataclasses.dataclass(frozen=True)
class NoiseStream(_Sums):
    """A sum of the users' own values and of noise whose law does not depend on the values."""

    noise: Noise
    observed: Floats
    total: float

    @property
    def max_tilt(self) -> float:
        """The noise's largest tilt."""
        return self.noise.max_tilt

    def variance(self) -> Floats:
        """Return the variance of the noise."""
        return np.full_like(self.observed, self.noise.variance)

    def lines(self, theta: Floats, tilts: Floats) -> tuple[Floats, Floats]:
        """Return the cumulants, which are lines."""
        value = self.noise.cumulant(np.minimum(tilts.ravel(), self.max_tilt)).reshape(tilts.shape)
        return value + tilts * theta[:, None], tilts


@dataclasses.dataclass(frozen=True)
class ScoreStream(_Sums):
    """A sum of independent bounded scores, whose cumulant Bennett's inequality bounds.

    `observed`, shape (k,): the sums; `largest`, shape (k,): b, a bound on the absolute value of a
    centred score; `worst`, shape (k,): V, the largest variance of the sum over all values.
    """

    observed: Floats
    largest: Floats
    worst: Floats
    total: float

    @property
    def max_tilt(self) -> float:
        """The largest useful tilt: steeper tilts gain nothing."""
        return MAX_SIGN_TILT / float(self.largest.max())

    def variance(self) -> Floats:
        """Return the largest variance."""
        return self.worst

    def lines(self, theta: Floats, tilts: Floats) -> tuple[Floats, Floats]:
        """Return the bounds tilt theta + (e^x - 1 - x) V / b^2, x = tilt b, which are lines."""
        x = tilts * self.largest[:, None]
        ratio = (self.worst / self.largest**2)[:, None]
        return tilts * theta[:, None] + (np.expm1(x) - x) * ratio, tilts


@dataclasses.dataclass(frozen=True)
class DifferenceStream(_Sums):
    """A sum of reports that are +1, -1 or 0 for a category: see :class:`DifferenceLaw`.

    Let D be the reports, s their factors in the estimate, x = 2 tilt s and f = (1 + theta) / 2.
    Then exp(sum x D - abs(D) ln cosh x - K(f)) with K = sum ln(1 + c f tanh x) is a martingale,
    whatever the share of zeros is. For -D the mean is -theta, and K = sum ln(1 - c f tanh x). Both
    are concave in f. If each level has its own frequency, see :meth:`DifferenceLaw.limits` for K.
    `law`: neither signed nor fixed; `sums`, `sizes`, shape (levels, k): the sums of D and of
    abs(D); `sign`: 1, or -1 for the stream of -D.
    """

    law: DifferenceLaw
    sums: Floats
    sizes: Floats
    total: float
    sign: float = 1.0

    @property
    def observed(self) -> Floats:
        """The estimate of theta; of -theta if `sign` is -1."""
        return self.sign * (2 * (self.law.coefficient @ self.sums) - 1)

    @property
    def max_tilt(self) -> float:
        """The largest useful tilt: steeper tilts gain nothing."""
        return MAX_SIGN_TILT / (2 * float(self.law.coefficient.max()))

    def variance(self) -> Floats:
        """Return the approximate variance, from the number of reports that are not 0.

        It is at least the variance at the least expected number of them, because there may be none.
        """
        weight, least_sizes = self.law.coefficient**2, self.law.counts * self.law.least_share
        return np.maximum(4 * (weight @ self.sizes), 4 * float(weight @ least_sizes))

    def lines(self, theta: Floats, tilts: Floats) -> tuple[Floats, Floats]:
        """Return tangents of K, plus tilt times the sum, minus the exponent; and their slopes."""
        f = np.clip((1 + self.sign * theta) / 2, 0, 1)
        value, by_f = difference_cumulant(self.law, 2 * tilts, self.sign, f[:, None])
        x = 2 * tilts[:, :, None] * self.law.coefficient
        exponent = self.sign * np.einsum("ktl,lk->kt", x, self.sums)
        exponent -= np.einsum("ktl,lk->kt", log_cosh(x), self.sizes)
        return value + tilts * self.observed[:, None] - exponent, self.sign * by_f / 2


def difference_cumulant(
    law: DifferenceLaw, tilt: Floats, sign: float, f: Floats
) -> tuple[Floats, Floats]:
    """Return K of D, or of -D if `sign` is -1, and its slope in f: see :class:`DifferenceStream`.

    `law`: as for that class; `tilt`, `f`: the tilts of the estimate and the frequencies, of shapes
    that broadcast.
    """
    x = tilt[..., None] * law.coefficient
    if law.free:
        n, slope, farthest = float(law.counts.sum()), tilt, x.max(axis=-1)
        if sign < 0:
            slope = -tilt * np.tanh(farthest) / farthest
        return n * np.log1p(slope * f / n), slope / (1 + slope * f / n)
    grown = sign * law.contrast * np.tanh(x)
    bottom = 1 + f[..., None] * grown
    return np.log(bottom) @ law.counts, (grown / bottom) @ law.counts


@dataclasses.dataclass(frozen=True)
class BetStream(_Sums):
    """Reports of the mechanism `windows`, as the bets W of :class:`SymbolBets`, for one number.

    K, which is concave in theta and at least ln E e^W, makes exp(W - K(theta)) a supermartingale.
    """

    bets: SymbolBets
    total: float

    @property
    def observed(self) -> Floats:
        """The estimate of theta, shape (1,)."""
        return self.bets.mean[None]

    @property
    def max_tilt(self) -> float:
        """The largest tilt that a bet has."""
        return float(self.bets.max_tilt)

    def variance(self) -> Floats:
        """Return the approximate variance, from the squares of the reports."""
        return self.bets.observed_variance(np.clip(self.observed, -1.0, 1.0))

    def lines(self, theta: Floats, tilts: Floats) -> tuple[Floats, Floats]:
        """Return tangents of K, plus tilt times the sum, minus the exponent; and their slopes."""
        value, slope, *_ = log_expected_wealth(self.bets.law, tilts, theta[:, None])
        gained = self.bets.gains(tilts.ravel()).reshape(tilts.shape)
        return value + tilts * self.observed - gained, slope


ReportStream = LawStream | NoiseStream | ScoreStream | DifferenceStream | BetStream
"""A sum S of reports whose cumulant is known, or bounded, for k numbers.

`total`: the factor N of the scale N S on which tilts are fixed; `observed`, shape (k,): the sums as
observed; `max_tilt`: the largest tilt on the scale of S; `variance()`, shape (k,): the approximate
variance of S; `lines(theta, tilts)`: lines in theta that bound the cumulants, as
:func:`.anytime.touch_cumulants`; `at(rows)`: the sums of some of the k numbers."""
