"""The length of sums of unit vectors, and the interface that the laws of directions share."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from estimators.bounds.normal import normal_quantile
from estimators.estimate import Floats, Integers
from estimators.question import Question

T = TypeVar("T", np.float64, np.complex128)
PerWindow = Any
"""A number, or for many windows an array with a number for each window."""
LOG_TILT_STEP = 0.03  # between the tilts of a grid that windows share
RELATIVE_DIGITS = 12  # digits of coefficients, far more than bounds need
MARKOV_ENDS = (0.02, 4.0)  # tilts that are tried, in units of a nearly best tilt
TILT_STRIDES = 16, 4, 1  # each 16th tilt is tried first, then each 4th near the best, then each
MAX_LENGTH_STEPS, LENGTH_TOLERANCE = 40, 1e-12  # Newton's method needs five to eight steps
COARSE_TOLERANCE = 0.01  # of lengths that only choose the tilts that are tried next


class VectorLaw(Protocol):
    """The law of the error N of a weighted mean of unit vectors."""

    @property
    def dimension(self) -> int:
        """The number of coordinates."""

    @property
    def variance(self) -> PerWindow:
        """The largest E |N|^2 over all data."""

    @property
    def coordinate_variance(self) -> PerWindow:
        """The variance of each coordinate of N, for bounds from the normal law."""

    def coordinate_deviation(self, log_p: float) -> PerWindow:
        """Return a bound for all j, or one for each, that |N_j| exceeds with probability <= 2 p.

        `log_p`: ln p.
        """

    def radius(self, log_beta: float) -> PerWindow:
        """Return a bound that |N| exceeds with probability at most beta; `log_beta`: ln beta."""

    def anytime_coordinate_deviation(self, log_p: float, total: PerWindow) -> PerWindow:
        """Return bounds as :meth:`coordinate_deviation` does, which hold at all times at once.

        `log_p`: ln p; `total`: from :func:`estimators.weights.total_weight`.
        """

    def anytime_radius(self, log_beta: float, total: PerWindow) -> PerWindow:
        """Return a bound on |N| that holds at all times with probability at least 1 - beta.

        `log_beta`: ln beta; `total`: from :func:`estimators.weights.total_weight`.
        """

    def in_rows(self, laws: Sequence[Any]) -> VectorLaw:
        """Return the laws of windows as one law, in rows."""


@dataclasses.dataclass(frozen=True)
class VectorNoise:
    """The error N = sum of s_i (Y_i - E Y_i) of independent unit vectors of several levels.

    `dimension`: d, at least 1; `counts`, `coefficient`, shape (..., levels): reports per level, and
    s_l, the factor of one report; all above zero. The factors of several windows, in rows, are
    multiples of each other. Bounds have the same leading axes; `unit`: the step of the grid that
    coordinates are rounded to at random.
    """

    max_report_tilt: ClassVar[float]
    """The largest tilt of a report over sqrt(d): larger tilts help only if reports are few."""
    of_windows: ClassVar[tuple[str, ...]] = "counts", "coefficient"
    """The names of the attributes that are stacked for several windows."""

    dimension: int
    counts: Floats
    coefficient: Floats
    unit: float

    def in_rows(self, laws: Sequence[Any]) -> Self:
        """Return the laws of windows as one law, in rows."""
        names = [name for name in self.of_windows if getattr(self, name) is not None]
        stacked: Any = {name: np.array([getattr(law, name) for law in laws]) for name in names}
        return dataclasses.replace(self, **stacked)

    @functools.cached_property
    def square_sum(self) -> PerWindow:
        """The sum of n_l s_l^2."""
        return np.vecdot(self.counts, self.coefficient**2)

    @functools.cached_property
    def variance(self) -> PerWindow:
        """The largest E |N|^2 over all data."""
        return self.square_sum * (1 + self.dimension * self.unit**2 / 4)

    @functools.cached_property
    def max_tilt(self) -> PerWindow:
        """The largest tilt for a cumulant."""
        return self.max_report_tilt * math.sqrt(self.dimension) / self.coefficient.max(axis=-1)

    def tilt_steps(self, tilt: PerWindow) -> Any:
        """Return the steps of the tilts on the grid that are nearest to `tilt`.

        The grid is in units of 1 over the largest coefficient. No step is above the largest tilt
        for a cumulant.
        """
        largest = math.log(self.max_report_tilt * math.sqrt(self.dimension))
        steps = np.rint(np.log(tilt * self.coefficient.max(axis=-1)) / LOG_TILT_STEP)
        return np.minimum(steps, math.floor(largest / LOG_TILT_STEP)).astype(np.int64)

    def tilts_at(self, steps: Integers) -> Floats:
        """Return the tilts of the grid at these steps, with the axes of the coefficients."""
        return np.asarray(
            np.exp(LOG_TILT_STEP * steps) / self.coefficient.max(axis=-1, keepdims=True)
        )

    def largest_length(self, log_mean: Callable[[Floats], Floats], log_beta: float) -> PerWindow:
        """Return a bound that |N| exceeds with probability <= beta: Theorem 4 of spheres.md.

        It is the smaller of Markov's bound, from `log_mean`: ln E M(t |N|), and McDiarmid's.
        """
        # for a normal N of length R sqrt(variance) the best tilt is d (R - 1/R) / sqrt(variance)
        d = self.dimension
        scale = d / np.sqrt(self.variance) * math.sqrt(-2 * log_beta / d + 1)
        steps = self.tilt_steps(np.multiply.outer(MARKOV_ENDS, scale))[..., None]
        count = int((steps[1] - steps[0]).max()) + 1
        tilt = self.tilts_at(np.minimum(steps[0] + np.arange(count), steps[1]))
        markov = length_bound(d, tilt, lambda t: log_mean(t) - log_beta)
        spread = np.sqrt(self.square_sum) * (1 + math.sqrt(d) * self.unit)
        return np.minimum(markov, np.sqrt(self.variance) + spread * math.sqrt(-2 * log_beta))


def length_bound(dimension: int, tilt: Floats, goal: Callable[[Floats], Floats]) -> PerWindow:
    """Return the least R with ln M(t R) >= goal(t) for one of the tilts t, shape (...).

    Tilts are tried at the TILT_STRIDES. `dimension`: d, the dimension of the sphere in the
    definition of M; `tilt`, shape (..., tilts): ascending; `goal`: a function of an array of tilts,
    with values above 0.
    """
    last = tilt.shape[-1] - 1
    best, reach = np.full((*tilt.shape[:-1], 1), last // 2), last // 2 + 1
    for stride in TILT_STRIDES:
        tried = np.clip(best + np.arange(stride - reach, reach, stride), 0, last)
        tilts = np.take_along_axis(tilt, tried, axis=-1)
        tolerance = LENGTH_TOLERANCE if stride == 1 else COARSE_TOLERANCE
        bounds = length_bounds(dimension, tilts, goal(tilts), tolerance)
        best = np.take_along_axis(tried, bounds.argmin(axis=-1, keepdims=True), axis=-1)
        reach = stride
    return bounds.min(axis=-1)


# Theorem 5 of docs/proofs/spheres.md
def length_bounds(
    dimension: int, tilt: Floats, goal: Floats, tolerance: float = LENGTH_TOLERANCE
) -> Floats:
    """Return R with ln M(t R) >= goal for each tilt t, shape of `tilt`; inf if goal is infinite.

    M is that of the sphere of this dimension; tilts and goals are above 0. `dimension`: d, the
    dimension of the sphere; `tilt`, `goal`: the tilts t, and the goal of each; `tolerance`: the
    last relative step of Newton's method.
    """
    finite = np.isfinite(goal)
    log_mean_goal, inner, outer = goal[finite], (dimension - 1) / 2, (dimension + 1) / 2
    x = log_mean_goal + np.sqrt(log_mean_goal * (log_mean_goal + 2 * dimension))
    for _ in range(MAX_LENGTH_STEPS):
        step = (log_mean_cosh(dimension, x) - log_mean_goal) * ((inner + np.hypot(x, outer)) / x)
        x = x - step
        if (np.abs(step) <= tolerance * x).all():
            break
    bounds = np.full(tilt.shape, np.inf)
    bounds[finite] = x * (1 + 2 * tolerance) / tilt[finite]
    return bounds


def deviations_of_windows(
    laws: Sequence[VectorLaw], question: Question, totals: Sequence[float]
) -> Iterable[tuple[PerWindow, PerWindow]]:
    """Return bounds on all coordinates of N at once, and a bound on its length, for each window.

    `laws`: the laws of N; all windows have the same levels; `question`: the bounds of the
    coordinates, and that of the length, are each wrong with probability at most beta; `totals`:
    from :func:`estimators.weights.total_weight`.
    """
    log_p, log_beta = question.log_p(laws[0].dimension), math.log(question.beta)
    if question.bound == "normal":
        from scipy.special import chdtri

        length = math.sqrt(float(chdtri(laws[0].dimension, question.beta)) / laws[0].dimension)
        z = normal_quantile(log_p)
        return [(z * np.sqrt(x.coordinate_variance), length * math.sqrt(x.variance)) for x in laws]
    law, total = laws[0].in_rows(laws), np.array(totals)
    if question.bound == "anytime":
        sides = law.anytime_coordinate_deviation(log_p, total)
        radii = law.anytime_radius(log_beta, total)
    else:
        sides, radii = law.coordinate_deviation(log_p), law.radius(log_beta)
    return zip(sides, radii, strict=True)


def inverse_mean_size(dimension: int) -> float:
    """Return K_d = sqrt(pi) Gamma((d + 1) / 2) / Gamma(d / 2), which is 1 / E0 |Z|.

    >>> [round(inverse_mean_size(d), 6) for d in (1, 2, 3)]
    [1.0, 1.570796, 2.0]
    """
    return math.sqrt(math.pi) * math.exp(
        math.lgamma((dimension + 1) / 2) - math.lgamma(dimension / 2)
    )


def log_mean_cosh(dimension: int, x: Floats) -> Floats:
    """Return a lower bound on ln E0 cosh(x Z), nearly exact: Theorem 5 of docs/proofs/spheres.md.

    >>> float(log_mean_cosh(3, np.array([2.0]))[0].round(4)), round(math.log(math.sinh(2) / 2), 4)
    (0.5846, 0.5952)
    """
    inner, outer = (dimension - 1) / 2, (dimension + 1) / 2
    root = np.hypot(x, outer)
    return x * (x / (root + outer)) - inner * np.log((inner + root) / dimension)


def mean_cosh(dimension: int, square: NDArray[T]) -> NDArray[T]:
    """Return E0 cosh(z Z), Z a coordinate of a uniform unit vector, from z^2.

    >>> float(mean_cosh(1, np.array([4.0]))[0].round(6)), float(np.cosh(2).round(6))
    (3.762196, 3.762196)
    """
    return sum_series(square / 4, lambda k: (k + 1) * (dimension / 2 + k))


def sum_series(x: NDArray[T], ratio: Callable[[int], float]) -> NDArray[T]:
    """Return 1 + x / r_0 + x^2 / (r_0 r_1) + ..., by Horner's scheme.

    `ratio` returns r_k > 0, which grows. Once it is above 2 |x|, the omitted rest is below the last
    summand, which is below 1e-17.
    """
    largest, ratios, last_term = float(np.abs(x).max(initial=0.0)), [ratio(0)], 1.0
    while last_term > 1e-17 or largest > ratios[-1] / 2:
        last_term *= largest / ratios[-1]
        ratios.append(ratio(len(ratios)))
    total = np.ones(x.shape, x.dtype)
    parts: Any = total.view(np.float64)  # real and imaginary parts: much faster to divide
    for divisor in reversed(ratios):
        total *= x
        parts /= divisor
        total += 1
    return total
