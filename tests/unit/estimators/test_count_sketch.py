"""Count sketch: its hashes, what collisions can do, its bounds, and how fast strings are found."""

from typing import Any

import numpy as np
import pytest

from estimators import LocalMetric, define
from estimators.bounds.block_differences.law import DifferenceLaw
from estimators.bounds.sketches import Collisions, collision_bound, own_sign_limits
from estimators.exact.hashing import hash_constants, mix
from estimators.question import Question
from tests.support.reports.cases import summed
from tests.support.rows import row


def sketch(**changes: object) -> LocalMetric:
    keys: dict[str, Any] = {"levels": [1, 2, 4], "watch": ["a", "b"], "categories": "open"}
    metric: LocalMetric = define(
        name="m", kind="frequency", mechanism="count_sketch", **{**keys, **changes}
    )
    return metric


def test_the_mixer_is_that_of_splitmix64() -> None:
    """The first outputs for the state 1234567, as printed by Rosetta Code."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert hash_constants(1234567, np.arange(3)).tolist() == expected
    words = np.arange(2**16, dtype=np.uint64)
    assert np.unique(mix(words)).size == words.size


def exact_collisions(rows: int, buckets: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of b and their chances where all others hold one other value."""
    law = np.ones(1)
    for _ in range(rows):
        law = np.convolve(law, [0.5 / buckets, 1 - 1 / buckets, 0.5 / buckets])
    return np.arange(-rows, rows + 1) / rows, law


def test_collisions_of_the_worst_data_stay_below_their_bound() -> None:
    for rows, buckets in ((1, 2), (16, 8), (64, 64), (512, 64), (300, 1)):
        values, chances = exact_collisions(rows, buckets)
        for log_p in (-1.0, -3.7, -8.0, -20.0):
            with row(rows, buckets, log_p):
                bound = collision_bound(rows, buckets, log_p)
                assert chances[values > bound].sum() <= np.exp(log_p)
        assert collision_bound(rows, buckets, -4000.0) == 1
    # where there are many, it is that of a normal law
    wide = collision_bound(2**14, 4, np.log(0.001)) * 2**8
    assert wide == pytest.approx(np.sqrt(-2 * np.log(0.001)), rel=0.01)


def test_too_few_rows_say_nothing_by_their_signs() -> None:
    one = np.ones(1)
    law = DifferenceLaw(1e4 * one, 1e-4 * one, one, one, one, signed=True)
    lower, upper = own_sign_limits(law, 0.5 * one, 0 * one, 10, np.log(0.001))
    assert (lower[0], upper[0]) == (0, 1)


def test_without_noise_signs_and_collisions_have_the_bounds_of_their_inequalities() -> None:
    """Of 10^11 reports: Hoeffding's for the signs, and that of all users to come at all times."""
    one, n, half = np.ones(1), 1e11, np.array([0.5])
    law = DifferenceLaw(n * one, one / n, one, one, one, signed=True)
    found = own_sign_limits(law, half, 1e-4 * one, 400, np.log(0.001))
    others = np.sqrt(-2 * np.log(0.7 * 0.001))
    margin = others * 0.01 / (1 - others / 20)
    assert np.ravel(found) == pytest.approx([0.5 - margin, 0.5 + margin], rel=1e-3)
    question = Question(bound="anytime", beta=0.1)
    for own, users in ((False, 1.0), (True, n * (n + 1))):
        limits = Collisions(2**14, 64).limits(
            law, half, 0 * one, n * one[None], question, n, free=own
        )
        bias = collision_bound(2**14, 64, np.log(0.05 / 2 / users))
        expected = [(0.5 - bias) / (1 - bias), (0.5 + bias) / (1 + bias)]
        assert np.ravel(limits) == pytest.approx(expected, rel=1e-3), own


def test_a_sketchs_bounds_fall_below_what_the_worst_collisions_allow() -> None:
    """Where no string is frequent: 100,000 people of whom no two hold the same."""
    metric = sketch(levels=[8], watch=["never"])
    statistic = summed(metric, np.array([f"name {i}" for i in range(100_000)]), seed=2)
    found = metric.estimate(statistic)
    assert np.asarray(found.upper)[0] < collision_bound(512, 64, np.log(0.025)) / 1.5
    assert np.asarray(metric.estimate(statistic, bound="anytime").upper)[0] > 0.015


def test_the_seed_changes_what_a_report_means_and_the_watch_does_not() -> None:
    assert sketch().revision != sketch(options={"seed": 1}).revision
    assert sketch().revision == sketch(watch=["c"]).revision


def test_strings_nobody_listed_are_found_again() -> None:
    values = np.repeat(["N725MQ", "", "émile"], [30_000, 15_000, 5_000])
    level, asked = np.tile([0, 1, 2, 2, 2], 10_000), ["émile", "N725MQ", "never", ""]
    truth = np.array([0.1, 0.6, 0.0, 0.3])
    for buckets in (1, 2, 64):
        metric = sketch(options={"rows": 1024, "buckets": buckets})
        statistic, empty = summed(metric, values, level), sketch(watch=[])
        for bound in ("fixed", "anytime", "normal"):
            found = metric.estimate(statistic, bound=bound, categories=asked)
            with row(buckets, bound):
                assert found.labels == tuple(asked)
                assert np.all((found.lower <= truth) & (truth <= found.upper))
                assert buckets < 64 or np.all(np.abs(found.value - truth) < 0.03)
                nothing = empty.estimate(empty.zero(), bound=bound)
                assert np.shape(nothing.value) == np.shape(nothing.lower) == (0,)
