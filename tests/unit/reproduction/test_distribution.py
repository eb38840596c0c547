"""The rivals of `dyadic_hadamard` are what their authors publish, and the comparison comes out."""

from __future__ import annotations

import numpy as np
import pytest

from reproduction.experiments.distribution import comparison, square_wave, trees
from reproduction.experiments.distribution.data import populations

COUNTS = np.array([0, 500, 2000, 300, 100, 100, 4000, 1000])
TRUTH = np.concatenate([[0.0], np.cumsum(COUNTS) / COUNTS.sum()])


def mean_of(rival: object, runs: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(7)
    found = np.array([rival(COUNTS, 1.0, rng) for _ in range(runs)])  # type: ignore[operator]
    return found.mean(axis=0), found.std(axis=0) / np.sqrt(runs)


def test_trees_and_haar_hrr_are_unbiased() -> None:
    """Within 5 standard errors at each of 7 edges: fails by chance once in 10^5."""
    rivals = {
        str(fan): lambda counts, e, rng, fan=fan: trees.tree_cdf(counts, fan, e, rng)
        for fan in (2, 4, 8)
    }
    for name, rival in {**rivals, "haar": trees.haar_hrr_cdf}.items():
        mean, error = mean_of(rival, 400)
        assert np.abs(mean - TRUTH)[1:-1] == pytest.approx(0, abs=5 * float(error.max())), name
        assert error[1:-1].min() > 0


def test_square_waves_law_is_private_and_a_law() -> None:
    for epsilon in (0.5, 1.0, 4.0):
        law = square_wave.transition(64, epsilon)
        assert law.sum(axis=0) == pytest.approx(np.ones(64))
        assert law.max() / law.min() == pytest.approx(np.exp(epsilon))


@pytest.mark.more
def test_smoothed_em_finds_a_smooth_law_from_the_reports_expected_of_it() -> None:
    """Without noise, what is left is the bias of smoothing, 0.6% here."""
    masses = populations(256)["beta"]
    law = square_wave.transition(256, 2.0)
    found = square_wave.smoothed_em(law, np.rint(1e7 * law @ masses).astype(np.int64))
    assert np.abs(np.cumsum(found) - np.cumsum(masses)).max() < 0.01


@pytest.mark.more
def test_the_comparison_comes_out_with_one_small_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours is twice as good as HaarHRR at epsilon 4: fails by chance less than once in 10^4."""
    monkeypatch.setattr(comparison, "CASES", [(64, 20_000, 4)])
    shares: list[float] = []
    outcome = comparison.comparison(2, 3, shares.append)
    assert shares == [1.0]
    assert len(outcome.numbers) == len(comparison.RIVALS)
    assert all(0 < number.ours < 5 for number in outcome.numbers)
    claims = {claim.name: claim for claim in outcome.claims}
    assert claims["better than HaarHRR at epsilon 4"].holds
    assert outcome == comparison.comparison(2, 3, shares.append)
