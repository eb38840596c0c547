"""Locally Differentially Private Minimum Finding (MIN), on synthetic data and on records.

Answers are drawn from their exact law, and the product's code decides the rounds. The synthetic
values lie evenly in an interval of length 0.3 of the domain [-1, 1]; their errors are mean absolute
errors, at the worst of six positions of the interval. Of records, subsamples of N users answer, and
errors are distances to the extreme of all users; "as printed" is Algorithm 2 for an unknown alpha,
and our search has as many rounds, but splits the users over them instead of each user's budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from estimators.estimate import Floats
from estimators.extremes import Progress, Search, lower_alpha_setting, unknown_alpha_setting
from reproduction.outcome import Claim, Curve, Number, Outcome, Plot, Tick, steps
from reproduction.records import STAND_INS, Records, Task, tasks
from reproduction.sampling import mean_and_error, slope

WIDTH = 0.3
PLACES = np.linspace(-1, 1 - WIDTH, 6)
SLOPES_WITHIN = 0.05
BETA = 1e-4
"""The beta of our searches in Figure 2: wrong turns are so rare that they add little to a mean."""
SIZES = [2**k for k in range(10, 21)]
Setting = Callable[[int], dict[str, Any]]
SETTINGS: dict[str, Setting] = {
    "known alpha": lower_alpha_setting,
    "unknown alpha": unknown_alpha_setting,
}


def minimum(levels: tuple[float, ...], **changes: Any) -> Search:
    """Return a search for the minimum of values in [-1, 1]."""
    return Search(kind="minimum", range=(-1, 1), levels=levels, **changes)


def searched(
    search: Search, users: int, share_beyond: Callable[[float], float], rng: np.random.Generator
) -> Progress:
    """Run a search among users, equally many at each level, and return its progress.

    Parameters
    ----------
    search : Search
        The search.
    users : int
        The number of users, who answer every round, or are split over the rounds.
    share_beyond : callable
        Takes a threshold; returns the share of users at or beyond it.
    rng : Generator
        Draws the answers.
    """
    flip = 1 / (1 + np.exp([float(epsilon) for epsilon in search.randomizer.epsilons]))
    round_users = users if search.split == "budget" else users // search.rounds
    answers = np.full(flip.size, round_users // flip.size)
    progress = Progress()
    while not search.finished(progress):
        share = share_beyond(search.threshold(progress))
        if search.split == "budget":  # the same users every time
            below = np.floor(share * answers).astype(np.int64)
        else:
            below = rng.binomial(answers, share)
        yes = rng.binomial(below, 1 - flip) + rng.binomial(answers - below, flip)
        progress = search.decide(progress, np.stack([answers, yes], axis=1).reshape(-1))
    return progress


def evenly_from(start: float) -> Callable[[float], float]:
    """Return a function of a threshold: the share of values at or below it.

    The values lie evenly on [start, start + 0.3].
    """
    return lambda threshold: min(1.0, max(0.0, (threshold - start) / WIDTH))


def worst_error(search: Search, users: int, runs: int, seed: int = 1) -> tuple[float, float]:
    """Return the mean absolute error at the worst of six positions, and its standard error.

    Parameters
    ----------
    search, users
        As in :func:`searched`.
    runs : int
        The number of runs at each position.
    seed : int
        The seed of the answers.
    """
    rng = np.random.default_rng([seed, users])

    def error(start: float) -> float:
        progress = searched(search, users, evenly_from(start), rng)
        return abs(float(search.estimate(progress).value) - start)

    return max(mean_and_error([error(x) for _ in range(runs)]) for x in PLACES.tolist())


def guideline(setting: Setting, users: int) -> float:
    """Return the error by MIN's Corollaries at alpha = 1: sqrt(ln^3 N / N) or sqrt(ln^6 N / N)."""
    power = 3 if setting is lower_alpha_setting else 6
    return math.sqrt(math.log(users) ** power / users)


