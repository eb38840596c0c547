"""The weights of privacy levels in an estimate.

Weights depend on the numbers of reports per level and on public constants, never on the values. So
a policy can change, or follow the mix of levels, without reading any report again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Self

import numpy as np

from estimators.estimate import Counts, Floats


@dataclasses.dataclass(frozen=True)
class LevelFacts:
    """Public constants of each privacy level, ascending.

    `epsilons`, shape (levels,); `variances`, shape (levels,): the variance of one unbiased report,
    for the data that the mechanism specifies; `paper`, shape (levels,): the weight of one report
    according to the mechanism's paper.
    """

    epsilons: Floats
    variances: Floats
    paper: Floats

    @classmethod
    def of(
        cls, epsilons: Sequence[Fraction], variances: Floats, paper: Floats | None = None
    ) -> Self:
        """Return the constants of levels; by default `paper` is HLDP's tanh^2(epsilon / 2).

        `epsilons`, `variances`, `paper`, shape (levels,): as in the attributes.
        """
        exact = np.array([float(epsilon) for epsilon in epsilons])
        return cls(exact, variances, np.tanh(exact / 2) ** 2 if paper is None else paper)


def optimal(facts: LevelFacts) -> Floats:
    """Return inverse variances, which give the unbiased mean of least variance (Gauss, Markov)."""
    return 1 / facts.variances


def paper(facts: LevelFacts) -> Floats:
    """Return the weights of the paper HLDP (Algorithms 1, 2 and 5), for comparisons."""
    return facts.paper


def uniform(facts: LevelFacts) -> Floats:
    """Return equal weights for all reports, which are right if values depend on the level."""
    return np.ones_like(facts.epsilons)


def proportional(facts: LevelFacts) -> Floats:
    """Return weights in proportion to epsilon: a baseline of the paper HDP-WC (Prop)."""
    return facts.epsilons


WEIGHTINGS: dict[str, Callable[[LevelFacts], Floats]] = {
    policy.__name__: policy for policy in (optimal, paper, uniform, proportional)
}
DEFAULT_POLICY = "optimal"


def level_weights(policy: str, counts: Counts, facts: LevelFacts) -> Floats:
    """Return the share of each level in the estimate.

    The result, of shape (levels,), sums to one; without reports it is all zero.

    `policy`: one of :data:`WEIGHTINGS`, which give the weight of one report of a level; `counts`,
    shape (levels,): reports per level; `facts`: the constants of the levels. A level without
    reports gets weight zero.

    >>> facts = LevelFacts(np.array([1.0, 2.0]), np.array([4.0, 1.0]), np.array([1.0, 4.0]))
    >>> level_weights("optimal", np.array([100, 100]), facts)
    array([0.2, 0.8])
    """
    per_report = WEIGHTINGS[policy](facts)
    shares: Floats = counts * (per_report / per_report.max())
    total = shares.sum()
    return shares / total if total > 0 else shares


def total_weight(policy: str, counts: Counts, facts: LevelFacts) -> float:
    """Return the sum of the reports' weights, in a unit that does not depend on the counts.

    Bounds that hold at all times need weights of single reports that are fixed in advance. The unit
    is the largest standard deviation of one weighted report, over all levels of the metric, with or
    without reports. `policy`: one of :data:`WEIGHTINGS`; `counts`, shape (levels,): reports of each
    level; `facts`: the constants of the levels.

    >>> facts = LevelFacts(np.array([1.0, 2.0]), np.array([4.0, 1.0]), np.array([1.0, 4.0]))
    >>> total_weight("optimal", np.array([100, 100]), facts)
    125.0
    """
    per_report = WEIGHTINGS[policy](facts)
    return float(counts @ per_report / (per_report * np.sqrt(facts.variances)).max())
