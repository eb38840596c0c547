"""Errors of searches for a minimum: what splitting and levels are worth, and their certificate.

As MIN's section 6.1, see :mod:`reproduction.experiments.minimum`. Seeds are fixed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from reproduction.experiments.minimum import (
    SETTINGS,
    Setting,
    evenly_from,
    minimum,
    searched,
    worst_error,
)

every_setting = pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)


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
        worst_error(minimum((epsilon,), split=split, **setting(users)), users, runs)[0]
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
    assert worst_error(mixed, users, runs)[0] * 1.5 < worst_error(lowest, users, runs)[0]


@pytest.mark.parametrize("runs", [60, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("critical", ["law", "hoeffding"])
@pytest.mark.parametrize("split", ["users", "budget"])
def test_the_certificate_holds(split: str, critical: str, runs: int) -> None:
    """At most beta, but for one seed in 10^4."""
    search = minimum((0.5, 4.0), rounds=8, split=split, critical=critical, beta=0.1)
    rng = np.random.default_rng(9)
    failed = sum(
        float(search.estimate(searched(search, 4096, evenly_from(0.5), rng)).upper) < 0.5
        for _ in range(runs)
    )
    assert failed <= runs * search.beta + 4 * math.sqrt(runs * search.beta)
