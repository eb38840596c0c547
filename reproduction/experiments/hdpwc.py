"""Empirical Mean and Frequency Estimation Under Heterogeneous Privacy (HDP-WC): errors.

The errors are those of releases of trusted sums, clipped to [0, 1] as in the paper. "P" is the 95%
quantile of the largest error over the frequencies, or of a mean's error; "E" is the mean of its
square, with the weights for beta = 1. Each user has the largest of 150 levels that is not above the
user's demand; the largest level is 64.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators import define
from estimators.estimate import Floats
from estimators.exact.randomness import SeededBits
from reproduction.baselines import sampling_frequencies, sampling_mechanism
from reproduction.experiments.adpm import trusted
from reproduction.records import Records, cases, wages
from reproduction.sampling import quantile_and_error, summed

BETA = 0.05
BINS = 12
DOMAIN = 1e7
"""The largest yearly pay, for its mean; like any range, it is fixed before values are seen."""
LEVELS = np.exp(np.linspace(-9, math.log(64), 150))
METHODS = ("HP", "HP-A", "Prop", "UNI", "SM", "LDP")
"""HP stands for HPF or HPM, with -C if levels correlate with the values and -U if they do not."""
POLICIES = {"HP-A": "{}-a", "Prop": "proportional", "UNI": "uniform-minimum"}


@dataclasses.dataclass(frozen=True)
class Population:
    """Values and demands of a population.

    Attributes
    ----------
    name : str
        The name in tables and figures.
    values : ndarray, shape (users,)
        The users' bins (int64) for a frequency; numbers in [0, 1] for a mean.
    demands : ndarray of float64, shape (users,)
        The largest epsilon that each user allows.
    bins : int or None
        The number of bins; None for a mean.
    correlated : bool
        Whether demands depend on the values; if not, each run permutes the values.
    """

    name: str
    values: NDArray[Any]
    demands: Floats
    bins: int | None
    correlated: bool

    @property
    def truth(self) -> Floats:
        """The frequencies, or the mean."""
        if self.bins is None:
            return np.atleast_1d(self.values.mean())
        return np.bincount(self.values, minlength=self.bins) / self.values.size

    @property
    def domain(self) -> dict[str, Any]:
        """The domain of the population's metric, as arguments of `define`."""
        return {"range": (0, 1)} if self.bins is None else {"categories": self.bins}


def bins_of(paid: Floats) -> NDArray[np.int64]:
    """Return each pay's bin: twelve of equal width to the 99% quantile, the last open above."""
    width = float(np.quantile(paid, 0.99)) / BINS
    return np.minimum(paid / width, BINS - 1).astype(np.int64)


def central_demands(bins: NDArray[np.int64], number: int, rng: np.random.Generator) -> Floats:
    """Return the users' demands, which are largest in the middle bins.

    For twelve bins they have the paper's law: ln epsilon = -abs(i - 6.5) + uniform on [-3, 3], i
    from 1. Other numbers of bins are stretched to the same ends.

    Parameters
    ----------
    bins : ndarray of int64, shape (users,)
        Each user's bin, from 0.
    number : int
        How many bins there are.
    rng : Generator
        Draws the uniform part.
    """
    middle = (number - 1) / 2
    away = np.abs(bins - middle) * ((BINS - 1) / 2 / middle)
    demands: Floats = np.exp(rng.uniform(-3, 3, bins.size) - away)
    return demands


def salaries(records: Records, seed: int, *, mean: bool = False) -> tuple[Population, str]:
    """Return the salaries of 50,000 people with the demands of their bins, and a description.

    Parameters
    ----------
    records : Records
        The published records; without wages, stand-ins are drawn.
    seed : int
        The seed of the drawn people and of the demands.
    mean : bool
        Whether the values are salaries as shares of `DOMAIN`, for a mean; otherwise they are bins.
    """
    rng = np.random.default_rng([4, seed])
    paid, description = wages(records, rng)
    bins = bins_of(paid)
    demands = central_demands(bins, BINS, rng)
    values = np.minimum(paid / DOMAIN, 1.0) if mean else bins
    return Population("salaries, C", values, demands, None if mean else BINS, True), description


def cancers(records: Records, seed: int) -> tuple[Population, str]:
    """Return cases by type with ln epsilon uniform on [-5, 5], and a description."""
    rng = np.random.default_rng([5, seed])
    kinds, description = cases(records, rng)
    demands = np.exp(rng.uniform(-5, 5, kinds.size))
    return Population("cancers, U", kinds, demands, int(kinds.max()) + 1, False), description


