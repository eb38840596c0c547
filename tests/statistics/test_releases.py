"""The bounds of releases of trusted collections cover the truth. Fixed seeds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from estimators.exact.randomness import SeededBits
from reproduction.experiments.adpm import collected, trusted


@pytest.mark.parametrize("runs", [25, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", ["population", "sample"])
@pytest.mark.parametrize("n", [40, pytest.param(4000, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("domain", "policy"),
    [
        ({"range": (-1, 3)}, "adpm"),
        pytest.param({"range": (-1, 3)}, "uniform-minimum", marks=pytest.mark.slow),
        ({"categories": 5}, "hpf-a"),
        pytest.param({"categories": 5}, "uniform-minimum", marks=pytest.mark.slow),
    ],
)
def test_bounds_hold(domain: dict[str, Any], policy: str, n: int, target: str, runs: int) -> None:
    """At beta = 0.2; each would fail for one seed in 10^4."""
    metric, rng, beta = trusted((0.3, 1, 4), **domain), np.random.default_rng([n, runs]), 0.2
    bits, failed = SeededBits(n), 0
    frequencies = np.array([0.6, 0.3, 0.1, 0.0, 0.0])
    for _ in range(runs):
        level = rng.integers(0, 3, n).astype(np.uint8)
        if metric.kind == "mean":
            values = np.where(rng.random(n) < 0.3, 3.0, -1.0)
            truth: Any = 0.2
        else:
            values = rng.choice(5, n, p=frequencies)
            truth = frequencies
        statistic = collected(metric, values, level)
        released = metric.release(statistic, bits, policy, beta, target)
        if target == "sample":
            share = (released.weights / np.maximum(metric.counts(statistic), 1))[level]
            truth = share @ (values if metric.kind == "mean" else np.eye(5)[values])
        failed += not np.all((released.lower <= truth) & (truth <= released.upper))
    assert failed <= runs * beta + 3.7 * math.sqrt(runs * beta * (1 - beta))
    if target == "sample" and metric.kind == "mean" and released.privacy is not None:
        assert failed >= runs * beta - 4.5 * math.sqrt(runs * beta) or not released.privacy.any()
