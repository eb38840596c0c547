"""Published ways to release a mean under mixed levels, and to bound a shuffle, to compare with.

Simulations: their noise is numpy's, and nothing here may be used on anybody's data. Two more
baselines are weights of a release, ``uniform-minimum`` (UNI) and ``proportional`` (Prop). Sources:
ADPM, section IV-A; HDP-WC, Appendix B.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from estimators.estimate import Floats

EPSILON_ROUNDING = 1e-12
"""The result is increased by this share, which exceeds the rounding errors of double precision."""


def sampling_mechanism(values: Floats, epsilons: Floats, generator: np.random.Generator) -> float:
    """Return SM's mean: user i is kept with probability (e^e_i - 1) / (e^t - 1).

    Here t is the largest epsilon, and the mean of the kept users gets noise for epsilon t. Source:
    Jorgensen, Yu and Cormode, "Conservative or liberal? Personalized differential privacy" (2015).

    Parameters
    ----------
    values, epsilons : ndarray of float64, shape (n,)
        Each user's value, in [0, 1], and epsilon.
    generator : numpy.random.Generator
        Draws the kept users and the noise.

    Returns
    -------
    float
        The noisy mean; 1/2 if nobody is kept.

    Examples
    --------
    >>> values, epsilons = np.full(10_000, 0.25), np.full(10_000, 1.0)
    >>> round(sampling_mechanism(values, epsilons, np.random.default_rng(1)), 3)
    0.25
    """
    largest, is_kept = _sampled(epsilons, generator)
    users = int(is_kept.sum())
    if not users:
        return 0.5
    return float(values[is_kept].mean()) + float(generator.laplace(scale=1 / (largest * users)))


def separate_noise(values: Floats, epsilons: Floats, generator: np.random.Generator) -> float:
    """Return LDPE's mean: means with separate noise for each level, combined by inverse variance.

    The mean of n_l users at e_l has a variance of at most 1 / (4 n_l), and its noise one of 2 /
    (e_l n_l)^2. Source: Ferrando, Gillenwater and Kulesza, "Combining public and private data"
    (2021).

    Parameters
    ----------
    values, epsilons : ndarray of float64, shape (n,)
        Each user's value, in [0, 1], and epsilon.
    generator : numpy.random.Generator
        Draws the noise.

    Examples
    --------
    >>> values, epsilons = np.full(10_000, 0.25), np.repeat([1.0, 2.0], 5000)
    >>> round(separate_noise(values, epsilons, np.random.default_rng(1)), 3)
    0.25
    """
    levels, group, users = np.unique(epsilons, return_inverse=True, return_counts=True)
    means = np.bincount(group, weights=values) / users
    scale = 1 / (levels * users)
    noisy = means + generator.laplace(scale=scale)
    precision = 1 / (1 / (4 * users) + 2 * scale**2)
    return float(noisy @ precision / precision.sum())


def acquisition_rates(epsilons: Floats) -> Floats:
    """Return FME's rates: a user's epsilon, at most 1 / sqrt(n - k) if k users are below that.

    Weights are proportional to these rates and the noise is that of their sum. Source: Fallah,
    Makhdoumi, Malekian and Ozdaglar, "Optimal and differentially private data acquisition" (2022),
    Theorem 1, as far as ADPM describes it: the form is inferred from Table II (an error of 2 / n),
    Figure 3 and Example 1 (a ratio of weights that stays at the root of 2), which it reproduces.

    Parameters
    ----------
    epsilons : ndarray of float64, shape (n,)
        Each user's epsilon.

    Returns
    -------
    ndarray of float64, shape (n,)
        The rates.

    Examples
    --------
    >>> acquisition_rates(np.array([0.1, 0.6, 5.0, 9.0])).round(3)
    array([0.1  , 0.577, 0.577, 0.577])
    """
    users = epsilons.size
    caps = 1 / np.sqrt(users - np.arange(users))
    above = np.flatnonzero(np.sort(epsilons) > caps)
    rates: Floats = np.minimum(epsilons, caps[above[0]] if above.size else np.inf)
    return rates


def sampling_frequencies(
    values: NDArray[np.int64], categories: int, epsilons: Floats, generator: np.random.Generator
) -> Floats:
    """Return SM's frequencies: those of the kept users, each with noise for epsilon t.

    Parameters
    ----------
    values : ndarray of int64, shape (n,)
        Each user's category, from 0 to categories - 1.
    categories : int
        The number of categories.
    epsilons : ndarray of float64, shape (n,)
        Each user's epsilon.
    generator : numpy.random.Generator
        Draws the kept users and the noise.

    Returns
    -------
    ndarray of float64, shape (categories,)
        The noisy frequencies; 1 / categories if nobody is kept.

    Examples
    --------
    >>> values, epsilons = np.repeat([0, 1], [7500, 2500]), np.full(10_000, 1.0)
    >>> sampling_frequencies(values, 2, epsilons, np.random.default_rng(2)).round(3)
    array([0.75, 0.25])
    """
    largest, is_kept = _sampled(epsilons, generator)
    users = int(is_kept.sum())
    if not users:
        return np.full(categories, 1 / categories)
    counts = np.bincount(values[is_kept], minlength=categories)
    noise = generator.laplace(scale=2 / largest, size=categories)
    frequencies: Floats = (counts + noise) / users
    return frequencies


def _sampled(epsilons: Floats, generator: np.random.Generator) -> tuple[float, NDArray[np.bool_]]:
    """Return t, and a mask of the kept users."""
    largest = float(epsilons.max())
    chance = np.exp(epsilons - largest) * (np.expm1(-epsilons) / math.expm1(-largest))
    return largest, generator.random(epsilons.size) < chance


def clones_epsilon(epsilon: float, reports: int, delta: float) -> float | None:
    """Return an epsilon' such that shuffled reports are (epsilon', delta)-differentially private.

    This is for `reports` users (n) with the same randomizer at the same level. A report carries its
    level in the clear, so it hides among those of its own level, and each level has its own result.
    The result is at most `epsilon`, which is above zero; None if the theorem's condition epsilon <=
    ln(n / (16 ln(2 / delta))) fails. It is ln(1 + 8 (e^eps - 1) / (e^eps + 1) (sqrt(e^eps ln(4 /
    delta) / n) + e^eps / n)), with `delta` in (0, 1]. Source: HIST, Theorem 11: Feldman, McMillan
    and Talwar, "Hiding among the clones" (2021), Theorem 3.1.

    >>> round(clones_epsilon(1.0, 100_000, 1e-6), 4)
    0.0726
    >>> clones_epsilon(8.0, 100_000, 1e-6) is None
    True
    """
    crowd = reports / (16 * math.log(2 / delta))
    if crowd <= 1 or epsilon > math.log(crowd) * (1 - EPSILON_ROUNDING):
        return None
    grown = math.exp(epsilon)
    divergence = math.sqrt(grown * math.log(4 / delta) / reports) + grown / reports
    shuffled = math.log1p(8 * math.tanh(epsilon / 2) * divergence)
    return min(epsilon, shuffled * (1 + EPSILON_ROUNDING))
