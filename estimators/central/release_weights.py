"""The weights of reports in a release, for each privacy level.

For n users with epsilons e_i and values x_i, a release adds noise of scale |w/e|_inf, the largest
w_i / e_i, to sum w_i x_i, where sum w_i = 1. All policies here except ``hpm-a`` and ``hpf-a`` have
w_i ~ min(e_i, T) with different thresholds T: levels above T do not improve the release.

Sources: HDP-WC, Tables 1 and 3 and Algorithm 3; ADPM, Algorithm 1.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np

from estimators.errors import meant
from estimators.estimate import Floats

ADPM_NOISE = 8.0  # 2 / (1/4), from ADPM's objective |w|^2 / 4 + 2 |w/e|^2
HOPELESS_ERROR = 1 / 4  # the worst-case error of the middle of the domain, of width 1


@dataclasses.dataclass(frozen=True)
class ReportWeights:
    """The weight of one report of each level.

    `per_report`, shape (levels,): w_l, with sum n_l w_l = 1; `saturation`: T, the epsilon above
    which a level does not improve the release; None without a threshold.
    """

    per_report: Floats
    saturation: float | None


def noise_scale(epsilons: Floats, per_report: Floats) -> float:
    """Return |w/e|_inf, the scale of the noise for values in [0, 1].

    `epsilons`, `per_report`, shape (levels,): e_l, and the weight w_l of one report.
    """
    return float((per_report / epsilons).max())


def capped(epsilons: Floats, counts: Floats, threshold: float) -> Floats:
    """Return w_l proportional to min(e_l, T), with sum n_l w_l = 1.

    `epsilons`, `counts`, shape (levels,): the levels e_l, and their reports n_l; `threshold`: T,
    above which a larger epsilon adds no weight.

    >>> capped(np.array([1.0, 2.0, 9.0]), np.array([1.0, 1.0, 1.0]), 2.0)
    array([0.2, 0.4, 0.4])
    """
    shape = np.minimum(epsilons, threshold)
    return shape / (counts @ shape)


def square_threshold(epsilons: Floats, counts: Floats, noise: float) -> float:
    """Return the T whose weights have the least |w|_2^2 + c |w/e|_inf^2.

    It may be above the largest epsilon; an additional level up to T would then improve the release.
    Theorem 3 of docs/proofs/trusted.md; prefix sums find T in O(levels).

    `epsilons`, `counts`, shape (levels,): e_l, ascending, and n_l, each above zero; `noise`: c, at
    least 0.

    Two groups of 700 and 300 users: T = e_1 (1 + 8 / (e_1^2 n f)), ADPM's equation (4).

    >>> round(square_threshold(np.array([0.1, 5.0]), np.array([700.0, 300.0]), 8.0), 6)
    0.214286
    """
    e, n = epsilons, counts
    first, second = np.cumsum(n * e), np.cumsum(n * e**2)
    reached = np.maximum.accumulate(e * first - second)
    below = max(1, int(np.searchsorted(reached, noise))) - 1
    return float((noise + second[below]) / first[below])


def deviation_threshold(epsilons: Floats, counts: Floats, noise: float) -> float:
    """Return the T whose weights have the least |w - 1/n|_1^2 + c |w/e|_inf^2.

    If there are several minima, T is that of the least |w|_2; it is at most the largest epsilon.
    Theorem 4 of docs/proofs/trusted.md.

    `epsilons`, `counts`, shape (levels,): e_l, ascending, and n_l, each above zero; `noise`: c, at
    least 0.
    """
    e, n = epsilons, counts
    users, first = np.cumsum(n), np.cumsum(n * e)
    total = float(users[-1])
    bend = 1 / (total * e)
    lack = (users - n) / total - bend * (first - n * e)
    rises = 2 * noise * bend - 8 * lack * (first - n * e) >= 0
    piece = int(np.flatnonzero(rises)[-1]) if rises.any() else 0
    share, sum_of_e = users[piece] / total, first[piece]
    eta = min(4 * share * sum_of_e / (noise + 4 * sum_of_e**2), float(bend[piece]))
    volume = min(1 / eta, float(first[-1]))
    filled = np.maximum.accumulate(first + e * (total - users))
    below = int(np.searchsorted(filled, volume, side="right"))
    if below >= e.size:
        return float(e[-1])
    if below == 0:
        return float(e[0])
    return float((volume - first[below - 1]) / (total - users[below - 1]))


def _square(epsilons: Floats, counts: Floats, noise: float) -> ReportWeights:
    threshold = square_threshold(epsilons, counts, noise)
    return ReportWeights(capped(epsilons, counts, threshold), threshold)


def heuristic(epsilons: Floats, counts: Floats, log_term: float) -> ReportWeights:
    """Return HPM-A's and HPF-A's weights, w ~ 1 - exp(-e), for values unrelated to the level.

    `epsilons`, `counts`, `log_term`: as in :data:`Policy`.
    """
    shape = -np.expm1(-epsilons)
    return ReportWeights(shape / (counts @ shape), None)


def correlated(epsilons: Floats, counts: Floats, log_term: float) -> ReportWeights:
    """Return HPM-C's and HPF-C's weights: they minimise |w - 1/n|_1^2 + log_term^2 |w/e|_inf^2.

    They are for values that may depend on the level in any way. `epsilons`, `counts`, `log_term`:
    as in :data:`Policy`.
    """
    threshold = deviation_threshold(epsilons, counts, log_term**2)
    saturation = threshold if threshold < float(epsilons.max()) else None
    return ReportWeights(capped(epsilons, counts, threshold), saturation)


def correlated_turbo(epsilons: Floats, counts: Floats, log_term: float) -> ReportWeights:
    """Return HPM-CT's and HPF-CT's weights, with n |w - 1/n|_2^2 instead of HPM-C's |w - 1/n|_1^2.

    `epsilons`, `counts`, `log_term`: as in :data:`Policy`.
    """
    return _square(epsilons, counts, log_term**2 / float(counts.sum()))


def uncorrelated(
    epsilons: Floats, counts: Floats, log_term: float, *, turbo: bool = False
) -> ReportWeights:
    """Return the weights of HPM-U and HPF-U, for values that do not depend on the level.

    They are the weights of HPM-C, or the weights with log_term |w|_2^2 in place of |w - 1/n|_1^2 if
    that gives a smaller objective. With `turbo`, they are the weights of HPM-UT and HPF-UT, with
    n |w - 1/n|_2^2 in place of |w - 1/n|_1^2.

    `epsilons`, `counts`, shape (levels,): of the levels with reports; `log_term`: ln(k / beta).
    """
    users = float(counts.sum())
    spread = _square(epsilons, counts, log_term)
    near_uniform = (correlated_turbo if turbo else correlated)(epsilons, counts, log_term)

    def objective(weights: ReportWeights, deviation: float) -> float:
        return deviation + (log_term * noise_scale(epsilons, weights.per_report)) ** 2

    away = np.abs(near_uniform.per_report - 1 / users)
    deviation = users * float(counts @ away**2) if turbo else float(counts @ away) ** 2
    variance = log_term * float(counts @ spread.per_report**2)
    is_nearer = objective(near_uniform, deviation) < objective(spread, variance)
    return near_uniform if is_nearer else spread


def affine(epsilons: Floats, counts: Floats, log_term: float) -> ReportWeights:
    """Return ADPM's weights, which minimise a squared error, |w|_2^2 / 4 + 2 |w/e|_inf^2.

    `epsilons`, `counts`, `log_term`: as in :data:`Policy`.
    """
    return _square(epsilons, counts, ADPM_NOISE)


def affine_error(epsilons: Floats, counts: Floats, per_report: Floats) -> float:
    """Return ADPM's objective, a bound on the mean squared error in a domain of width 1.

    `epsilons`, `counts`, `per_report`, shape (levels,): of the levels with reports, e_l, n_l and
    the weight of one report.
    """
    return float(counts @ per_report**2) / 4 + 2 * noise_scale(epsilons, per_report) ** 2


def proportional(epsilons: Floats, counts: Floats, log_term: float) -> ReportWeights:
    """Return Prop's weights, w ~ e: noise is least, and users with large epsilons count most.

    `epsilons`, `counts`, `log_term`: as in :data:`Policy`.
    """
    return ReportWeights(capped(epsilons, counts, math.inf), None)


def uniform_minimum(epsilons: Floats, counts: Floats, log_term: float) -> ReportWeights:
    """Return UNI's equal weights, with the noise of the smallest epsilon.

    `epsilons`, `counts`, `log_term`: as in :data:`Policy`.
    """
    smallest = float(epsilons.min())
    return ReportWeights(capped(epsilons, counts, smallest), smallest)


Policy = Callable[[Floats, Floats, float], ReportWeights]
"""A function of the epsilons of the levels with reports, their report counts, and ln(k / beta)."""
_POLICY_FAMILY: dict[str, Policy] = {
    "a": heuristic,
    "c": correlated,
    "u": uncorrelated,
    "ct": correlated_turbo,
    "ut": functools.partial(uncorrelated, turbo=True),
}
_SHARED_POLICIES: dict[str, Policy] = {
    "proportional": proportional,
    "uniform-minimum": uniform_minimum,
}
RELEASE_WEIGHTINGS: dict[str, dict[str, Policy]] = {
    "mean": {f"hpm-{key}": policy for key, policy in _POLICY_FAMILY.items()}
    | {"adpm": affine}
    | _SHARED_POLICIES,
    "frequency": {f"hpf-{key}": policy for key, policy in _POLICY_FAMILY.items()}
    | _SHARED_POLICIES,
}
"""For each kind, the policies that a release may have, by name."""


def policy_named(policy: str, categories: int | None) -> Policy:
    """Return a policy for a mean or a frequency.

    `categories`: how many a frequency has; None for a mean. Raises ValueError if the kind has no
    such policy.
    """
    policies = RELEASE_WEIGHTINGS["mean" if categories is None else "frequency"]
    if policy not in policies:
        raise ValueError(f"weights = {policy!r}: {meant(str(policy), policies)}")
    return policies[policy]


def report_weights(
    policy: str, epsilons: Floats, counts: Floats, beta: float, categories: int | None = None
) -> ReportWeights:
    """Return the weights that a policy gives to these levels.

    `policy`: one of :data:`RELEASE_WEIGHTINGS`; `epsilons`, `counts`, shape (levels,): levels with
    reports, in any order; `beta`: HDP-WC's weights are chosen for the (1 - beta)-quantile of the
    error, others ignore it; `categories`: the k of ln(k / beta), for a frequency; None for a mean,
    with k = 1.

    >>> weights = report_weights("adpm", np.array([0.1, 5.0]), np.array([700.0, 300.0]), 0.05)
    >>> weights.per_report.round(6), weights.saturation
    (array([0.000745, 0.001596]), 0.2142857142857143)
    """
    weigh = policy_named(policy, categories)
    order = np.argsort(epsilons, kind="stable")
    weights = weigh(epsilons[order], counts[order], math.log((categories or 1) / beta))
    per_report = np.empty_like(epsilons)
    per_report[order] = weights.per_report
    return dataclasses.replace(weights, per_report=per_report)
