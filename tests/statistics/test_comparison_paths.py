"""Whole paths of comparisons at all times: how often the true difference is ever outside.

Many paths at once: counts are the same on each, so that the paths are the numbers of one pair of
arms. A test fails falsely where ever-misses exceed what a share of beta shows in all but one of
10^4 seeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import binom

from estimators.comparison.arms import Arm
from estimators.comparison.joint import anytime
from estimators.mechanisms.randomized_response import RandomizedResponse
from estimators.weights import level_weights, total_weight
from tests.support.reports.cases import exact

if TYPE_CHECKING:
    from estimators.estimate import Counts

LEVELS = (0.25, 0.5, 1.0, 2.0, 4.0)
MECHANISM = RandomizedResponse([exact(x) for x in LEVELS])
EQUAL, ONE_TO_NINE, ONE_ARM_FIRST = "1:1", "1:9", "all of a first"


class Looked(NamedTuple):
    """What was seen along the paths, shape (runs,): ever outside, and whether 0 ever was."""

    missed: Any
    stopped: Any


def counts_at(order: str, last: int) -> list[tuple[Counts, Counts]]:
    """Return the reports per level of both arms at each look; levels come in turns."""
    looks = np.unique(np.ceil(1.25 ** np.arange(3, np.log(last) / np.log(1.25) + 1))).astype(int)
    found = []
    for n in looks:
        share = {EQUAL: n // 2, ONE_TO_NINE: n // 10, ONE_ARM_FIRST: min(n, last // 20)}[order]
        arms = [
            np.array([(m + len(LEVELS) - 1 - i) // len(LEVELS) for i in range(len(LEVELS))])
            for m in (share, n - share)
        ]
        if share and n - share:
            found.append((arms[0], arms[1]))
    return found


def walk(
    thetas: tuple[float, float],
    order: str,
    split: float | None,
    runs: int,
    last: int,
    weights: str = "optimal",
) -> Looked:
    rng, contrast = np.random.default_rng(17), MECHANISM.signs.contrast
    ones = np.zeros((2, len(LEVELS), runs), dtype=np.int64)
    before = np.zeros((2, len(LEVELS)), dtype=np.int64)
    missed, stopped = np.zeros((2, runs), dtype=np.bool_)
    for counts in counts_at(order, last):
        arms = []
        for index, (now, theta) in enumerate(zip(counts, thetas, strict=True)):
            new = (now - before[index])[:, None]
            ones[index] += rng.binomial(
                np.broadcast_to(new, (len(LEVELS), runs)), (1 + contrast[:, None] * theta) / 2
            )
            before[index] = now
            shares = level_weights(weights, now, MECHANISM.facts)
            law = MECHANISM.signs.law(now, shares)
            total = total_weight(weights, now, MECHANISM.facts)
            arms.append(Arm(MECHANISM.signs.mean(now, shares, ones[index]), law, None, total))
        found = anytime(arms[0], arms[1], 0.05, split)
        delta = thetas[0] - thetas[1]
        missed |= (delta < found.lower) | (delta > found.upper)
        stopped |= (found.lower > 0) | (found.upper < 0)
    return Looked(missed, stopped)


@pytest.mark.parametrize("split", [None, 1.0])
@pytest.mark.parametrize("order", [EQUAL, ONE_TO_NINE, ONE_ARM_FIRST])
def test_the_difference_is_hardly_ever_outside_along_a_path(
    order: str, split: float | None
) -> None:
    runs = 150
    found = walk((0.9, 0.9), order, split, runs, 5_000)
    assert found.missed.sum() <= binom.isf(1e-4, runs, 0.05)
    assert np.array_equal(found.missed, found.stopped)


@pytest.mark.slow
@pytest.mark.parametrize("thetas", [(0.0, 0.0), (0.98, 0.98), (0.3, -0.2)])
@pytest.mark.parametrize("split", [None, 1.0])
@pytest.mark.parametrize("order", [EQUAL, ONE_TO_NINE, ONE_ARM_FIRST])
def test_two_thousand_paths_are_covered(
    thetas: tuple[float, float], order: str, split: float | None
) -> None:
    assert walk(thetas, order, split, 2000, 100_000).missed.sum() <= 0.05 * 2000
