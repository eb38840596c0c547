"""The law of a weighted sum of reports, as far as it is known.

Every estimate of a mean is S = sum of s_l Y over all reports, with E S = theta in [-1, 1]. For
randomized response and for one category of RAPPOR, Y is a sign with mean a_l x; for the Laplace
mechanism, Y is x itself (a_l = 1) plus discrete Laplace noise.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import numpy as np

from estimators import discrete_laplace
from estimators.estimate import Floats

PIECES = 16  # of the range of an unknown variance: finer ones gain less than 1% of a width
STEEPEST = 8.0  # of tilt times s_l: a steeper tilt gains nothing and loses digits


class Cumulant(NamedTuple):
    """ln E exp(tilt S) at a mean theta, and what Newton's method needs; each of shape (k,)."""

    value: Floats
    by_tilt: Floats
    by_theta: Floats
    curvature: Floats
    cross: Floats
    third: Floats


class Moments(NamedTuple):
    """Pieces of a law's moments, of shape (k, pieces): the truth lies in one of the pieces."""

    least_variance: Floats
    largest_variance: Floats
    third: Floats


@dataclasses.dataclass(frozen=True)
class Law:
    """Independent reports of several levels.

    Parameters
    ----------
    counts : ndarray of float64, shape (levels,)
        Reports per level, each above zero: levels without reports are left out.
    coefficient : ndarray of float64, shape (levels,)
        s_l, above zero.
    contrast : ndarray of float64, shape (levels,)
        a_l, in (0, 1].
    rate : ndarray of float64, shape (levels,), optional
        Of the discrete Laplace noise, if there is any.
    unit : float
        The step of the noise.
    free : bool
        False: all users' values have the same mean theta, whatever their level. True: every user
        may have a mean, or a fixed value, of their own, and theta is the mean of these weighted by
        w = s_l a_l per report.
    """

    counts: Floats
    coefficient: Floats
    contrast: Floats
    rate: Floats | None = None
    unit: float = 0.0
    free: bool = False

    @property
    def exact(self) -> bool:
        """Whether theta alone fixes the law of the sum: signs with one common mean."""
        return self.rate is None and not self.free

    @functools.cached_property
    def steepest(self) -> float:
        """The largest tilt at which :meth:`cumulant` may be asked."""
        limit = STEEPEST / float(self.coefficient.max())
        if self.rate is None:
            return limit
        return min(limit, 0.999 * float((self.rate / (self.unit * self.coefficient)).min()))

    def cumulant(self, theta: Floats, tilt: Floats) -> Cumulant:
        """Bound ln E exp(tilt S) from above; exact for signs with one common mean.

        A value in [-1, 1] with mean m has E exp(z x) <= cosh z + m sinh z, with equality for signs
        (the exponential lies below its chord). The logarithm of that is concave in m, so by Jensen
        the users of a level are covered by their mean.

        Parameters
        ----------
        theta : ndarray of float64, shape (k,)
            In [-1, 1].
        tilt : ndarray of float64, shape (k,)
            Above 0, at most `steepest`.
        """
        z = tilt[:, None] * self.coefficient
        mean = theta[:, None] * self.contrast
        decay = np.expm1(-2 * z)
        tanh = -decay / (2 + decay)
        upper_side = mean >= 0
        away = (1 - np.abs(mean)) / 2
        growth = np.where(upper_side, decay, -decay / (1 + decay))
        terms = np.where(upper_side, z, -z) + np.log1p(away * growth)
        bottom = 1 + mean * tanh
        tilted = (tanh + mean) / bottom
        spread = (1 - tilted) * (1 + tilted)
        by_theta = self.contrast * tanh / bottom
        cross = self.contrast * self.coefficient * (1 - tanh) * (1 + tanh) / bottom**2
        slope, bend = self.coefficient * tilted, self.coefficient**2 * spread
        if self.rate is not None:
            step = self.unit * self.coefficient
            noise = discrete_laplace.cumulant(self.rate, tilt[:, None] * step)
            terms, slope, bend = (
                terms + noise[0],
                slope + step * noise[1],
                bend + step**2 * noise[2],
            )
        value = terms @ self.counts
        if self.free:
            value = value + self._freedom(theta, by_theta)
        return Cumulant(
            value=value,
            by_tilt=slope @ self.counts,
            by_theta=by_theta @ self.counts,
            curvature=bend @ self.counts,
            cross=cross @ self.counts,
            third=(self.coefficient**3 * spread * (1 + tilted**2)) @ self.counts,
        )

    def _freedom(self, theta: Floats, by_theta: Floats) -> Floats:
        """Bound what the cumulant can gain if levels have means of their own.

        The sum over levels is concave in the vector of their means, so it lies below its tangent
        plane at (theta, ..., theta): value + sum g_l (theta_l - theta), g_l = n_l by_theta_l. Since
        sum w_l (theta_l - theta) = 0 with w_l = n_l s_l a_l, g_l may be replaced by g_l - nu w_l
        for any nu, and |theta_l - theta| <= 1 + |theta|.
        """
        gain = by_theta * self.counts
        share = self.counts * self.coefficient * self.contrast
        nu = gain.sum(axis=1) / share.sum()
        result: Floats = np.abs(gain - nu[:, None] * share).sum(axis=1) * (1 + np.abs(theta))
        return result

    # -- Moments, for the Berry-Esseen theorem ---------------------------------------------------

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

    @functools.cached_property
    def worst_variance(self) -> float:
        """The largest variance of S over all data: signs with mean zero."""
        return float(self.counts @ (self.coefficient**2 * (1 + self._noise_moments[1])))

    def largest_variance(self, theta: Floats) -> Floats:
        """Return the largest variance of S that the mean leaves possible, shape of `theta`.

        With a common mean, sum n s^2 (1 - a^2 theta^2) plus noise. With free means theta_i,
        sum s^2 a^2 theta_i^2 >= (sum s a theta_i)^2 / n = theta^2 / n by Cauchy and Schwarz.
        """
        if self.free:
            saved = 1 / self.counts.sum()
        else:
            saved = self.counts @ (self.coefficient * self.contrast) ** 2
        result: Floats = np.maximum(
            self.worst_variance - saved * theta**2, 1e-12 * self.worst_variance
        )
        return result

    def moments(self, theta: Floats) -> Moments:
        """Enclose the moments of S that the mean leaves possible.

        Of x in [-1, 1] with mean theta and variance v, A = x - theta has E |A| <= sqrt(v) and E
        |A|^3 <= (1 + |theta|) v; signs are extreme for E |A|^3 <= 1 - theta^4. For independent A
        and B, B symmetric, E |A + B|^3 <= E |A|^3 + E |B|^3 + 3 min(E A^2 E |B|, E |A| E B^2): with
        m the larger and s the smaller of |A| and |B|, the mean over the sign of B is m^3 + 3 m s^2.

        With noise and one common mean, v is common too, and its range is cut into pieces.
        """
        rest = 1 - theta[:, None] ** 2
        if self.rate is None or self.free:
            kept = (1 - self.contrast) * (1 + self.contrast) + self._noise_moments[1]
            least = np.full_like(rest, self.counts @ (self.coefficient**2 * kept))
            ones = np.ones_like(rest)
            return Moments(
                least, self.largest_variance(theta)[:, None], self._third_moment(ones, ones)
            )
        edges = rest * np.linspace(0, 1, PIECES + 1)
        data = self.counts @ self.coefficient**2
        variance = self.worst_variance - data * (1 - edges)
        high = edges[:, 1:]
        skew = np.minimum(1 - (1 - rest) ** 2, (1 + np.abs(theta))[:, None] * high)
        return Moments(variance[:, :-1], variance[:, 1:], self._third_moment(high, skew))

    def _third_moment(self, variance: Floats, third: Floats) -> Floats:
        weight = self.counts * self.coefficient**3
        first, second, cube = (float(weight @ moment) for moment in self._noise_moments)
        mixed = np.minimum(variance * first, np.sqrt(variance) * second)
        result: Floats = third * weight.sum() + cube + 3 * mixed
        return result
