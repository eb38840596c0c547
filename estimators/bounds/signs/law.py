"""The law of a weighted sum of signs, or of values with noise: docs/proofs/laws.md."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from estimators.estimate import Floats
from estimators.exact import discrete_laplace

VARIANCE_PIECES = 16  # of an unknown variance's range: more pieces narrow a width by less than 1%
NUMBERS_PER_BLOCK = 2**15  # of each array: a processor's cache holds some twenty of them
MAX_SIGN_TILT = 8.0  # the largest tilt times s_l: larger ones are of no use and lose digits


AnyLaw = TypeVar("AnyLaw", bound=Any)


class Cumulant(NamedTuple):
    """ln E exp(tilt S) at a mean theta; terms for Newton's method and remainders; shape (k,)."""

    value: Floats
    by_tilt: Floats
    by_theta: Floats
    curvature: Floats
    cross: Floats
    third: Floats


class Line(NamedTuple):
    """A line in theta above a sum over levels: its value and slope at theta, shape (k,).

    `shift`, shape (k, levels): how far the worst means of the levels are from theta.
    """

    value: Floats
    slope: Floats
    shift: Floats


class Moments(NamedTuple):
    """Ranges of a law's moments, shape (k, pieces): the true moments are in one of the pieces."""

    least_variance: Floats
    largest_variance: Floats
    third: Floats


