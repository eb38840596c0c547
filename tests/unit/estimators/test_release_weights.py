"""Weights of releases against other solvers, and against what the papers say of them."""

from __future__ import annotations

import math

import clarabel
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import sparse

from estimators.central.weights import (
    WEIGHTINGS,
    capped,
    deviation_threshold,
    noise_scale,
    report_weights,
    square_threshold,
)
from estimators.estimate import Floats
from tests.support.rows import row

#: (epsilon, reports) of up to 8 levels, many times apart.
level_mixes = st.dictionaries(
    st.integers(1, 640_000).map(lambda e: e / 10_000), st.integers(1, 10**6), min_size=1, max_size=8
).map(lambda mix: (np.array(sorted(mix)), np.array([float(mix[e]) for e in sorted(mix)])))
noises = st.floats(-6, 6).map(lambda x: 10.0**x)


def deviation(counts: Floats, weights: Floats) -> float:
    return float(counts @ np.abs(weights - 1 / counts.sum())) ** 2


def recursion(epsilons: Floats, noise: float) -> Floats:
    """HDP-WC, equations (154) and (155), user by user."""
    shape = [float(epsilons[0])]
    for epsilon in epsilons[1:]:
        square = sum(r * r for r in shape) + noise
        shape.append(min(square / sum(shape), float(epsilon)))
    result: Floats = np.array(shape) / sum(shape)
    return result


def test_the_threshold_is_that_of_the_papers_recursion() -> None:
    for seed, noise in enumerate((1e-4, 0.1, 8.0, 1e4)):
        rng = np.random.default_rng(seed)
        epsilons, counts = np.sort(np.exp(rng.uniform(-4, 3, 7))), rng.integers(1, 30, 7)
        found = capped(epsilons, counts, square_threshold(epsilons, counts, noise))
        expected = recursion(np.repeat(epsilons, counts), noise)
        assert np.allclose(np.repeat(found, counts), expected, rtol=1e-9), noise


@settings(deadline=None, max_examples=50)
@given(mix=level_mixes, noise=noises)
def test_no_other_threshold_has_a_smaller_squared_error(
    mix: tuple[Floats, Floats], noise: float
) -> None:
    epsilons, counts = mix

    def objective(threshold: float) -> float:
        weights = capped(epsilons, counts, threshold)
        return float(counts @ weights**2) + noise * noise_scale(epsilons, weights) ** 2

    found = square_threshold(epsilons, counts, noise)
    assert found >= epsilons[0]
    others = [*epsilons, *(found * np.geomspace(0.5, 2, 9)), *np.geomspace(epsilons[0], 64, 9)]
    others = [other for other in others if other >= epsilons[0]]
    assert objective(found) <= min(map(objective, others)) * (1 + 1e-9)


@settings(deadline=None, max_examples=50)
@given(mix=level_mixes, noise=noises)
def test_no_other_noise_has_a_smaller_deviation(mix: tuple[Floats, Floats], noise: float) -> None:
    """Of one number only: the objective as a function of |w/e|_inf."""
    epsilons, counts = mix
    total = counts.sum()

    def objective(scale: float) -> float:
        lack = float(counts @ np.maximum(1 / total - scale * epsilons, 0))
        return 4 * lack**2 + noise * scale**2

    weights = capped(epsilons, counts, deviation_threshold(epsilons, counts, noise))
    scale = noise_scale(epsilons, weights)
    assert deviation(counts, weights) + noise * scale**2 == pytest.approx(
        objective(scale), rel=1e-6, abs=1e-15
    )
    least, most = 1 / float(counts @ epsilons), 1 / (total * epsilons[0])
    others = np.concatenate([np.geomspace(least, most, 200), 1 / (total * epsilons)])
    best = min(objective(s) for s in others.tolist() if s >= least * (1 - 1e-12))
    assert objective(scale) <= best * (1 + 1e-9) + 1e-18


