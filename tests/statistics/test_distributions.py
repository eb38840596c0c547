"""Distributions are as good as they were published to be, and their bounds hold; slow tests.

Published: errors and half-widths measured with another program, on data of the same shapes. The
bands of 2,000 runs miss in at most 5% plus three standard errors: a coverage of exactly 95% fails
for one seed in 700; seeds are fixed, and the true coverage is above 99%.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from estimators import DistributionEstimate, LocalMetric, define
from estimators.exact.randomness import SeededBits
from reproduction.experiments.distribution.data import populations

pytestmark = pytest.mark.slow

LEVELS, MIX, BETA, RUNS = (0.5, 1, 2, 4), (0.4, 0.3, 0.2, 0.1), 0.05, 2000
MOST = int(RUNS * BETA + 3 * np.sqrt(RUNS * BETA * (1 - BETA)))
QUANTILES = (0.5, 0.9, 0.99)


def metric_of(bins: int, levels: Any = LEVELS) -> LocalMetric:
    found = define(name="m", kind="distribution", range=(0, 1), bins=bins, levels=list(levels))
    return LocalMetric.require(found)


def laws(bins: int) -> dict[str, Any]:
    """Return masses of bins: those of the data sets, and nearly all users in one bin."""
    point = np.full(bins, 0.02 / bins)
    point[bins // 3] += 0.98
    return {**populations(bins), "point": point}


def reports(
    metric: LocalMetric, masses: Any, counts: Any, seed: int
) -> tuple[np.ndarray[Any, Any], Any]:
    """Return levels and reports of users with these masses, in random order."""
    rng = np.random.default_rng(seed)
    level = rng.permutation(np.repeat(np.arange(len(counts)), counts)).astype(np.uint8)
    bins = rng.choice(masses.size, level.size, p=masses)
    return level, metric.randomize((bins + 0.5) / masses.size, level, SeededBits(seed))


def summed(metric: LocalMetric, level: Any, made: Any) -> Any:
    statistic = metric.zero()
    metric.accumulate(statistic, level, made)
    return statistic


def estimate(metric: LocalMetric, statistic: Any, **question: Any) -> DistributionEstimate:
    found = metric.estimate(statistic, BETA, **question)
    assert isinstance(found, DistributionEstimate)
    return found


def cdf_of(masses: Any) -> Any:
    return np.minimum(np.concatenate([[0.0], np.cumsum(masses)]), 1)


def holds(found: DistributionEstimate, truth: Any) -> bool:
    return bool((found.cdf_lower <= truth + 1e-9).all() and (truth <= found.cdf_upper + 1e-9).all())


def has_quantiles(found: DistributionEstimate, truth: Any) -> bool:
    """Return whether the bin of each true quantile is within its limits."""
    for q, _, lower, upper in found.quantiles:
        edge = int(np.searchsorted(truth, q - 1e-12))
        if not lower - 1e-9 <= found.edges[edge - 1] or not found.edges[edge] <= upper + 1e-9:
            return False
    return True


@pytest.mark.parametrize("law", ["beta", "spike", "lognormal", "point"])
def test_bands_and_quantiles_hold_at_once_in_two_thousand_runs(law: str) -> None:
    """1,000 reports over four levels, of 32 bins; quantiles hold when asked for alone, too."""
    metric, masses = metric_of(32), laws(32)[law]
    truth, missed = cdf_of(masses), dict.fromkeys(("band", "quantiles", *QUANTILES), 0)
    for seed in range(RUNS):
        level, made = reports(metric, masses, [int(1000 * share) for share in MIX], seed)
        statistic = summed(metric, level, made)
        found = estimate(metric, statistic, bound="fixed", quantiles=QUANTILES)
        band, quantiles = holds(found, truth), has_quantiles(found, truth)
        missed["band"] += not band
        missed["quantiles"] += not (quantiles and band)
        for q in QUANTILES if law == "lognormal" else ():
            alone = estimate(metric, statistic, bound="fixed", quantiles=[q])
            missed[q] += not has_quantiles(alone, truth)
    assert max(missed.values()) <= MOST


@pytest.mark.parametrize("law", ["beta", "point"])
def test_bands_for_all_times_hold_along_whole_paths(law: str) -> None:
    """2,000 paths of 12 looks, from 100 to 4,500 reports, of 16 bins."""
    metric, masses = metric_of(16), laws(16)[law]
    truth, missed = cdf_of(masses), 0
    looks = np.unique(np.geomspace(100, 4500, 12).astype(int))
    for seed in range(RUNS):
        level, made = reports(metric, masses, [int(4500 * share) for share in MIX], seed)
        statistic, done, held = metric.zero(), 0, True
        for look in looks.tolist():
            metric.accumulate(statistic, level[done:look], made[done:look])
            done = look
            found = estimate(metric, statistic, bound="anytime", quantiles=QUANTILES)
            held &= holds(found, truth) and has_quantiles(found, truth)
        missed += not held
    assert missed <= MOST
