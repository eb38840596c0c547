"""Minimum finding (MIN) on records: extremes of ratings, of customers' ages, of anything.

Subsamples of N users answer; errors are distances to the extreme of all users. "As printed" is
Algorithm 2 for an unknown alpha; our search has as many rounds, and splits the users over them
instead of each user's budget.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from estimators.estimate import Floats
from estimators.extremes import Search, unknown_alpha_setting
from reproduction.experiments.minimum import BETA, searched
from reproduction.outcome import Claim, Curve, Number, Outcome, Plot, Tick, steps
from reproduction.records import STAND_INS, Records, Task, tasks
from reproduction.sampling import mean_and_error, slope

EPSILONS = (1.0, 4.0)
MAX_LOG2_USERS, SIZES = 18, 5
"""The largest of five samples has up to 2^18 users; each smaller sample has half of the next."""


def sizes(task: Task) -> list[int]:
    """Return the numbers of users: powers of 2, the largest at most 2^18 and at most all."""
    largest = min(MAX_LOG2_USERS, int(math.log2(task.values.size)))
    return [2**k for k in range(max(1, largest - SIZES + 1), largest + 1)]


def task_error(
    task: Task, search: Search, sample: Floats, runs: int, seed: int
) -> tuple[float, float]:
    """Return the mean absolute error among the users of a sample, and its standard error.

    Parameters
    ----------
    task : Task
        The task; its extreme value is the truth.
    search : Search
        The search.
    sample : ndarray of float64, shape (users,)
        The values of those who answer.
    runs : int
        The number of runs.
    seed : int
        The seed of the answers.
    """
    users, ordered = sample.size, np.sort(sample)
    extreme = float(task.values.min() if task.kind == "minimum" else task.values.max())

    def beyond(threshold: float) -> float:
        if task.kind == "minimum":
            return float(np.searchsorted(ordered, threshold, side="right")) / users
        return 1 - float(np.searchsorted(ordered, threshold, side="left")) / users

    rng = np.random.default_rng([seed, users])
    progresses = (searched(search, users, beyond, rng) for _ in range(runs))
    return mean_and_error([abs(float(search.estimate(p).value) - extreme) for p in progresses])


def exponent(users: list[int], errors: list[tuple[float, float]]) -> tuple[float, float]:
    """Return alpha, if errors go like (ln^6 N / N)^(1 / (2 alpha)), and its standard error."""
    means, uncertain = zip(*errors, strict=True)
    power, error = slope([math.log(n) ** 6 / n for n in users], means, uncertain)
    return 1 / (2 * power), error / (2 * power**2)


def min_tasks(runs: int, seed: int, tick: Tick, records: Records = STAND_INS) -> Outcome:
    """Return the exponents of the errors, and the gain of splitting the users."""
    rng = np.random.default_rng([8, seed])
    todo = tasks(records, rng)
    numbers, curves, gains, alphas = [], [], {}, {}
    for task in steps(todo, tick):
        users = sizes(task)
        samples = [rng.choice(task.values, n, replace=False) for n in users]
        for epsilon in EPSILONS:
            options: dict[str, Any] = {"kind": task.kind, "range": task.range, "levels": (epsilon,)}
            errors = []
            for n, sample in zip(users, samples, strict=True):
                setting = unknown_alpha_setting(n)
                printed = Search(**options, split="budget", critical="paper", **setting)
                errors.append(task_error(task, printed, sample, runs, seed))
            split = Search(**options, rounds=setting["rounds"], beta=BETA)
            ours, _ = task_error(task, split, sample, runs, seed)
            name = f"{task.name}, epsilon = {epsilon:g}"
            alphas[name], error = exponent(users, errors)
            gains[name] = errors[-1][0] / ours
            numbers.append(Number(f"alpha, {name}", alphas[name], error, task.alpha))
            curves.append(Curve(name, users, [mean for mean, _ in errors]))
    worst = min(gains, key=gains.__getitem__)
    claims = [
        Claim(
            "splitting users is better for every task",
            gains[worst] > 1,
            f"{gains[worst]:.1f} times for {worst}, up to {max(gains.values()):.1f} times",
        ),
        *_orders(alphas),
    ]
    notes = ["alpha: errors as printed go like (ln^6 N / N)^(1 / (2 alpha)), MIN's Corollary 2."]
    data = "; ".join(records.told) if records.tasks else ""
    return Outcome(numbers, claims, Plot("N", "mean error", curves), notes, data)


def _orders(alphas: dict[str, float]) -> list[Claim]:
    """Return claims that exponents of the paper's tasks have the paper's order."""
    claims = []
    for thin, fat in (
        ("lowest average rating", "highest average rating"),
        ("most ratings", "fewest ratings"),
    ):
        pairs = [
            (alphas[f"{thin}, epsilon = {e:g}"], alphas[f"{fat}, epsilon = {e:g}"])
            for e in EPSILONS
            if f"{thin}, epsilon = {e:g}" in alphas
        ]
        if pairs:
            measured = ", ".join(f"{a:.2f} and {b:.2f}" for a, b in pairs)
            held = all(a > b for a, b in pairs)
            claims.append(Claim(f"alpha is larger of the {thin} than of the {fat}", held, measured))
    return claims