#: (epsilon, reports) of up to 6 levels, as far apart as a solver's tolerance allows.
solvable_mixes = st.dictionaries(
    st.integers(1, 160).map(lambda e: e / 20), st.integers(1, 10_000), min_size=1, max_size=6
).map(lambda mix: (np.array(sorted(mix)), np.array([float(mix[e]) for e in sorted(mix)])))
OBJECTIVES = ("hpm-c", "hpm-ct", "hpm-u", "hpm-ut", "adpm")
STRICTLY_CONVEX = ("hpm-ct", "adpm")


Rows = list[tuple[float, Floats, float]]
"""The function sum c (a x - b)^2 of x, as (c, a, b)."""


def objectives(policy: str, shares: Floats, users: float) -> list[Rows]:
    """Return convex functions, of which the smallest minimum is what a policy looks for.

    Of v = n w, its largest v / e, both near 1 whatever the number of users, and |v - 1|.
    """
    log_term, levels = math.log(20), shares.size
    unit = np.eye(2 * levels + 1)
    noise: Rows = [((log_term / users) ** 2, unit[levels], 0.0)]
    absolute: Rows = [(1.0, np.r_[np.zeros(levels + 1), shares], 0.0)]
    squares: Rows = [(share, unit[i], 1.0) for i, share in enumerate(shares)]
    variance: Rows = [(log_term * share / users, unit[i], 0.0) for i, share in enumerate(shares)]
    return {
        "hpm-c": [absolute + noise],
        "hpm-ct": [squares + noise],
        "hpm-u": [absolute + noise, variance + noise],
        "hpm-ut": [squares + noise, variance + noise],
        "adpm": [
            [(c / log_term / 4, a, b) for c, a, b in variance]
            + [(2 * c / log_term**2, a, b) for c, a, b in noise]
        ],
    }[policy]


def value(rows: Rows, x: Floats) -> float:
    return sum(c * (float(a @ x) - b) ** 2 for c, a, b in rows)


def solved(policy: str, epsilons: Floats, counts: Floats, unit: float) -> tuple[float, Floats]:
    """Return the least objective that Clarabel finds, in a unit near to it, and its weights."""
    users, levels = float(counts.sum()), epsilons.size
    shares, one, none = counts / users, np.eye(levels), np.zeros((levels, levels))
    zeros = np.zeros((levels, 1))
    above = np.block(  # x = (v, its largest v / e, |v - 1|); these are at most `most`
        [
            [-one, zeros, none],
            [one, -epsilons[:, None], none],
            [one, zeros, -one],
            [-one, zeros, -one],
        ]
    )
    most = np.r_[np.zeros(2 * levels), np.ones(levels), -np.ones(levels)]
    sums = np.r_[shares, np.zeros(levels + 1)]
    tight = clarabel.DefaultSettings()
    tight.verbose = False
    tight.tol_gap_abs = tight.tol_gap_rel = 1e-8
    tight.tol_feas = 1e-9
    found = []
    for rows in objectives(policy, shares, users):
        roots = [math.sqrt(c / unit) for c, _, _ in rows]  # y = roots (a x - b), and y y is least
        forms = np.array([root * a for root, (_, a, _) in zip(roots, rows, strict=True)])
        places = np.array([root * b for root, (_, _, b) in zip(roots, rows, strict=True)])
        number, x_size = len(rows), sums.size
        square = np.diag(np.r_[np.zeros(x_size), np.full(number, 2.0)])
        equal = np.block(
            [[sums[None, :], np.zeros((1, number))], [forms, -np.eye(number)]],
        )
        limits = np.vstack([equal, np.hstack([above, np.zeros((most.size, number))])])
        solution = clarabel.DefaultSolver(
            sparse.csc_matrix(square),
            np.zeros(x_size + number),
            sparse.csc_matrix(limits),
            np.r_[1.0, places, most],
            [clarabel.ZeroConeT(1 + number), clarabel.NonnegativeConeT(most.size)],
            tight,
        ).solve()
        assume(solution.status == clarabel.SolverStatus.Solved)
        x = np.array(solution.x)[:x_size]
        found.append((value(rows, x) / unit, x[:levels] / users))
    return min(found, key=lambda one: one[0])