@dataclasses.dataclass(frozen=True)
class Law:
    """The law of S, a weighted sum of independent reports of several levels, with the mean theta.

    Parameters
    ----------
    counts : ndarray of float64, shape (levels,)
        The number of reports of each level, above zero; levels without reports are omitted.
    coefficient : ndarray of float64, shape (levels,)
        s_l, the factor of one report, above zero.
    contrast : ndarray of float64, shape (levels,)
        a_l, the contrast of a sign, in (0, 1].
    rate : ndarray of float64, shape (levels,), optional
        The rate of the discrete Laplace noise, if there is any.
    unit : float
        The step of the noise.
    free : bool
        Whether users may have different means or fixed values; theta is then their mean, weighted
        by w = s_l a_l for each report. Otherwise all users' values have the mean theta, whatever
        their level.
    offset : ndarray of float64, shape (levels,), optional
        o_l, in [-1, 1], if a sign has the mean o_l + a_l theta.

    Notes
    -----
    Some methods also accept the laws of many windows, which differ in their numbers of reports:
    `counts` and `coefficient` have the shape (windows, levels), and results one row per window.
    """

    counts: Floats
    coefficient: Floats
    contrast: Floats
    rate: Floats | None = None
    unit: float = 0.0
    free: bool = False
    offset: Floats | None = None

    @property
    def is_determined_by_mean(self) -> bool:
        """Whether theta alone determines the law of the sum: signs with one common mean."""
        return self.rate is None and not self.free

    @property
    def is_binomial(self) -> bool:
        """Whether the sum is that of independent signs of one level with one mean."""
        return self.is_determined_by_mean and self.contrast.size == 1

    def rows(self, windows: Any) -> Self:
        """Return the laws that a numpy index of windows selects; None makes one window a row."""
        changed = {"counts": self.counts[windows], "coefficient": self.coefficient[windows]}
        return dataclasses.replace(self, **changed)

    def of_rows(self, rows: Any) -> Self:
        """Return the laws of these rows; the law itself if it is that of a single window."""
        return self.rows(rows) if self.counts.ndim > 1 else self

    def mirrored(self) -> Law:
        """Return the law of -S, whose mean is -theta."""
        if self.offset is None:
            return self
        return dataclasses.replace(self, offset=-self.offset)

    def means(self, theta: Floats) -> Floats:
        """Return the means of the signs, shape (k, levels), if all users have mean theta."""
        mean: Floats = theta[:, None] * self.contrast
        return mean if self.offset is None else mean + self.offset

    @functools.cached_property
    def max_tilt(self) -> float:
        """The largest tilt for :meth:`cumulant`."""
        limit: float = MAX_SIGN_TILT / self.coefficient.max(axis=-1)
        if self.rate is None:
            return limit
        return min(limit, 0.999 * float((self.rate / (self.unit * self.coefficient)).min()))

    # Theorems 1 and 2 of docs/proofs/laws.md
    def cumulant(self, theta: Floats, tilt: Floats) -> Cumulant:
        """Return an upper bound on ln E exp(tilt S); exact for signs with one common mean.

        `theta` is in [-1, 1], `tilt` above 0 and at most `max_tilt`; both have the shape (k,).
        """
        z = tilt[:, None] * self.coefficient
        terms, tilted, spread, tanh, denominator = tilted_signs(z, self.means(theta))
        square = self.coefficient**2
        cube = square * self.coefficient
        by_theta = tanh / denominator
        value = np.vecdot(terms, self.counts)
        by_tilt = np.vecdot(tilted, self.counts * self.coefficient)
        curvature = np.vecdot(spread, self.counts * square)
        if self.offset is not None:
            offset_sum = np.vecdot(self.counts, self.coefficient * self.offset)
            value, by_tilt = value - tilt * offset_sum, by_tilt - offset_sum
        if self.rate is not None:
            step = self.unit * self.coefficient
            noise = discrete_laplace.cumulant(self.rate, tilt[:, None] * step)
            value = value + np.vecdot(noise[0], self.counts)
            by_tilt = by_tilt + np.vecdot(noise[1], self.counts * step)
            curvature = curvature + np.vecdot(noise[2], self.counts * step**2)
        cross = (1 - tanh) * (1 + tanh) / denominator**2 * (self.contrast * self.coefficient)
        line = self._line(value, theta, self.contrast * by_theta)
        return Cumulant(
            value=line.value,
            by_tilt=by_tilt + np.vecdot(cross * line.shift, self.counts),
            by_theta=line.slope,
            curvature=curvature,
            cross=np.vecdot(cross, self.counts),
            third=np.vecdot(spread * (1 + tilted**2), self.counts * cube),
        )

    def tangent(self, theta: Floats, tilt: Floats) -> tuple[Floats, Floats]:
        """Return the value of :meth:`cumulant`, and the slope of a line in theta above it."""
        z = tilt[:, None] * self.coefficient
        terms, tanh, denominator = _log_mgf_of_signs(z, self.means(theta))
        by_theta = self.contrast * tanh / denominator
        value = np.vecdot(terms, self.counts)
        if self.offset is not None:
            value -= tilt * np.vecdot(self.counts, self.coefficient * self.offset)
        if self.rate is not None:
            step = self.unit * self.coefficient
            noise = discrete_laplace.cumulant(self.rate, tilt[:, None] * step)[0]
            value += np.vecdot(noise, self.counts)
        return self._line(value, theta, by_theta)[:2]

    def _line(self, value: Floats, theta: Floats, by_theta: Floats) -> Line:
        """Return a line in theta above a concave sum, from its value and slopes at equal means."""
        if not self.free:
            return Line(value, np.vecdot(by_theta, self.counts), np.zeros(1))
        gain, slope, shift = self._free_tangent(theta, by_theta)
        return Line(value + gain, slope, shift)

    def _free_increase(self, theta: Floats, by_theta: Floats) -> Floats:
        """Return the most by which free means can increase a concave sum over levels."""
        return self._free_tangent(theta, by_theta).value

    # Theorem 2 of docs/proofs/laws.md
    def _free_tangent(self, theta: Floats, by_theta: Floats) -> Line:
        """Return the most by which free means can increase a concave sum over levels.

        The line also has the slope of the sum in theta, and the levels' means minus theta.
        """
        share = np.broadcast_to(self.counts * self.coefficient * self.contrast, by_theta.shape)
        slopes = by_theta / (self.coefficient * self.contrast)
        order = np.argsort(slopes, axis=1, kind="stable")
        in_order = np.take_along_axis(share, order, axis=1)
        cumulative, total = np.cumsum(in_order, axis=1), share.sum(axis=1)
        lowered = ((1 - theta) / 2 * total)[:, None] - cumulative + in_order
        rank = np.argmax(lowered <= in_order + 1e-12 * total[:, None], axis=1)
        nu = np.take_along_axis(slopes, np.take_along_axis(order, rank[:, None], axis=1), axis=1)
        shift = np.empty_like(slopes)
        means = 1 - 2 * np.clip(lowered / in_order, 0, 1)
        np.put_along_axis(shift, order, means - theta[:, None], axis=1)
        return Line(np.vecdot((slopes - nu) * shift, share), nu[:, 0] * total, shift)

    @functools.cached_property
    def _noise_moments(self) -> tuple[Floats, Floats, Floats]:
        if self.rate is None:
            zero = np.zeros_like(self.counts)
            return zero, zero, zero
        return (
            discrete_laplace.absolute_moment(self.rate) * self.unit,
            discrete_laplace.variance(self.rate) * self.unit**2,
            discrete_laplace.third_absolute_moment(self.rate) * self.unit**3,
        )

    def variances(self, theta: Floats) -> Floats:
        """Return the largest variance of one report Y at each level, shape (k, levels)."""
        mean = self.means(theta)
        sign_variance: Floats = (1 - mean) * (1 + mean)
        return sign_variance if self.rate is None else sign_variance + self._noise_moments[1]

    def _variance_slopes(self, theta: Floats) -> Floats:
        """Return the derivative of :meth:`variances`, linear in theta."""
        return -2 * self.contrast * self.means(theta)

    @functools.cached_property
    def worst_variance(self) -> float:
        """The largest variance of S over all data: that of signs whose mean is nearest to zero."""
        weight, hardest = self.counts * self.coefficient**2, np.zeros(1)
        if self.offset is not None:
            slopes = self._variance_slopes(np.array([0.0, 1.0]))
            at_zero, at_one = (np.vecdot(slope, weight) for slope in slopes)
            hardest = np.clip(at_zero / (at_zero - at_one), -1.0, 1.0).ravel()
        variances = self.variances(hardest)
        worst: float = np.vecdot(weight, variances if len(variances) > 1 else variances[0])
        return worst

    @functools.cached_property
    def proxy(self) -> float:
        """The sum of n s^2: by Hoeffding's lemma, K(t) <= t E S + t^2 proxy / 2 for all signs."""
        proxy: float = np.vecdot(self.counts, self.coefficient**2)
        return proxy

    @property
    def offsets(self) -> Floats:
        """The offsets o_l, zero at every level if there are none; shape (levels,)."""
        return np.zeros_like(self.contrast) if self.offset is None else self.offset

    @property
    def offset_rounding(self) -> float:
        """The largest change of theta by rounding o_l to doubles."""
        if self.offset is None:
            return 0.0
        rounding: float = 1e-15 * np.vecdot(self.counts, self.coefficient)
        return rounding

    # Theorem 3 (a) of docs/proofs/laws.md
    def largest_variance(self, theta: Floats) -> Floats:
        """Return the largest variance of S over all data with the mean theta, shape of `theta`."""
        if self.offset is not None:
            square = self.coefficient**2
            variance: Floats = np.vecdot(square * self.variances(theta), self.counts)
            if self.free:
                variance += self._free_increase(theta, square * self._variance_slopes(theta))
            return np.maximum(variance, 1e-12 * self.worst_variance)
        if self.free:
            saving_per_square = 1 / self.counts.sum(axis=-1)
        else:
            saving_per_square = np.vecdot(self.counts, (self.coefficient * self.contrast) ** 2)
        largest: Floats = self.worst_variance - saving_per_square * theta**2
        return np.maximum(largest, 1e-12 * self.worst_variance)

    # Theorem 3 of docs/proofs/laws.md
    def moments(self, theta: Floats) -> Moments:
        """Return ranges that contain the moments of S for all data with the mean `theta`."""
        if self.offset is not None:
            return self.free_sign_moments(theta)
        value_variance = 1 - theta[:, None] ** 2
        if self.rate is None or self.free:
            noise_variance = (1 - self.contrast) * (1 + self.contrast) + self._noise_moments[1]
            noise_sum = np.vecdot(self.counts, self.coefficient**2 * noise_variance)
            third = np.vecdot(self.counts, self.coefficient**3) + self._noise_third(np.ones(1))
            least_variance, third = (
                np.broadcast_to(x, theta.shape)[:, None] for x in (noise_sum, third)
            )
            return Moments(least_variance, self.largest_variance(theta)[:, None], third)
        edges = value_variance * np.linspace(0, 1, VARIANCE_PIECES + 1)
        variance = self.worst_variance - self.proxy * (1 - edges)
        upper_edges = edges[:, 1:]
        skew = np.minimum(1 - (1 - value_variance) ** 2, (1 + np.abs(theta))[:, None] * upper_edges)
        third = skew * float(self.counts @ self.coefficient**3)
        return Moments(variance[:, :-1], variance[:, 1:], third + self._noise_third(upper_edges))

    # Theorems 2 and 3 of docs/proofs/laws.md
    def free_sign_moments(self, theta: Floats, radius: Floats | float = 0.0) -> Moments:
        """Return ranges of the moments of S; the mean of the free means is in theta +- `radius`."""
        offset = np.zeros_like(self.contrast) if self.offset is None else self.offset
        square = self.coefficient**2
        cube = square * self.coefficient
        max_mean = np.abs(offset) + self.contrast
        least_variance = np.vecdot(self.counts, square * (1 - max_mean) * (1 + max_mean))
        mean = self.means(theta)
        largest_variance = np.vecdot(square * self.variances(theta), self.counts)
        gain, slope, _ = self._free_tangent(theta, square * self._variance_slopes(theta))
        largest_variance = largest_variance + gain + np.abs(slope) * radius
        largest_variance = np.maximum(largest_variance, 1e-12 * self.worst_variance)
        mean_square = mean**2
        third = np.vecdot(cube * (1 - mean_square**2), self.counts)
        gain, slope, _ = self._free_tangent(theta, -4 * cube * self.contrast * mean_square * mean)
        third = third + gain + np.abs(slope) * radius
        return Moments(
            np.broadcast_to(np.maximum(least_variance, 0.0), theta.shape)[:, None],
            largest_variance[:, None],
            third[:, None],
        )

    def _noise_third(self, variance: Floats) -> Floats:
        """Return a bound on what noise adds to the third moment of values with this variance."""
        weight = self.counts * self.coefficient**3
        first, second, cube = (np.vecdot(weight, moment) for moment in self._noise_moments)
        third: Floats = cube + 3 * np.minimum(variance * first, np.sqrt(variance) * second)
        return third