def figure_1(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return the slopes of the error over N = 2^10 to 2^20, and of the corollaries."""
    numbers, curves = [], []
    for done, (name, setting, epsilon) in enumerate(
        (name, setting, epsilon) for name, setting in SETTINGS.items() for epsilon in (1.0, 4.0)
    ):
        errors_by_size = []
        for i, users in enumerate(SIZES):
            search = minimum((epsilon,), split="budget", critical="hoeffding", **setting(users))
            errors_by_size.append(worst_error(search, users, runs, seed))
            tick((done + (i + 1) / len(SIZES)) / 4)
        errors, uncertain = zip(*errors_by_size, strict=True)
        rate, _ = slope(SIZES, [guideline(setting, users) for users in SIZES])
        label = f"epsilon = {epsilon:g}, {name}"
        numbers.append(
            Number(f"slope, {label}", *slope(SIZES, errors, uncertain), rate, SLOPES_WITHIN)
        )
        curves.append(Curve(label, SIZES, errors))
    return Outcome(numbers, (), Plot("N", "mean absolute error", curves))


def figure_2(runs: int, seed: int, tick: Tick) -> Outcome:
    """Return errors of Algorithm 2 as printed, of our searches, of Laplace's smallest report."""
    claims, curves = [], []
    for done, epsilon in enumerate((1.0, 4.0)):
        methods: dict[str, dict[str, Any]] = {
            "budget split": {"split": "budget", "beta": BETA},
            "users split": {"split": "users", "beta": BETA},
        }
        errors_by_method: dict[str, list[float]] = {
            name: [] for name in ("as printed", *methods, "Laplace")
        }
        for i, users in enumerate(SIZES):
            setting = lower_alpha_setting(users)
            printed = minimum((epsilon,), split="budget", critical="paper", **setting)
            errors_by_method["as printed"].append(worst_error(printed, users, runs, seed)[0])
            for name, options in methods.items():
                search = minimum((epsilon,), rounds=setting["rounds"], **options)
                errors_by_method[name].append(worst_error(search, users, runs, seed)[0])
            errors_by_method["Laplace"].append(_smallest_laplace_report(users, epsilon, runs, seed))
            tick((done + (i + 1) / len(SIZES)) / 2)
        curves += [
            Curve(f"{name}, epsilon = {epsilon:g}", SIZES, y)
            for name, y in errors_by_method.items()
        ]
        least_laplace = min(errors_by_method["Laplace"])
        gain = errors_by_method["as printed"][-1] / errors_by_method["users split"][-1]
        halved = errors_by_method["budget split"][-1] / errors_by_method["users split"][-1]
        claims += [
            Claim(
                f"epsilon = {epsilon:g}: the baseline's error is above 1 at every N",
                least_laplace > 1,
                f"at least {least_laplace:.2f}",
            ),
            Claim(
                f"epsilon = {epsilon:g}: splitting users is 1.5 times better at N = 2^20",
                halved > 1.5,
                f"{halved:.2f} times better than splitting the budget, {gain:.1f} than as printed",
            ),
        ]
    notes = [f"Ours: critical = law, beta = {BETA:g}. As printed: the gamma of Corollary 1."]
    return Outcome((), claims, Plot("N", "mean absolute error", curves), notes)


def _smallest_laplace_report(users: int, epsilon: float, runs: int, seed: int) -> float:
    rng = np.random.default_rng([seed, users])
    scale, worst = 2 / epsilon, 0.0
    for start in (PLACES[0], PLACES[-1]):
        values = np.linspace(start, start + WIDTH, users)
        errors = [
            abs((values + rng.laplace(scale=scale, size=users)).min() - start)
            for _ in range(max(1, runs // 10))
        ]
        worst = max(worst, float(np.mean(errors)))
    return worst


EPSILONS = (1.0, 4.0)
MAX_LOG2_USERS, SAMPLES = 18, 5
"""The largest of five samples has up to 2^18 users; each smaller sample has half of the next."""


def sizes(task: Task) -> list[int]:
    """Return the numbers of users: powers of 2, the largest at most 2^18 and at most all."""
    largest = min(MAX_LOG2_USERS, int(math.log2(task.values.size)))
    return [2**k for k in range(max(1, largest - SAMPLES + 1), largest + 1)]


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