@pytest.mark.parametrize("policy", OBJECTIVES)
@settings(deadline=None, max_examples=25)
@given(mix=solvable_mixes)
def test_a_general_solver_finds_the_same_minimum(policy: str, mix: tuple[Floats, Floats]) -> None:
    epsilons, counts = mix
    weights = report_weights(policy, epsilons, counts, 0.05).per_report
    users = float(counts.sum())
    size, scale = users * weights, users * noise_scale(epsilons, weights)
    ours = np.r_[size, scale, np.abs(size - 1)]
    reached = min(value(rows, ours) for rows in objectives(policy, counts / users, users))
    least, found = solved(policy, epsilons, counts, reached)
    assert counts @ weights == pytest.approx(1)
    assert least == pytest.approx(1, rel=1e-5)
    if policy in STRICTLY_CONVEX:
        assert users * weights == pytest.approx(users * found, rel=1e-2, abs=1e-3)


def test_of_many_minimisers_of_the_deviation_it_is_the_shortest() -> None:
    """Moving weight among users above 1/n keeps the objective, and makes |w|_2 larger."""
    for seed in range(5):
        with row(seed):
            rng = np.random.default_rng(seed)
            epsilons, counts = np.array([0.1, 1.0, 2.0, 4.0, 8.0]), np.array([60.0, 9, 9, 9, 9])
            weights = report_weights("hpm-c", epsilons, counts, 0.05).per_report
            scale, above = noise_scale(epsilons, weights), weights > 1 / counts.sum()
            assert above.sum() == 4
            for _ in range(50):
                step = rng.normal(size=5) * above
                step -= above * (counts @ step) / counts[above].sum()
                other = weights + 1e-4 * step
                room = (other / epsilons).max() <= scale and (
                    other[above] >= 1 / counts.sum()
                ).all()
                if room:
                    assert deviation(counts, other) == pytest.approx(deviation(counts, weights))
                    assert counts @ other**2 > counts @ weights**2


def test_no_weights_leak_more_than_the_least_epsilon_allows() -> None:
    for kind in ["mean", "frequency"]:
        with row(kind):
            epsilons, counts = np.array([0.05, 0.5, 1.0, 8.0]), np.array([100.0, 5, 800, 1])
            for name, policy in WEIGHTINGS[kind].items():
                found = policy(epsilons, counts, math.log(20))
                losses = found.per_report / noise_scale(epsilons, found.per_report)
                assert np.all(losses <= epsilons * (1 + 1e-12)), name
                assert losses.max() > 0
                if found.saturation is not None:
                    assert losses == pytest.approx(np.minimum(epsilons, found.saturation)), name


def test_two_groups_saturate_where_the_paper_says() -> None:
    """ADPM, Table I: R = 1 + 8 / (e_1^2 n f)."""
    for first, share, n in ((0.1, 0.7, 1000), (0.5, 0.2, 50), (0.01, 0.5, 10_000)):
        counts = np.array([n * share, n * (1 - share)])
        ratio = 1 + 8 / (first**2 * n * share)
        for second in (first * (1 + ratio) / 2, first * ratio * 3):
            found = report_weights("adpm", np.array([first, second]), counts, 0.05)
            reach = min(second / first, ratio)
            assert found.per_report[1] / found.per_report[0] == pytest.approx(reach)
            assert found.saturation is not None
            if second > ratio * first:
                assert found.saturation == pytest.approx(ratio * first)
            else:  # one more level would buy something up to there
                assert second < found.saturation < ratio * first


def test_an_unknown_policy_names_those_of_the_kind() -> None:
    levels, counts = np.array([1.0]), np.array([9.0])
    with pytest.raises(ValueError, match=r"'hpm-ct'\? .*adpm"):
        report_weights("hpm-cta", levels, counts, 0.05)
    with pytest.raises(ValueError, match="weights = 'adpm'"):
        report_weights("adpm", levels, counts, 0.05, categories=3)
