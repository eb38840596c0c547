"""The width and coverage of bounds: ours, those with the papers' constants, and NPRR's.

Reports are spread evenly over five levels; beta is 0.05. NPRR is Waudby-Smith, Wu and Ramdas,
"Nonparametric extensions of randomized response for private confidence sets" (2023), with bounds by
Hoeffding's inequality for the same one-bit reports.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq

from estimators import define
from estimators.estimate import Floats
from estimators.exact.randomness import SeededBits
from estimators.metrics.local import LocalMetric
from reproduction.outcome import Claim, Curve, Number, Outcome, Plot, Tick, steps
from reproduction.sampling import mean_and_error, share_and_error

LEVELS = (0.25, 0.5, 1.0, 2.0, 4.0)
BETA = 0.05


class Sample(NamedTuple):
    """The input of a bound: reports with their levels, in order, and their statistic."""

    metric: LocalMetric
    level: Any
    reports: Any
    statistic: Any

    @property
    def epsilons(self) -> Floats:
        """The epsilon of each report."""
        epsilons: Floats = np.array(LEVELS)[self.level]
        return epsilons


Bound = Callable[[Sample], tuple[Floats, float]]
"""Returns the middle and half of the width of a bound."""


def _middle(sample: Sample, weights: str) -> Floats:
    value = sample.metric.estimate(sample.statistic, weights=weights, bound="normal").value
    middle: Floats = np.atleast_1d(value)
    return middle


def randomized_response_constants(sample: Sample) -> tuple[Floats, float]:
    """Return the bound of HLDP (35): Hoeffding's inequality for the weighted signs."""
    information = float(np.square(np.tanh(sample.epsilons / 2)).sum())
    return _middle(sample, "optimal"), math.sqrt(2 * math.log(2 / BETA) / information)


def laplace_constants(sample: Sample) -> tuple[Floats, float]:
    """Return the bound of HLDP (28), solved for t, with the weights of Algorithm 1."""
    weights = 1 / (1 + 1 / sample.epsilons**2)
    weights /= weights.sum()
    ratio = weights / sample.epsilons
    square, noise, max_ratio = float(weights @ weights), float(ratio @ ratio), float(ratio.max())

    def chance(t: float) -> float:
        values = 2 * math.exp(-(t**2) / (8 * square))
        return values + 2 * math.exp(-min(t**2 / (128 * noise), t / (16 * max_ratio)))

    high = 1.0
    while chance(high) > BETA:
        high *= 2
    return _middle(sample, "paper"), float(brentq(lambda t: chance(t) - BETA, 0.0, high))


def rappor_constants(sample: Sample) -> tuple[Floats, float]:
    """Return the bound of HDP-WC (147), for the users' own values with uniform weights.

    This is HIST's Theorem 6 with weights.
    """
    k, n = len(sample.metric.category_names), sample.level.size
    spread = float((1 / (np.tanh(sample.epsilons / 4) * sample.epsilons)).sum()) / n**2
    return _middle(sample, "uniform"), math.sqrt(2 * math.log(2 * k / BETA) * spread)


def projection_constants(sample: Sample) -> tuple[Floats, float]:
    """Return the bound of HLDP's Theorem 4.1 for unbiased rows: sqrt(2 ln(4 d / beta) / A2)."""
    information = float(np.square(np.tanh(sample.epsilons / 2)).sum())
    d = len(sample.metric.category_names)
    return _middle(sample, "optimal"), math.sqrt(2 * math.log(4 * d / BETA) / information)


def nprr_interval(signs: Floats, contrast: Floats, beta: float) -> tuple[float, float]:
    """Return NPRR's Hoeffding interval for the mean of signs: middle and half width.

    Parameters
    ----------
    signs : ndarray of float64, shape (n,)
        Reports, -1 or 1.
    contrast : ndarray of float64, shape (n,)
        r = (e^eps - 1) / (e^eps + 1) of each report.
    beta : float
        The largest probability that the interval misses the mean.

    Examples
    --------
    >>> nprr_interval(np.ones(100), np.ones(100), 0.05)[0]
    1.0
    """
    log = math.log(2 / beta)
    return _hoeffding(signs, contrast, np.full(signs.size, math.sqrt(8 * log / signs.size)), log)


