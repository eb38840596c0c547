"""The law of several signs of a user for one value: Theorem 4 of docs/proofs/laws.md."""

from __future__ import annotations

import dataclasses

import numpy as np

from estimators.bounds.signs.law import VARIANCE_PIECES, Cumulant, Law, Moments, tilted_signs
from estimators.estimate import Floats


@dataclasses.dataclass(frozen=True, kw_only=True)
class RepeatedLaw(Law):
    """Independent users of several levels; Y is the mean of the `repeats` signs of a user.

    Users are a random sample. (If their values were fixed, all signs would be independent, and the
    law would be that of n r single signs.) `repeats`, shape (levels,): r_l, at least 1; `values`:
    whether users hold values in [-1, 1]; otherwise they hold signs.
    """

    repeats: Floats
    values: bool = False

    @property
    def is_determined_by_mean(self) -> bool:
        """Whether theta alone determines the law of the sum: not if users repeat values."""
        return super().is_determined_by_mean and not (
            self.values and bool((self.repeats > 1).any())
        )

    @property
    def is_binomial(self) -> bool:
        """Whether the sum is that of independent signs: not if a user reports several."""
        return super().is_binomial and bool((self.repeats == 1).all())

    def cumulant(self, theta: Floats, tilt: Floats) -> Cumulant:
        """Return an upper bound on ln E exp(tilt S).

        It is exact if all values are -1 or 1, with the same mean.
        """
        z = tilt[:, None] * self.coefficient
        log_mgf, tilted, spread, mean_gap, growth, denominator = self.tilted_users(
            theta[:, None], z
        )
        by_theta, mean = growth / (2 * denominator), tilted + self.offsets
        square = self.coefficient**2
        value = np.vecdot(log_mgf, self.counts)
        cross = self.coefficient * mean_gap * (1 + growth) / (2 * denominator**2)
        line = self._line(value, theta, by_theta)
        return Cumulant(
            value=line.value,
            by_tilt=np.vecdot(self.coefficient * tilted + cross * line.shift, self.counts),
            by_theta=line.slope,
            curvature=np.vecdot(square * spread, self.counts),
            cross=np.vecdot(cross, self.counts),
            third=np.vecdot(square * self.coefficient * spread * (1 + np.abs(mean)), self.counts),
        )

    def tilted_users(self, theta: Floats, z: Floats) -> tuple[Floats, ...]:
        """Return ln E exp(z (Y - o)), its first two derivatives in z, and terms of Newton's method.

        These terms are the gap between a sign's tilted means for +1 and -1, the growth of
        :meth:`_growth`, and 1 + w growth, where w is the share of users who hold +1.
        """
        share = (1 + theta) / 2
        terms, non_holder_mean, tanh, growth = self._growth(z)
        untilted_mean = self.offsets + self.contrast
        holder_mean = (tanh + untilted_mean) / (1 + untilted_mean * tanh)
        mean_gap = holder_mean - non_holder_mean
        denominator = 1 + share * growth
        holders = share * (1 + growth) / denominator
        tilted = non_holder_mean + holders * mean_gap
        skew = holders * (non_holder_mean - holder_mean) * (non_holder_mean + holder_mean)
        spread = (1 - non_holder_mean**2 + skew) / self.repeats
        spread = spread + holders * (1 - holders) * mean_gap**2
        value = terms + np.log1p(share * growth)
        return value, tilted - self.offsets, spread, mean_gap, growth, denominator

    def _growth(self, z: Floats) -> tuple[Floats, ...]:
        """Return ln E exp(z (Y - o)) given -1, a sign's tilted mean, tanh(z / r), and the growth.

        The growth g is defined by E[exp(z Y) | +1] = (1 + g) E[exp(z Y) | -1].
        """
        untilted_mean = self.offsets - self.contrast
        terms, non_holder_mean, _, tanh, denominator = tilted_signs(z / self.repeats, untilted_mean)
        growth = np.expm1(self.repeats * np.log1p(2 * self.contrast * tanh / denominator))
        return self.repeats * terms - z * self.offsets, non_holder_mean, tanh, growth

    def tangent(self, theta: Floats, tilt: Floats) -> tuple[Floats, Floats]:
        """Return the value of :meth:`cumulant`, and the slope of a line in theta above it."""
        z = tilt[:, None] * self.coefficient
        terms, _, _, growth = self._growth(z)
        share = (1 + theta[:, None]) / 2 * growth
        by_theta = growth / (2 * (1 + share))
        return self._line(np.vecdot(terms + np.log1p(share), self.counts), theta, by_theta)[:2]

    @property
    def proxy(self) -> float:
        """Hoeffding's variance proxy of S: the sum over users of s^2 min(1, 1/r + a^2)."""
        user_proxy = np.minimum(1, 1 / self.repeats + self.contrast**2)
        proxy: float = np.vecdot(self.counts, self.coefficient**2 * user_proxy)
        return proxy

    def variances(self, theta: Floats) -> Floats:
        """Return the largest variance of Y at each level, shape (k, levels)."""
        return self.user_variances(theta[:, None])

    def user_variances(self, theta: Floats) -> Floats:
        """Return the variance of Y for values of +1 and -1 with mean theta, shape (..., levels)."""
        flips = 1 - self.offsets**2 - self.contrast**2
        sign_variance = flips - 2 * self.offsets * self.contrast * theta
        value_variance = self.contrast**2 * (1 - theta) * (1 + theta)
        variance: Floats = sign_variance / self.repeats + value_variance
        return variance

    def _variance_slopes(self, theta: Floats) -> Floats:
        sign_slope = self.offsets * self.contrast / self.repeats
        return -2 * (sign_slope + self.contrast**2 * theta[:, None])

    def moments(self, theta: Floats) -> Moments:
        """Return ranges that contain the moments of S for all data with the mean `theta`."""
        square = self.coefficient**2
        cube = square * self.coefficient
        if self.free:
            max_mean = np.abs(self.offsets) + self.contrast
            sign_variance = (1 - max_mean) * (1 + max_mean) / self.repeats
            least_variance = np.vecdot(square * sign_variance, self.counts)
            third = np.vecdot(cube * (1 + max_mean) * self.variances(theta), self.counts)
            slopes = cube * (1 + max_mean) * self._variance_slopes(theta)
            third = third + self._free_increase(theta, slopes)
            return Moments(
                np.broadcast_to(np.maximum(least_variance, 0.0), theta.shape)[:, None],
                self.largest_variance(theta)[:, None],
                third[:, None],
            )
        edges = (1 - theta[:, None] ** 2) * np.linspace(0, 1, VARIANCE_PIECES + 1)
        mean = self.means(theta)
        sign_variance = (1 - mean) * (1 + mean) / self.repeats
        value_factor = self.contrast**2 * (1 - 1 / self.repeats)

        def summed(weight: Floats) -> Floats:
            by_sign = np.vecdot(weight * sign_variance, self.counts)[:, None]
            by_value = np.vecdot(weight * value_factor, self.counts)[..., None]
            total: Floats = by_sign + by_value * edges
            return total

        variance = summed(np.broadcast_to(square, mean.shape))
        third = summed(cube * (1 + np.abs(mean)))
        return Moments(variance[:, :-1], variance[:, 1:], third[:, 1:])
