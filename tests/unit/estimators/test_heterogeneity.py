"""The p-value of Cochran's Q against the least Q, found without hurry."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from scipy.special import chdtrc

from estimators import define
from estimators.bounds.heterogeneity import CLOSE, heterogeneity
from estimators.bounds.scores import binomial_scores, difference_scores
from estimators.exact.randomness import SeededBits

LEVELS, COUNTS = [0.5, 1.0, 14.0], np.array([1_000_000, 300_000, 100_000_000])


@pytest.mark.parametrize(
    ("mechanism", "f"), [("oue", 1e-6), ("oue", 0.2), ("grr", 1e-4), ("rappor", 0.2)]
)
def test_the_p_value_is_that_of_the_least_q_of_all_common_means_or_a_little_larger(
    mechanism: str, f: float
) -> None:
    """The last level is up to 1e5 times as precise as the others, and often between them."""
    metric = define(name="m", kind="frequency", mechanism=mechanism, categories=2, levels=LEVELS)
    signs = cast("Any", metric.randomizer).signs
    rng = np.random.default_rng(3)
    law, chance = signs.law(COUNTS, np.full(3, 1 / 3)), signs.q + f * (signs.p - signs.q)
    for _ in range(30):
        ones = rng.binomial(COUNTS, chance)
        means = signs.means(COUNTS, ones[:, None])
        apart = np.ptp(means) * np.concatenate([[0.0], np.geomspace(1e-9, 1, 4_000)])
        theta = np.clip(np.concatenate([means - apart, means + apart], axis=1).ravel(), -1, 1)
        chances = signs.q[:, None] + (signs.p - signs.q)[:, None] * (1 + theta) / 2
        seen, all_reports = (x[:, None].astype(np.float64) for x in (ones, COUNTS))
        scores = binomial_scores(seen, all_reports, chances)
        least = (scores**2).sum(axis=0).min()
        p = heterogeneity(law, means)
        assert p is not None
        assert p >= chdtrc(3, least) * (1 - 1e-6)
        assert p <= chdtrc(3, max(0.0, least - 1.2 * CLOSE * (1 + least)))


@pytest.mark.parametrize(
    "mechanism", ["grr", "oue", "subset_selection", "hadamard_response", "recursive_hadamard"]
)
def test_levels_whose_chances_round_to_one_are_compared_without_overflow(mechanism: str) -> None:
    """At epsilon 64 the chance that a report is not the value is lost in rounding."""
    metric = define(
        name="m", kind="frequency", mechanism=mechanism, categories=5, levels=[8.0, 64.0]
    )
    level = (np.arange(600) % 2).astype(np.uint8)
    for other in (3, 1):
        statistic, values = metric.zero(), np.where(level, 3, other)
        metric.accumulate(statistic, level, metric.randomize(values, level, SeededBits(1)))
        p = metric.estimate(statistic).heterogeneity
        assert p is not None
        assert (p > 0.5) if other == 3 else (p < 1e-50)


def test_scores_are_finite_where_a_chance_is_zero_or_one() -> None:
    ones, chance = np.array([0.0, 2.0, 298.0, 300.0]), np.array([[0.0], [1.0]])
    scores = binomial_scores(ones, np.array(300.0), chance)
    assert scores[0] == pytest.approx([0, 7.8, 147.6, 148.2], abs=0.1)
    assert scores[1] == pytest.approx([-148.2, -147.6, -7.8, 0], abs=1.2)  # 300 - n p is rounded
    sums = np.array([-300.0, 0.0, 300.0])
    found = difference_scores(sums, np.array(300.0), np.array(1.0), np.array(1.0))
    assert np.isfinite(found).all()
    assert found[2] == 0