def synthetic(bins: int | None, seed: int, *, correlated: bool) -> Population:
    """Return 10,000 users: bins with shares 1/i, or uniform values (the paper does not say which).

    The demands have the law of salaries if correlated, else of cancers. For a mean, they depend on
    ten equal bins of the values.

    Parameters
    ----------
    bins : int, optional
        The number of bins; None for uniform values, for a mean.
    seed : int
        The seed of values and demands.
    correlated : bool
        Whether the demands depend on the values.
    """
    rng, users = np.random.default_rng([6, bins or 0, seed]), 10_000
    if bins is None:
        values: NDArray[Any] = rng.random(users)
    else:
        shares = 1 / np.arange(1, bins + 1)
        values = rng.choice(bins, users, p=shares / shares.sum())
    demands = np.exp(rng.uniform(-5, 5, users))
    if correlated:
        grouped = np.floor(10 * values).astype(np.int64) if bins is None else values
        demands = central_demands(grouped, bins or 10, rng)
    name = f"10,000{'' if bins is None else f' in {bins} bins'}, {'C' if correlated else 'U'}"
    return Population(name, values, demands, bins, correlated)


def _estimator(
    method: str, population: Population, beta: float, seed: int
) -> Callable[[NDArray[Any]], Any]:
    """Return the estimator of frequencies or the mean from values in the demands' order."""
    floor = float(LEVELS[0])
    demands = np.maximum(population.demands, math.floor(1e4 * floor) / 1e4)
    if method == "SM":
        rng, k = np.random.default_rng(seed), population.bins
        if k is None:
            return lambda values: sampling_mechanism(values, demands, rng)
        return lambda values: sampling_frequencies(values, k, demands, rng)
    metric, bits = trusted(LEVELS, **population.domain), SeededBits(seed)
    level = metric.level_of(demands)
    if method == "LDP":
        mechanism = "laplace" if population.bins is None else "rappor"
        kind = "mean" if population.bins is None else "frequency"
        local = define(
            name="m", kind=kind, mechanism=mechanism, levels=metric.levels, **population.domain
        )

        def estimated(values: NDArray[Any]) -> Any:
            statistic = summed(local, values, level, bits)
            return local.estimate(statistic, bound="normal").value

        return estimated
    family = "hpm" if population.bins is None else "hpf"
    named = POLICIES | {"HP": "{}-c" if population.correlated else "{}-u"}
    policy = named.get(method, method).format(family)
    fixed_statistic = summed(metric, population.values, level) if population.correlated else None

    def released(values: NDArray[Any]) -> Any:
        statistic = summed(metric, values, level) if fixed_statistic is None else fixed_statistic
        return metric.release(statistic, bits, policy, beta, "sample").value

    return released


def largest_errors(
    method: str, population: Population, runs: int, seed: int, *, mse: bool = False
) -> Floats:
    """Return the largest error over the bins, or that of the mean, in each run.

    Parameters
    ----------
    method : str
        One of :data:`METHODS`, or a policy of releases, such as ``"hpf-ct"``.
    population : Population
        The users; each run permutes their values, unless the demands depend on them.
    runs : int
        The number of runs.
    seed : int
        The seed of permutations and noise.
    mse : bool
        Whether HP has the weights for a small mean square; otherwise those for a small 95%
        quantile.
    """
    log_term = 1.0 if population.bins is None else 0.0
    beta = math.exp(-log_term) * (1 - 1e-12) if mse else BETA
    estimate = _estimator(method, population, beta, seed)
    rng, truth, errors = np.random.default_rng([7, seed]), population.truth, np.empty(runs)
    for run in range(runs):
        values = population.values if population.correlated else rng.permutation(population.values)
        errors[run] = np.abs(np.clip(np.asarray(estimate(values)), 0, 1) - truth).max()
    return errors


def tail(errors: Floats) -> tuple[float, float]:
    """Return the 95% quantile, and its standard error."""
    return quantile_and_error(errors, 1 - BETA)


def mean_square(errors: Floats) -> tuple[float, float]:
    """Return the mean of the squares, and its standard error."""
    squares = errors**2
    return float(squares.mean()), float(squares.std(ddof=1) / math.sqrt(squares.size))
