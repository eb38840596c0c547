"""The p-value of Cochran's Q against the least Q, found without hurry."""

import itertools

import numpy as np
import pytest

from estimators.bounds import Law, RepeatedLaw, heterogeneity
from estimators.bounds.normal import chi_square_tail
from estimators.bounds.scores import SignDeviances, binomial_scores, difference_scores
from tests.support.metrics import frequency_metric, mean_metric
from tests.support.reports.cases import summed
from tests.support.rows import row


@pytest.mark.parametrize(
    "mechanism", ["grr", "oue", "subset_selection", "hadamard_response", "recursive_hadamard"]
)
def test_levels_whose_chances_round_to_one_are_compared_without_overflow(mechanism: str) -> None:
    """At epsilon 64 the chance that a report is not the value is lost in rounding."""
    metric = frequency_metric("m", mechanism, 5, [8.0, 64.0])
    level = np.arange(600) % 2
    for other in (3, 1):
        p = metric.estimate(summed(metric, np.where(level, 3, other), level)).heterogeneity
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


def test_the_least_q_near_the_pooled_mean_is_the_least_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the tolerance of the search, of Q + 1."""
    for seed, mechanism in itertools.product(range(4), ("windows", "laplace")):
        metric = mean_metric("m", mechanism, (0, 1), [0.5, 1, 2])
        values, level = np.random.default_rng(seed).random(900) ** (seed + 1), np.arange(900) % 3
        statistic = summed(metric, values + 0.1 * seed * (level == 1), level)
        near = metric.estimate(statistic).heterogeneity
        with monkeypatch.context() as patch:
            patch.setattr(heterogeneity, "NEAR_STEPS", np.array([[7.0], [8.0], [9.0]]))
            searched = metric.estimate(statistic).heterogeneity
        with row(seed, mechanism):
            assert near is not None
            assert near != searched
            assert near == pytest.approx(searched, rel=0.2)


def test_q_of_signs_lies_above_its_tangents_and_its_least_is_found() -> None:
    """Against Q on a fine grid of means; users' signs also against a fine grid of tilts."""
    n, contrast, offset = np.array([300.0, 500.0]), np.array([0.4, 0.3]), np.array([-0.3, -0.1])
    repeats, means = np.array([3.0, 1.0]), np.array([[-0.9, -0.3]])
    parts = n, 1 / (n * contrast), contrast
    tilts, grid = np.linspace(0, 5, 1001)[:, None], np.linspace(-0.99, 0.3, 130)
    for law in (Law(*parts, offset=offset), RepeatedLaw(*parts, offset=offset, repeats=repeats)):
        q, slope, _ = SignDeviances(law, np.repeat(means, grid.size, axis=0)).at(grid)
        lines = q + slope * (grid[:, None] - grid)
        with row(type(law).__name__):
            assert (lines <= q[:, None] * (1 + 1e-6) + 1e-6).all()
            p_value = heterogeneity.heterogeneity(law, means.T)
            least = chi_square_tail(2, float(q.min()))
            assert p_value == pytest.approx(least, rel=0.02)
    theta = 0.3  # above both means
    law = RepeatedLaw(*parts, offset=-offset, repeats=repeats)
    step = 2 / (n * contrast * repeats)
    exponent = tilts * contrast * (-means - step) - law.tilted_users(np.array(-theta), tilts)[0]
    deviances = SignDeviances(RepeatedLaw(*parts, offset=offset, repeats=repeats), means)
    assert deviances.at(np.array([theta]))[0][0] == pytest.approx(
        2 * n @ exponent.max(axis=0), rel=1e-3
    )