def nprr_sequence(signs: Floats, contrast: Floats, beta: float) -> tuple[float, float]:
    """Return the last interval of NPRR's Hoeffding confidence sequence, which holds at all times.

    The parameters are as for :func:`nprr_interval`.
    """
    t, log = np.arange(1, signs.size + 1), math.log(2 / beta)
    return _hoeffding(signs, contrast, np.minimum(1, np.sqrt(8 * log / (t * np.log(t + 1)))), log)


def _hoeffding(signs: Floats, contrast: Floats, tilt: Floats, log: float) -> tuple[float, float]:
    total = float(tilt @ contrast)
    return float(tilt @ signs) / total, 2 * (log + float(tilt @ tilt) / 8) / total


def nprr(bound: Callable[[Floats, Floats, float], tuple[float, float]]) -> Bound:
    """Return the bound of one-bit reports that a function of NPRR gives."""

    def found(sample: Sample) -> tuple[Floats, float]:
        signs = 2.0 * np.asarray(sample.reports).reshape(-1) - 1
        middle, half = bound(signs, np.tanh(sample.epsilons / 2), BETA)
        return np.array([middle]), half

    return found


SIZES = [1_000, 10_000, 100_000]
COVERAGE_REPORTS = 1_000
"""Reports in each run of bounds-coverage."""


def ours(bound: str, *, own: bool = False) -> Bound:
    """Return the product's bound; if `own`, that for the plain mean of the users' own values."""
    options: dict[str, Any] = {"weights": "uniform", "target": "sample"} if own else {}

    def found(sample: Sample) -> tuple[Floats, float]:
        estimate = sample.metric.estimate(sample.statistic, BETA, bound=bound, **options)
        lower, upper = np.atleast_1d(estimate.lower), np.atleast_1d(estimate.upper)
        return (lower + upper) / 2, float((upper - lower).max()) / 2

    return found


@dataclasses.dataclass(frozen=True)
class Case:
    """A metric, Dither's bound, and published bounds for the same reports."""

    name: str
    metric: LocalMetric
    ours: Bound
    others: dict[str, Bound]
    mean: float = 0.0
    own: bool = False
    """Whether the bounds are for the users' own values."""

    def values(self, users: int, rng: np.random.Generator) -> Any:
        """Draw the users' values."""
        if self.metric.kind == "frequency":
            return rng.integers(0, len(self.metric.category_names), users)
        return np.where(rng.random(users) < (1 + self.mean) / 2, 1.0, -1.0)

    def truth(self, values: Any) -> Floats:
        """Return the number that the bounds should cover."""
        if self.metric.kind != "frequency":
            return np.array([self.mean])
        k = len(self.metric.category_names)
        return np.bincount(values, minlength=k) / values.size if self.own else np.full(k, 1 / k)

    def sample(self, values: Any, rng: np.random.Generator, bits: SeededBits) -> Sample:
        """Return reports of the values, equally many at each level, with levels in random order.

        Parameters
        ----------
        values : array_like, n rows
            One value for each user.
        rng : Generator
            Draws the order of the levels.
        bits : SeededBits
            Draws the reports.
        """
        level = rng.permutation(np.arange(len(values)) % len(LEVELS)).astype(np.uint8)
        reports, statistic = self.metric.randomize(values, level, bits), self.metric.zero()
        self.metric.accumulate(statistic, level, reports)
        return Sample(self.metric, level, reports, statistic)


def _metric(mechanism: str, **domain: Any) -> LocalMetric:
    kind = "frequency" if "categories" in domain else "mean"
    domain = domain or {"range": (-1, 1)}
    metric = define(name="m", kind=kind, mechanism=mechanism, levels=LEVELS, **domain)
    return LocalMetric.require(metric)


