"""High-Probability Bounds For Heterogeneous Local Differential Privacy (HLDP): rates, weights."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from estimators import define
from estimators.estimate import Floats
from estimators.exact.randomness import SeededBits
from estimators.metrics.local import LocalMetric
from reproduction.outcome import Claim, Curve, Number, Outcome, Plot, Tick, steps
from reproduction.sampling import mean_and_error, share_and_error, slope, summed

PROFILES = {
    "all at 1/2": ((0.5,), (1.0,)),
    "halves at 1/4 and 1": ((0.25, 1.0), (0.5, 0.5)),
    "nine of ten at 0.1, one at 1": ((0.1, 1.0), (0.9, 0.1)),
}
SIZES = [2**k for k in range(10, 18)]
PEEKED = 20_000
"""The number of reports on each simulated path."""
DIMENSIONS = [16, 32, 64, 128, 256]
BETA = 0.05
KINDS: dict[str, dict[str, Any]] = {
    "mean": {"kind": "mean", "mechanism": "randomized_response", "range": (-1, 1)},
    "vector": {"kind": "vector_mean", "mechanism": "hemisphere", "dimension": 16, "radius": 1},
    "histogram": {"kind": "frequency", "mechanism": "projection", "categories": 16},
}
MAX_USERS = {"vector": 2**14}
"""The most users of kinds whose values take long to randomize."""


def _errors(
    metric: LocalMetric, values: Any, level: Any, truth: Any, runs: int, seed: int
) -> Floats:
    """Return the l2 error of each run; l_inf for frequencies."""
    errors = np.empty(runs)
    norm = np.inf if metric.kind == "frequency" else 2
    for run in range(runs):
        statistic = summed(metric, values, level, SeededBits(seed + run))
        value = np.atleast_1d(metric.estimate(statistic, bound="normal").value)
        errors[run] = np.linalg.norm(value - truth, norm)
    return errors


def _population(metric: LocalMetric, users: int) -> tuple[Any, Any]:
    """Return users' values, and their mean or frequencies."""
    if metric.kind == "mean":
        return np.where(np.arange(users) % 2, 1.0, -1.0), 0.0
    if metric.kind == "vector_mean":
        values = np.zeros((users, metric.dimension or 1))
        values[:, 0] = 1 / 2
        return values, values[0]
    held = np.arange(users) % 16
    return held, np.bincount(held, minlength=16) / users


def lower_bound(kind: str, budget: float) -> float:
    """Return the least possible 95% quantile of the error, for any mechanism.

    Parameters
    ----------
    kind : {"mean", "vector"}
        What is estimated.
    budget : float
        The sum of the users' epsilon^2; each epsilon is at most 1.

    Notes
    -----
    Source: HLDP, equations (46) and (102), with their constants; for vectors in 16 dimensions with
    radius 1.
    """
    if kind == "mean":
        return math.sqrt(min(1.0, math.log(1 / (4 * BETA * (1 - BETA))) / (8 * budget)))
    return math.sqrt(min(1.0, 16 / (16 * budget), 1 / (4 * math.sqrt(budget))) / 4)


