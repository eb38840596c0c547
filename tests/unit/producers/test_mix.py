"""Who wants which privacy."""

from __future__ import annotations

import numpy as np
import pytest

from producers.populations.level_distribution import LevelDistribution
from tests.support.rows import row
from tests.support.running.broker import LATE


def test_a_mix_is_read_as_epsilons_and_shares() -> None:
    mix = LevelDistribution.parse("0.25:0.1, 0.5:0.2,1:0.4,2:0.2,4:0.1")
    assert mix == LevelDistribution((0.25, 0.5, 1.0, 2.0, 4.0), (0.1, 0.2, 0.4, 0.2, 0.1))
    assert LevelDistribution.even(LATE) == LevelDistribution((0.5, 1.0, 2.0, 4.0), (0.25,) * 4)


def test_devices_get_epsilons_in_proportion_and_the_same_for_the_same_seed() -> None:
    mix = LevelDistribution.parse("0.5:0.25,2:0.75,4:0")
    one, two = (mix.assign(40_000, np.random.default_rng(7)) for _ in range(2))
    assert np.array_equal(one, two)
    assert abs((one == 0.5).mean() - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 40_000)
    assert not (one == 4).any()


def test_a_mix_that_is_none_is_explained() -> None:
    for text, said in (
        ("", "'' in the mix ''"),
        ("1", "'1' in the mix '1': expected epsilon:share pairs"),
        ("1:0.5,x:0.5", "'x:0.5' in the mix"),
        ("1:0.5,2:0.4", "add up to 0.9"),
        ("1:1.5,2:-0.5", "share 1.5: expected a number from 0 to 1"),
        ("1:nan", "share nan"),
        ("0:1", "epsilon 0.0: expected a finite number above 0"),
        ("inf:1", "epsilon inf"),
        ("1:0.5,1:0.5", "expected each epsilon once"),
        ("0.1:1", r"the mix cannot be used: epsilon = 0.1: metric 'late'"),
    ):
        with row(text), pytest.raises(ValueError, match=said):
            LevelDistribution.parse(text).check(LATE)
    LevelDistribution.even(LATE).check(LATE)
