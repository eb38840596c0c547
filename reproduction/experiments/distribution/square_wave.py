"""A rival without a tree: Square Wave, and EM with smoothing.

A simulation: its noise is numpy's, and it may not be used on anybody's data. Source: Li, Wang,
Lopuhaa-Zwakenberg, Skoric and Li, "Estimating numerical distributions under local differential
privacy" (SIGMOD 2020), sections 5.4 (values in bins) and 5.5, with their stopping rule.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from estimators.estimate import Counts, Floats
from estimators.mechanisms.dyadic_hadamard.haar import cumulated

LEAST_GAIN, MOST_STEPS = 1e-3, 10_000
"""EM ends when the log-likelihood changes by less than LEAST_GAIN, or after MOST_STEPS."""


def half_width(epsilon: float) -> float:
    """Return b, the half-width of the likelier reports around the value, as a share of the range.

    Examples
    --------
    >>> round(half_width(1.0), 3)
    0.256
    """
    e = math.exp(epsilon)
    return (epsilon * e - e + 1) / (2 * e * (e - 1 - epsilon))


@functools.lru_cache(maxsize=8)
def transition(bins: int, epsilon: float) -> Floats:
    """Return the probability of each report for each bin, shape (bins + 2 b, bins)."""
    reach, e = math.floor(half_width(epsilon) * bins), math.exp(epsilon)
    far_chance = 1 / ((2 * reach + 1) * e + bins - 1)
    away = np.arange(bins + 2 * reach)[:, None] - reach - np.arange(bins)
    return np.where(np.abs(away) <= reach, far_chance * e, far_chance)


def square_wave_cdf(counts: Counts, epsilon: float, generator: np.random.Generator) -> Floats:
    """Return F at the bins' edges, estimated by Square Wave and EM with smoothing.

    Parameters
    ----------
    counts : ndarray of int64, shape (bins,)
        How many users are in each bin.
    epsilon : float
        The level of all reports.
    generator : numpy.random.Generator
        Draws the reports.

    Returns
    -------
    ndarray of float64, shape (bins + 1,)
        F, from 0 to 1.
    """
    law = transition(counts.size, epsilon)
    far_chance, reach = law.min(), (law.shape[0] - counts.size) // 2
    values = np.repeat(np.arange(counts.size), counts)
    width = 2 * reach + 1
    close = generator.random(values.size) < width * (law.max() - far_chance)
    reports = np.where(
        close,
        values + generator.integers(0, width, values.size),
        generator.integers(0, law.shape[0], values.size),
    )
    return cumulated(smoothed_em(law, np.bincount(reports, minlength=law.shape[0])))


def smoothed_em(law: Floats, reports: Counts) -> Floats:
    """Return the masses of bins, estimated by EM with binomial smoothing after each step.

    Parameters
    ----------
    law : ndarray of float64, shape (r, bins)
        The probability of each report for each bin.
    reports : ndarray of int64, shape (r,)
        How often each report was received.
    """
    bins = law.shape[1]
    masses, likelihood = np.full(bins, 1 / bins), -math.inf
    for _ in range(MOST_STEPS):
        report_law = law @ masses
        masses = masses * (law.T @ (reports / report_law))
        inner = np.convolve(masses, [0.25, 0.5, 0.25], mode="valid")
        ends = (2 * masses[0] + masses[1]) / 3, (2 * masses[-1] + masses[-2]) / 3
        masses = np.concatenate([ends[:1], inner, ends[1:]])
        masses /= masses.sum()
        previous, likelihood = likelihood, float(reports @ np.log(law @ masses))
        if abs(likelihood - previous) < LEAST_GAIN:
            break
    return masses