SIGNS = {"HLDP": randomized_response_constants, "NPRR": nprr(nprr_interval)}
CASES = (
    Case("randomized response, mean 0", _metric("randomized_response"), ours("fixed"), SIGNS),
    Case(
        "randomized response, mean 0.9", _metric("randomized_response"), ours("fixed"), SIGNS, 0.9
    ),
    Case(
        "randomized response, all times", _metric("randomized_response"), ours("anytime"),
        {"NPRR": nprr(nprr_sequence)},
    ),
    Case("Laplace, mean 0", _metric("laplace"), ours("fixed"), {"HLDP": laplace_constants}),
    Case(
        "projection, 16 categories", _metric("projection", categories=16), ours("fixed"),
        {"HLDP": projection_constants},
    ),
    Case(
        "RAPPOR, 16 categories, own values", _metric("rappor", categories=16),
        ours("fixed", own=True), {"HDP-WC": rappor_constants}, own=True,
    ),
)  # fmt: skip


def widths(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return half widths, ours beside the others', in multiples of the normal law's."""
    numbers, least_ratio = [], math.inf
    lines = defaultdict[str, list[float]](list)
    for case, users in steps([*itertools.product(CASES, SIZES)], tick):
        rng, bits = np.random.default_rng([seed, users]), SeededBits(seed)
        bounds, normal = {"ours": case.ours, **case.others}, ours("normal", own=case.own)
        ratios: dict[str, list[float]] = {name: [] for name in bounds}
        for _ in range(runs):
            sample = case.sample(case.values(users, rng), rng, bits)
            unit = normal(sample)[1]
            for name, bound in bounds.items():
                ratios[name].append(bound(sample)[1] / unit)
        value, error = mean_and_error(ratios["ours"])
        for name in bounds:
            lines[f"{name}: {case.name}"].append(mean_ratio := float(np.mean(ratios[name])))
            if name != "ours":
                least_ratio = min(least_ratio, mean_ratio / value)
                label = f"{case.name}, n = {users:,}: {name}"
                numbers.append(Number(label, value, error, mean_ratio))
    curves = [Curve(name, SIZES, line) for name, line in lines.items()]
    narrower = Claim(
        "ours are never wider",
        least_ratio > 0.999,
        f"the others are {least_ratio:.3f} times as wide at least",
    )
    notes = [
        "In units of the normal law's width, which is not valid for a finite number of reports. "
        "The paper's column is the named bound; the papers state no constants for vectors."
    ]
    plot = Plot("n", "half width over the normal one", curves, (True, False))
    return Outcome(numbers, [narrower], plot, notes)


def coverage(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return how often 95% bounds fail: with 1,000 reports, drawn anew in each run."""
    numbers, claims = [], []
    slack = 3 * math.sqrt(BETA * (1 - BETA) / runs)
    for done, case in enumerate(steps(CASES, tick)):
        bounds = {"ours": case.ours, **case.others}
        failed = dict.fromkeys(bounds, 0)
        rng, bits = np.random.default_rng([seed, done]), SeededBits(seed)
        for _ in range(runs):
            values = case.values(COVERAGE_REPORTS, rng)
            sample, truth = case.sample(values, rng, bits), case.truth(values)
            for name, bound in bounds.items():
                middle, half = bound(sample)
                failed[name] += bool((np.abs(truth - middle) > half).any())
        for name, count in failed.items():
            numbers.append(Number(f"{case.name}: {name}", *share_and_error(count, runs), BETA))
        rate = failed["ours"] / runs
        claims.append(
            Claim(f"ours holds: {case.name}", rate <= BETA + slack, f"fails in {rate:.2%} of runs")
        )
    notes = ["The paper's column is the nominal rate. A bound that fails far less is too wide."]
    return Outcome(numbers, claims, notes=notes)
