"""Errors in the papers as printed, each shown by a number."""

from __future__ import annotations

import math

import numpy as np

from estimators import define
from estimators.central.release_weights import report_weights
from estimators.estimate import Floats
from estimators.exact.randomness import SeededBits
from reproduction.experiments.hdpwc import largest_errors, salaries, tail
from reproduction.experiments.hldp import cost_of_the_papers_weights
from reproduction.outcome import Claim, Outcome, Tick
from reproduction.records import STAND_INS
from reproduction.sampling import mean_and_error, summed

BETA = 0.05


def hemisphere_scale(runs: int, seed: int) -> Claim:
    """Show that Algorithm 4's B, twice ours, estimates twice the mean."""
    metric = define(
        name="m", kind="vector_mean", mechanism="hemisphere", dimension=3, radius=1, levels=[2]
    )
    values, level = np.tile([0.5, 0.0, 0.0], (2000, 1)), np.zeros(2000, np.uint8)
    estimates = []
    for run in range(max(20, runs)):
        statistic = summed(metric, values, level, SeededBits(seed + run))
        estimates.append(float(np.asarray(metric.estimate(statistic, bound="normal").value)[0]))
    mean, error = mean_and_error(estimates)
    return Claim(
        "HLDP Alg. 4, line 6: B is twice too large",
        abs(mean - 0.5) < 4 * error < 0.1,
        f"a mean of 0.5 is estimated as {mean:.3f}, as printed as {2 * mean:.3f}",
    )


def projection_rows() -> Claim:
    """Show the cost of the missing root in Algorithm 5's gamma: n = 1e5, d = 1000, epsilon = 1."""
    users, categories, epsilon = 100_000, 1000, 1.0
    information = users * math.tanh(epsilon / 2) ** 2
    log_term = math.log(2 * categories / BETA)
    gammas = (math.sqrt(log_term) / information, math.sqrt(log_term / information))
    printed, right = (math.log(categories + 1) * math.log(2 / BETA) / g**2 for g in gammas)
    return Claim(
        "HLDP Alg. 5, line 4: gamma lacks the root of its denominator",
        printed > 1e4 * right,
        f"{printed:.2g} rows instead of {right:,.0f}",
    )


def paper_weights() -> list[Claim]:
    """Show the cost of the printed weights."""
    claims = []
    for mechanism, name, least_ratio in (
        ("laplace", "HLDP Alg. 1: the weights ignore that the noise is 8/epsilon^2", 1.4),
        ("hemisphere", "HLDP Alg. 3: epsilon^2 is a poor weight above 1", 2),
    ):
        low, high, ratio = cost_of_the_papers_weights(mechanism)
        measured = f"{ratio:.2f} times the squared error at epsilon {low:g} and {high:g}"
        claims.append(Claim(name, ratio > least_ratio, measured))
    return claims


def geometry_probabilities() -> Claim:
    """Show that eq. (8)'s probabilities do not add up to 1: d = 4, t = 3, epsilon = 1."""
    points, size, shared, factor = 21, 5, 1, math.e
    normaliser = size * factor + points - size
    printed = (size * factor + (points - size) * (size - shared)) / normaliser
    return Claim(
        "HIST eq. (8): the second probability is 1/D",
        printed > 2,
        f"as printed they add up to {printed:.3f}",
    )


def geometry_bound(seed: int) -> Claim:
    """Show that a point mass exceeds Theorem 9: epsilon = 10, n = 1e9, d^2 + d + 1 categories."""
    users, epsilon, d = 10**9, 10.0, 22_027
    points, size, shared = d * d + d + 1, d + 1, 1
    factor = math.exp(epsilon)
    chance = size * factor / (size * factor + points - size)
    alpha = ((factor - 1) * size + points) / ((factor - 1) * (size - shared))
    draws = np.random.default_rng(seed).binomial(users, chance, 10_000) / users
    error = float(np.abs(alpha * (draws - chance)).mean())
    logs, ratio = math.log(points + 1), (2 * factor + 1) / (factor - 1)
    first = 4 * ratio * math.sqrt(logs / (factor * users))
    bound = first + 4 * ratio * logs * math.log(users) / (epsilon * users)
    return Claim(
        "HIST Thm. 9: a point mass exceeds the bound",
        error > 2 * bound,
        f"{error:.2g} for the one category that is held, against {bound:.2g} for all",
    )


