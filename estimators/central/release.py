"""One release: integer weights, and one draw of exact noise.

Theorem 1 of docs/proofs/trusted.md: the privacy of a release depends on integers alone. The rate of
the noise is the largest at which no level loses more than its epsilon.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from estimators.estimate import Counts, Floats, Integers
from estimators.exact import discrete_laplace
from estimators.exact.laplace_sampler import DiscreteLaplace
from estimators.exact.randomness import Bits

LARGEST_WEIGHT = 2**25
"""The largest integer weight, so that an epsilon with 4 decimals fits the sampler's limit, 2^40."""


@dataclasses.dataclass(frozen=True)
class ReleaseNoise:
    """Integer weights and the noise that they need.

    `epsilons`: the epsilons of the levels with reports; `weights`: d_l, 1 to LARGEST_WEIGHT;
    `sensitivity`: the largest change of the sums, in l1, if a report of weight 1 changes its value.
    """

    epsilons: tuple[Fraction, ...]
    weights: tuple[int, ...]
    sensitivity: int

    @classmethod
    def of(cls, epsilons: Sequence[Fraction], per_report: Floats, sensitivity: int) -> ReleaseNoise:
        """Return the noise for real weights.

        Weights are rounded down to multiples of the largest weight / 2^25, but never to 0.
        `per_report`, shape (levels,): the weight of a report of each level; `epsilons`,
        `sensitivity`: as in the attributes.
        """
        steps = np.floor(per_report * (LARGEST_WEIGHT / per_report.max()))
        weights = tuple(max(1, min(LARGEST_WEIGHT, int(step))) for step in steps.tolist())
        return cls(tuple(epsilons), weights, sensitivity)

    @functools.cached_property
    def rate(self) -> Fraction:
        """The largest rate at which no level loses more than its epsilon."""
        levels = zip(self.epsilons, self.weights, strict=True)
        return min(epsilon / (self.sensitivity * weight) for epsilon, weight in levels)

    @property
    def losses(self) -> tuple[Fraction, ...]:
        """The exact privacy loss of one report of each level, at most the level's epsilon.

        The losses are the certificate of a release: theorem 1 of docs/proofs/trusted.md.
        """
        return tuple(self.rate * self.sensitivity * weight for weight in self.weights)

    def total(self, counts: Counts) -> int:
        """Return sum n_l d_l, where `counts` are the numbers n_l of reports."""
        return sum(int(c) * d for c, d in zip(counts.tolist(), self.weights, strict=True))

    def draw(self, bits: Bits, size: int) -> Integers:
        """Return the noise of `size` sums, drawn exactly."""
        return DiscreteLaplace(self.rate).draw(bits, size)

    @property
    def variance(self) -> float:
        """The variance of the noise of one sum."""
        return float(discrete_laplace.variance(np.array(float(self.rate))))

    def quantile(self, log_p: float) -> float:
        """Return a t that the noise of one sum exceeds with probability at most p.

        P(Z >= t) = q^t / (1 + q), q = exp(-rate), for t = 1, 2, ... `log_p`: ln p, below ln(1/2).
        """
        rate = float(self.rate)
        return max(0.0, math.ceil((-log_p - math.log1p(math.exp(-rate))) / rate * (1 + 1e-12)))