def blocks(size: int, numbers: int) -> Iterator[slice]:
    """Yield slices of `size` rows of `numbers` numbers, each of which a processor's cache holds."""
    step = max(1, NUMBERS_PER_BLOCK // max(1, numbers))
    for first in range(0, size, step):
        yield slice(first, first + step)


def laws_in_rows(laws: Sequence[AnyLaw]) -> AnyLaw:
    """Return the laws of windows, which differ only in their numbers of reports, as one law."""
    counts, coefficient = (
        np.array([getattr(law, name) for law in laws]) for name in ("counts", "coefficient")
    )
    return dataclasses.replace(laws[0], counts=counts, coefficient=coefficient)


def tilted_signs(z: Floats, mean: Floats) -> tuple[Floats, ...]:
    """Return ln E exp(z Y), the tilted mean and variance, tanh z and 1 + mean tanh z.

    `z`, `mean`: the tilts and means of signs Y, of shapes that broadcast.
    """
    terms, tanh, denominator = _log_mgf_of_signs(z, mean)
    tilted = (tanh + mean) / denominator
    return terms, tilted, (1 - tilted) * (1 + tilted), tanh, denominator


def _log_mgf_of_signs(z: Floats, mean: Floats) -> tuple[Floats, Floats, Floats]:
    """Return ln E exp(z Y), tanh z and 1 + mean tanh z, for z of at least 0."""
    growth = np.expm1(2 * z)
    tanh = growth / (growth + 2)
    terms = np.log1p((1 + mean) / 2 * growth) - z
    return terms, tanh, 1 + mean * tanh
