"""The p-value of Cochran's Q against the least Q, found without hurry."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import chdtrc

from estimators import define
from estimators.bounds.heterogeneity import CLOSE, heterogeneity
from estimators.bounds.scores import binomial_scores

LEVELS, COUNTS = [0.5, 1.0, 14.0], np.array([1_000_000, 300_000, 100_000_000])


@pytest.mark.parametrize("f", [1e-6, 1e-4, 0.2])
@pytest.mark.parametrize("mechanism", ["oue", "grr", "rappor"])
def test_the_p_value_is_that_of_the_least_q_of_all_common_means_or_a_little_larger(
    mechanism: str, f: float
) -> None:
    """The last level is up to 1e5 times as precise as the others, and often between them."""
    metric = define(name="m", kind="frequency", mechanism=mechanism, categories=2, levels=LEVELS)
    signs, rng = metric.randomizer.signs, np.random.default_rng(3)
    law, chance = signs.law(COUNTS, np.full(3, 1 / 3)), signs.q + f * (signs.p - signs.q)
    for _ in range(30):
        ones = rng.binomial(COUNTS, chance)
        means = signs.means(COUNTS, ones[:, None])
        apart = np.ptp(means) * np.concatenate([[0.0], np.geomspace(1e-9, 1, 4_000)])
        theta = np.clip(np.concatenate([means - apart, means + apart], axis=1).ravel(), -1, 1)
        chances = signs.q[:, None] + (signs.p - signs.q)[:, None] * (1 + theta) / 2
        scores = binomial_scores(ones[:, None] * 1.0, COUNTS[:, None] * 1.0, chances)
        least = (scores**2).sum(axis=0).min()
        p = heterogeneity(law, means)
        assert p is not None
        assert p >= chdtrc(3, least) * (1 - 1e-6)
        assert p <= chdtrc(3, max(0.0, least - 1.2 * CLOSE * (1 + least)))
