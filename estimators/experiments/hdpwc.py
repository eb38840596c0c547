"""Empirical Mean and Frequency Estimation Under Heterogeneous Privacy (HDP-WC): tail errors.

Releases of trusted frequencies, clipped to [0, 1] as in the paper; the 95% quantile of the largest
error. The paper's records cannot be shipped: the values here are drawn from a distribution of as
many bins, for as many users, with the paper's law of the levels.
"""

from __future__ import annotations

import math

import numpy as np

from estimators.experiments.adpm import collected, trusted
from estimators.experiments.outcome import Claim, Experiment, Number, Outcome, Tick
from estimators.randomness import SeededBits

BETA = 0.05
TABLE_4 = {
    False: {"hpf-a": 0.005, "hpf-u": 0.009, "proportional": 0.014, "uniform-minimum": 0.091},
    True: {"hpf-c": 0.118, "hpf-a": 0.174, "proportional": 0.273, "uniform-minimum": 1.0},
}


def tail_error(policy: str, *, correlated: bool, runs: int, seed: int) -> tuple[float, float]:
    """Return the 95% quantile of the largest error of a frequency, and its standard error.

    Uncorrelated (cancer types): ten bins, ln epsilon uniform on [-5, ln 64], 17,000 users.
    Correlated (salaries): twelve bins, ln epsilon = -abs(i - 6.5) + uniform on [-3, 3], 50,000.
    """
    rng, bits = np.random.default_rng([4, seed]), SeededBits(seed)
    bins, users = (12, 50_000) if correlated else (10, 17_000)
    metric = trusted(np.exp(np.linspace(-9, math.log(64), 150)), categories=bins)
    shares = rng.dirichlet(np.full(bins, 3.0))
    if correlated:
        shares = np.exp(-((np.arange(bins) - 4.5) ** 2) / 8)
    values = rng.choice(bins, users, p=shares / shares.sum())
    logs = rng.uniform(-5, math.log(64), users)
    if correlated:
        logs = -np.abs(values + 1 - 6.5) + rng.uniform(-3, 3, users)
    level = metric.level_of(np.maximum(np.exp(logs), metric.levels[0]))
    truth, errors = np.bincount(values, minlength=bins) / users, []
    for _ in range(runs):
        own = values if correlated else rng.permutation(values)
        released = metric.release(collected(metric, own, level), bits, policy, BETA, "sample")
        errors.append(float(np.abs(np.clip(released.value, 0, 1) - truth).max()))
    ordered = np.sort(errors)
    reach = math.sqrt(runs * BETA * (1 - BETA))
    low, high = (
        ordered[min(runs - 1, max(0, round(runs * (1 - BETA) + side * reach)))] for side in (-1, 1)
    )
    return float(np.quantile(errors, 1 - BETA)), float(high - low) / 2


def table_4(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return tail errors of each policy, and claim their orders."""
    numbers, claims = [], []
    for i, (correlated, paper) in enumerate(TABLE_4.items()):
        data = "levels that go with the values" if correlated else "independent levels"
        found = {}
        for j, (policy, value) in enumerate(paper.items()):
            ours, error = tail_error(policy, correlated=correlated, runs=runs, seed=seed)
            found[policy] = ours
            numbers.append(Number(f"{policy}, {data}", ours, error, value))
            tick((i + (j + 1) / len(paper)) / len(TABLE_4))
        best = next(iter(paper))
        beyond = "" if correlated else ", and the others follow in the paper's order"
        in_order = list(found.values()) == sorted(found.values())
        claims.append(
            Claim(
                f"{best} is best with {data}{beyond}",
                found[best] == min(found.values()) and (correlated or in_order),
                ", ".join(f"{policy} {value:.4f}" for policy, value in found.items()),
            )
        )
    note = "The paper's numbers are of other records: orders and orders of magnitude compare."
    return Outcome(numbers, claims, notes=[note])


EXPERIMENTS = {
    "hdpwc-table4": Experiment(
        "tail errors of frequencies, where levels go with the values and where they do not",
        "HDP-WC, Table 4",
        "stand-ins of the paper's size; its records cannot be shipped",
        300,
        20,
        table_4,
    ),
}