def rappor_bound(seed: int) -> Claim:
    """Show that Theorem 6 with log k ignores the sign: even one category has an error."""
    users, epsilon = 1000, 1.0
    flip = 1 / (1 + math.exp(epsilon / 2))
    draws = np.random.default_rng(seed).binomial(users, flip, 10_000)
    error = float(np.abs(draws / users - flip).mean()) / (1 - 2 * flip)
    right = math.sqrt(2 / (math.tanh(epsilon / 4) * users * epsilon) * math.log(2))
    return Claim(
        "HIST Thm. 6: the largest of two-sided errors needs ln 2k",
        0 < error < right,
        f"of one category {error:.3f}; the bound with ln k is 0, with ln 2k {right:.3f}",
    )


def gaussian_branch(seed: int) -> Claim:
    """Show that eq. (151) with the l-infinity norm fails: n = 10,000 equal weights, epsilon = 1."""
    users, draws = 10_000, 500
    noise = np.random.default_rng(seed).laplace(scale=1 / users, size=(draws, users)).sum(axis=1)
    alpha = 2 * math.sqrt(2 / users)  # alpha / 2 is one standard deviation
    chance = float((np.abs(noise) > alpha / 2).mean())
    printed, right = (-((alpha * norm) ** 2) / 100 for norm in (users, math.sqrt(users)))
    return Claim(
        "HDP-WC eq. (151): the Gaussian branch needs the l2 norm",
        math.exp(printed) < chance < math.exp(right),
        f"a chance of {chance:.2f} is bounded by e^{printed:.0f}, with the l2 norm by "
        f"e^{right:.2f} (c = 1/100)",
    )


def minimisers() -> Claim:
    """Show two minimisers of r_C: a capped user's remaining weight may go to anyone else."""
    epsilons, counts = np.array([0.1, 5.0]), np.array([10.0, 20.0])
    ours = report_weights("hpm-c", epsilons, counts, BETA)
    weights = np.repeat(ours.per_report, counts.astype(int))
    shifted, moved = weights.copy(), (weights[-1] - 1 / 30) * 0.9
    shifted[10:20] += moved
    shifted[20:] -= moved

    def objective(w: Floats) -> float:
        cap = np.repeat(epsilons, counts.astype(int))
        deviation = np.abs(w - 1 / 30).sum() ** 2
        return float(deviation + math.log(1 / BETA) ** 2 * (w / cap).max() ** 2)

    norms = [float(w @ w) for w in (weights, shifted)]
    return Claim(
        "HDP-WC r_C: the l1 minimiser is not unique",
        math.isclose(objective(weights), objective(shifted), rel_tol=1e-9) and norms[0] < norms[1],
        f"the same objective {objective(weights):.4f} at squared l2 norms {norms[0]:.5f} (ours) "
        f"and {norms[1]:.5f}",
    )


def heuristic_is_best(runs: int, seed: int) -> Claim:
    """Show that hpf-a is not best where levels correlate with values."""
    paid, _ = salaries(STAND_INS, seed)
    ours, best = (
        tail(largest_errors(policy, paid, runs, seed))[0] for policy in ("hpf-a", "hpf-c")
    )
    return Claim(
        'HDP-WC "HPF-A is best": if levels are independent of the values',
        best < ours,
        f"otherwise its tail error is {ours:.3f}, that of hpf-c {best:.3f}",
    )


def errata(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return every erratum as a claim."""
    claims = [hemisphere_scale(runs, seed), projection_rows(), *paper_weights()]
    tick(0.5)
    claims += [geometry_probabilities(), geometry_bound(seed), rappor_bound(seed)]
    claims += [gaussian_branch(seed), minimisers()]
    tick(0.6)
    claims.append(heuristic_is_best(max(10, runs // 4), seed))
    return Outcome(claims=claims)
