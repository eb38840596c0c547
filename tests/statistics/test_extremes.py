"""Errors of searches for a minimum: what splitting and levels are worth, and their certificate.

As MIN's section 6.1, see :mod:`reproduction.experiments.minimum`. Seeds are fixed.
"""

import itertools
import math

import numpy as np
import pytest

from reproduction.experiments.minimum import SETTINGS, evenly_from, minimum, searched, worst_error
from tests.support.rows import row


@pytest.mark.parametrize(
    ("users", "runs"), [(2**14, 10), pytest.param(2**20, 150, marks=pytest.mark.slow)]
)
def test_users_are_split_and_all_levels_are_used(users: int, runs: int) -> None:
    """The worst error is 1.5 times as large with a split budget, or with the lowest level alone."""
    for name, setting in SETTINGS.items():
        split, budget = (
            worst_error(minimum((1.0,), split=by, **setting(2**20)), 2**20, runs)[0]
            for by in ("users", "budget")
        )
        mixed, lowest = (
            worst_error(minimum(levels, **setting(users)), users, runs)[0]
            for levels in ((0.5, 4.0), (0.5,))
        )
        with row(name):
            assert split * 1.5 < budget
            assert mixed * 1.5 < lowest


@pytest.mark.parametrize("runs", [60, pytest.param(2000, marks=pytest.mark.slow)])
def test_the_certificate_holds(runs: int) -> None:
    """At most beta, but for one seed in 10^4."""
    for split, critical in itertools.product(("users", "budget"), ("law", "hoeffding")):
        search = minimum((0.5, 4.0), rounds=8, split=split, critical=critical, beta=0.1)
        rng = np.random.default_rng(9)
        failed = sum(
            float(search.estimate(searched(search, 4096, evenly_from(0.5), rng)).upper) < 0.5
            for _ in range(runs)
        )
        with row(split, critical):
            assert failed <= runs * search.beta + 4 * math.sqrt(runs * search.beta)
