"""Other ways to release a mean under mixed privacy levels, to compare with.

Simulations: their noise is numpy's, and nothing here may be used on anybody's data. Two more
baselines are weights of a release, ``uniform-minimum`` (UNI) and ``proportional`` (Prop). Sources:
ADPM, section IV-A; HDP-WC, Appendix B.
"""

from __future__ import annotations

import numpy as np

from estimators.estimate import Floats


def sampling_mechanism(values: Floats, epsilons: Floats, generator: np.random.Generator) -> float:
    """SM: keep user i with probability (e^e_i - 1) / (e^t - 1), t the largest epsilon.

    The mean of those who are kept gets noise for epsilon t. Source: Jorgensen, Yu and Cormode,
    "Conservative or liberal? Personalized differential privacy" (2015).

    Parameters
    ----------
    values, epsilons : ndarray of float64, shape (n,)
        Of each user; values in [0, 1].
    generator : numpy.random.Generator

    Returns
    -------
    float
        1/2 if nobody is kept.

    Examples
    --------
    >>> values, epsilons = np.full(10_000, 0.25), np.full(10_000, 1.0)
    >>> round(sampling_mechanism(values, epsilons, np.random.default_rng(1)), 3)
    0.25
    """
    largest = float(epsilons.max())
    kept = generator.random(values.size) < np.expm1(epsilons) / np.expm1(largest)
    users = int(kept.sum())
    if not users:
        return 0.5
    return float(values[kept].mean()) + float(generator.laplace(scale=1 / (largest * users)))


def separate_noise(values: Floats, epsilons: Floats, generator: np.random.Generator) -> float:
    """LDPE: a mean with noise of its own for each level, combined by inverse variance.

    Of n_l users at e_l, a mean varies by 1 / (4 n_l) at worst, its noise by 2 / (e_l n_l)^2.
    Source: Ferrando, Gillenwater and Kulesza, "Combining public and private data" (2021).

    Parameters
    ----------
    values, epsilons : ndarray of float64, shape (n,)
        Of each user; values in [0, 1].
    generator : numpy.random.Generator

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
