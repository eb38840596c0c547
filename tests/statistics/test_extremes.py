"""Errors of searches for a minimum: their rates, and what splitting and levels are worth.

As MIN's section 6.1: users evenly over 0.3 of the domain [-1, 1], the worst of six places for the
minimum, the mean absolute error. Answers are drawn from their exact law, decisions are the
product's. Seeds are fixed.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from estimators.extremes import Progress, Search, lower_alpha_setting, unknown_alpha_setting

if TYPE_CHECKING:
    from collections.abc import Callable

    Setting = Callable[[int], dict[str, Any]]

WIDTH = 0.3
PLACES = np.linspace(-1, 1 - WIDTH, 6)


def searched(search: Search, users: int, start: float, rng: np.random.Generator) -> Progress:
    """Run a search among users whose values lie evenly on [start, start + WIDTH], levels alike."""
    flip = 1 / (1 + np.exp([float(epsilon) for epsilon in search.randomizer.epsilons]))
    asked = users if search.split == "budget" else users // search.rounds
    answers = np.full(flip.size, asked // flip.size)
    progress = Progress()
    while not search.finished(progress):
        share = min(1.0, max(0.0, (search.threshold(progress) - start) / WIDTH))
        if search.split == "budget":  # the same users every time
            below = np.floor(share * answers).astype(np.int64)
        else:
            below = rng.binomial(answers, share)
        yes = rng.binomial(below, 1 - flip) + rng.binomial(answers - below, flip)
        progress = search.decide(progress, np.stack([answers, yes], axis=1).reshape(-1))
    return progress


def error(search: Search, users: int, runs: int, seed: int = 1) -> float:
    """Return the mean absolute error at the worst of the places."""
    rng = np.random.default_rng([seed, users])
    return max(
        float(
            np.mean(
                [
                    abs(float(search.estimate(searched(search, users, x, rng)).value) - x)
                    for _ in range(runs)
                ]
            )
        )
        for x in PLACES.tolist()
    )


def minimum(levels: tuple[float, ...], **changes: Any) -> Search:
    return Search(kind="minimum", range=(-1, 1), levels=levels, **changes)


def slope(sizes: list[int], values: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def rate(epsilon: float, setting: Setting, users: int) -> float:
    """Return MIN's Corollary 1 or 2 at alpha = 1: the root of ln^3 N / N, or of ln^6 N / N.

    They take epsilon / rounds to be small. At epsilon = 4 it is not, and the rate is that of the
    theorem they follow from: its gamma.
    """
    if epsilon > 1:
        chosen = setting(users)
        search = minimum((epsilon,), split="budget", critical="paper", **chosen)
        return search.critical_share((users,))
    power = 3 if setting is lower_alpha_setting else 6
    return math.sqrt(math.log(users) ** power / users)


every_setting = pytest.mark.parametrize("setting", [lower_alpha_setting, unknown_alpha_setting])


@pytest.mark.slow
@every_setting
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_the_error_falls_as_the_corollaries_say(epsilon: float, setting: Setting) -> None:
    sizes = [2**k for k in range(10, 21)]
    errors = [
        error(
            minimum((epsilon,), split="budget", critical="hoeffding", **setting(users)), users, 100
        )
        for users in sizes
    ]
    expected = slope(sizes, [rate(epsilon, setting, users) for users in sizes])
    assert slope(sizes, errors) == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize(
    ("epsilon", "runs"),
    [
        (1.0, 10),
        pytest.param(1.0, 150, marks=pytest.mark.slow),
        pytest.param(4.0, 150, marks=pytest.mark.slow),
    ],
)
@every_setting
def test_splitting_the_users_beats_splitting_the_budget(
    setting: Setting, epsilon: float, runs: int
) -> None:
    users = 2**20
    errors = [
        error(minimum((epsilon,), split=split, **setting(users)), users, runs)
        for split in ("users", "budget")
    ]
    assert errors[0] * 1.5 < errors[1]


@pytest.mark.parametrize(
    ("users", "runs"), [(2**14, 10), pytest.param(2**20, 150, marks=pytest.mark.slow)]
)
@every_setting
def test_using_every_level_beats_rounding_all_down_to_the_lowest(
    setting: Setting, users: int, runs: int
) -> None:
    mixed = minimum((0.5, 4.0), **setting(users))
    lowest = minimum((0.5,), **setting(users))
    assert error(mixed, users, runs) * 1.5 < error(lowest, users, runs)


@pytest.mark.parametrize("runs", [60, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("critical", ["law", "hoeffding"])
@pytest.mark.parametrize("split", ["users", "budget"])
def test_the_certificate_holds(split: str, critical: str, runs: int) -> None:
    """At most beta, but for one seed in 10^4."""
    search = minimum((0.5, 4.0), rounds=8, split=split, critical=critical, beta=0.1)
    rng = np.random.default_rng(9)
    failed = sum(
        float(search.estimate(searched(search, 4096, 0.5, rng)).upper) < 0.5 for _ in range(runs)
    )
    assert failed <= runs * search.beta + 4 * math.sqrt(runs * search.beta)