def rates(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return the exponents of errors against the sum of epsilon^2, and against the dimension."""
    numbers, curves = [], []
    quantile_ratios: dict[str, list[float]] = {"mean": [], "vector": []}
    steps = len(KINDS) * len(PROFILES) * len(SIZES) + len(DIMENSIONS)
    done = 0
    for kind, domain in KINDS.items():
        for profile, (levels, shares) in PROFILES.items():
            metric, budget, errors = define(name="m", levels=levels, **domain), [], []
            for users in SIZES:
                done += 1
                if users > MAX_USERS.get(kind, users):
                    continue
                users_by_level = [round(share * users) for share in shares]
                level = np.repeat(np.arange(len(levels)), users_by_level).astype(np.uint8)
                budget.append(float(np.square(levels) @ users_by_level))
                values, truth = _population(metric, level.size)
                run_errors = _errors(metric, values, level, truth, runs, seed)
                errors.append(mean_and_error(run_errors.tolist()))
                if kind in quantile_ratios:
                    quantile = float(np.quantile(run_errors, 1 - BETA))
                    quantile_ratios[kind].append(quantile / lower_bound(kind, budget[-1]))
                tick(done / steps)
            means, uncertain = zip(*errors, strict=True)
            exponent = slope(budget, means, uncertain)
            numbers.append(Number(f"{kind}, {profile}: exponent", *exponent, -0.5, 0.03))
            curves.append(Curve(f"{kind}, {profile}", budget, means))
        if kind in quantile_ratios:
            bounds = [lower_bound(kind, spent) for spent in budget]
            curves.append(Curve(f"{kind}, lower bound of the 95% quantile", budget, bounds))
    spread = []
    for dimension in DIMENSIONS:
        metric = define(name="m", levels=[1], **KINDS["vector"] | {"dimension": dimension})
        values, truth = _population(metric, 4096)
        level = np.zeros(4096, np.uint8)
        run_errors = _errors(metric, values, level, truth, runs, seed)
        spread.append(mean_and_error(run_errors.tolist()))
        done += 1
        tick(done / steps)
    exponent = slope(DIMENSIONS, *zip(*spread, strict=True))
    numbers.append(Number("l2 of vectors against d: exponent", *exponent, 0.5, 0.03))
    claims = [
        Claim(
            f"{kind}: 95% quantiles stay within a constant of the lower bound's",
            min(factors) > 1 and max(factors) < 3 * min(factors),
            f"{min(factors):.1f} to {max(factors):.1f} times the bound for every mechanism",
        )
        for kind, factors in quantile_ratios.items()
    ]
    return Outcome(numbers, claims, Plot("sum of epsilon^2", "mean error", curves))


WEIGHED: dict[str, dict[str, Any]] = {
    "laplace": {"kind": "mean", "range": (-1, 1)},
    "hemisphere": {"kind": "vector_mean", "dimension": 3, "radius": 1},
}
GRID = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


def cost_of_the_papers_weights(mechanism: str) -> tuple[float, float, float]:
    """Return the two epsilons at which the paper's weights cost most, and the ratio of errors.

    They are the worst of a grid; nine of ten users are at the lower epsilon. The ratio is that of
    the squared errors with the paper's weights and with optimal weights.
    """
    ratios = []
    size = 20_000
    level = np.repeat([0, 1], [size * 9 // 10, size // 10]).astype(np.uint8)
    for low, high in itertools.combinations(GRID, 2):
        metric = define(name="m", mechanism=mechanism, levels=[low, high], **WEIGHED[mechanism])
        values = np.zeros(size if metric.kind == "mean" else (size, 3))
        statistic = summed(metric, values, level, SeededBits(0))
        optimal, paper = (
            metric.estimate(statistic, weights=policy, bound="normal").effective_reports
            for policy in ("optimal", "paper")
        )
        ratios.append((optimal / paper, low, high))
    ratio, low, high = max(ratios)
    return low, high, ratio


def weights(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return how much larger mean squared errors are with the paper's than with optimal weights."""
    numbers, worst = [], {}
    for mechanism in steps(WEIGHED, tick):
        low, high, worst[mechanism] = cost_of_the_papers_weights(mechanism)
        label = f"{mechanism}: worst at epsilon {low:g} and {high:g}"
        numbers.append(Number(label, worst[mechanism]))
    claims = [
        Claim(
            "the paper's weights cost Laplace's mean 1.5 times the squared error and more",
            worst["laplace"] > 1.5,
            f"{worst['laplace']:.3f}",
        ),
        Claim(
            "epsilon^2 is a poor weight for vectors where epsilon is large",
            worst["hemisphere"] > 2,
            f"{worst['hemisphere']:.2f}",
        ),
    ]
    return Outcome(numbers, claims, notes=["Nine of ten users are at the lower epsilon."])


def peeking(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return how often 95% bounds fail after 20,000 reports, and how often at some look before."""
    metric = define(
        name="m", kind="mean", mechanism="randomized_response", range=(-1, 1), levels=[0.5, 2]
    )
    users = PEEKED
    looks = sorted({round(30 * 1.1**i) for i in range(200) if 30 * 1.1**i < users} | {users})
    bounds = ("normal", "fixed", "anytime")
    failed, last = dict.fromkeys(bounds, 0), dict.fromkeys(bounds, 0)
    rng = np.random.default_rng(seed)
    for run in steps(range(runs), tick):
        values = np.where(rng.random(users) < 0.6, 1.0, -1.0)
        level = rng.integers(0, 2, users).astype(np.uint8)
        reports = metric.randomize(values, level, SeededBits(seed + run))
        statistic, begin = metric.zero(), 0
        missed = dict.fromkeys(bounds, False)
        for end in looks:
            metric.accumulate(statistic, level[begin:end], reports[begin:end])
            begin = end
            for bound in bounds:
                if missed[bound] and end != users:
                    continue
                estimate = metric.estimate(statistic, bound=bound)
                is_outside = not estimate.lower <= 0.2 <= estimate.upper
                missed[bound] |= bool(is_outside)
                last[bound] += bool(is_outside and end == users)
        for bound in bounds:
            failed[bound] += missed[bound]
    numbers = [
        Number(f"{bound}: fails at {when}", *share_and_error(count, runs))
        for when, counts in (("the end", last), ("some look", failed))
        for bound, count in counts.items()
    ]
    rate = {bound: failed[bound] / runs for bound in bounds}
    slack = 3 * math.sqrt(0.05 * 0.95 / runs)
    claims = [
        Claim(
            "a bound for one look fails if you look again and again",
            rate["normal"] > 0.3 and rate["fixed"] > 0.05,
            f"normal {rate['normal']:.1%}, fixed {rate['fixed']:.1%} of paths",
        ),
        Claim(
            "a bound for all times holds at all looks together",
            rate["anytime"] <= 0.05 + slack,
            f"fails on {rate['anytime']:.1%} of paths",
        ),
    ]
    return Outcome(numbers, claims, notes=[f"{len(looks)} looks, at every power of 1.1 from 30."])
