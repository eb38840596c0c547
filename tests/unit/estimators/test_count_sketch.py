"""Count sketch: its hashes, what collisions can do, its bounds, and how fast strings are found."""

from __future__ import annotations

import dataclasses
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, chisquare

from estimators import DefinitionError, LocalMetric, define
from estimators.bounds.collisions import collision_bound
from estimators.bounds.laws.difference_law import DifferenceLaw
from estimators.bounds.own_signs import own_sign_limits
from estimators.bounds.self_normalised import self_normalised_interval
from estimators.exact.hashing import buckets_and_signs, mix, row_constants
from estimators.exact.randomness import SeededBits
from estimators.mechanisms import CountSketch
from estimators.mechanisms.count_sketch import best_blocks
from estimators.metrics.categories import string_key

FALSE_ALARM = 1e-6


def sketch(**changes: object) -> LocalMetric:
    definition: dict[str, Any] = {"levels": [1, 2, 4], "watch": ["a", "b"], **changes}
    metric: LocalMetric = define(
        name="m",
        kind="frequency",
        mechanism="count_sketch",
        categories="open",
        **definition,
    )
    return metric


def test_the_mixer_is_that_of_splitmix64() -> None:
    """The first outputs for the state 1234567, as printed by Rosetta Code."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert row_constants(1234567, 3).tolist() == expected
    words = np.arange(2**16, dtype=np.uint64)
    assert np.unique(mix(words)).size == words.size


@pytest.mark.parametrize("distance", ["random", "one bit", "next"])
def test_two_keys_share_buckets_as_if_rows_were_independent(distance: str) -> None:
    """The number of shared buckets of 512 rows is binomial, of 5,000 pairs of keys."""
    rng, pairs, rows, bits = np.random.default_rng(5), 5_000, 512, 6
    keys = rng.integers(0, 2**64, pairs, dtype=np.uint64)
    others = {
        "random": rng.integers(0, 2**64, pairs, dtype=np.uint64),
        "one bit": keys ^ np.uint64(1),
        "next": keys + np.uint64(1),
    }[distance]
    constants = row_constants(3, rows)
    bucket, negative = buckets_and_signs(keys[:, None], constants, bits)
    other, opposite = buckets_and_signs(others[:, None], constants, bits)
    shared = bucket == other
    expected = pairs * binom.pmf(np.arange(40), rows, 2.0**-bits)
    tally, usual = np.bincount(shared.sum(axis=1), minlength=40)[:40], expected > 10
    observed = [*tally[usual], pairs - tally[usual].sum()]
    assert chisquare(observed, [*expected[usual], pairs - expected[usual].sum()]).pvalue > (
        FALSE_ALARM
    )
    alike = (negative == opposite)[shared]
    assert abs(alike.mean() - 0.5) < 5 / np.sqrt(4 * alike.size)


def exact_collisions(rows: int, buckets: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of b and their chances where all others hold one other value."""
    law = np.ones(1)
    for _ in range(rows):
        law = np.convolve(law, [0.5 / buckets, 1 - 1 / buckets, 0.5 / buckets])
    return np.arange(-rows, rows + 1) / rows, law


@pytest.mark.parametrize(("rows", "buckets"), [(1, 2), (16, 8), (64, 64), (512, 64), (300, 1)])
def test_collisions_of_the_worst_data_stay_below_their_bound(rows: int, buckets: int) -> None:
    values, chances = exact_collisions(rows, buckets)
    for log_p in (-1.0, -3.7, -8.0, -20.0):
        bound = collision_bound(rows, buckets, log_p)
        assert chances[values > bound].sum() <= np.exp(log_p)
    assert collision_bound(rows, buckets, -4000.0) == 1


def test_the_bound_on_collisions_is_that_of_a_normal_law_where_there_are_many() -> None:
    rows, buckets = 2**14, 4
    wide = collision_bound(rows, buckets, np.log(0.001)) * np.sqrt(rows * buckets)
    assert wide == pytest.approx(np.sqrt(-2 * np.log(0.001)), rel=0.01)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_collisions_exceed_their_bound_as_seldom_over_the_hashes_in_use(share: float) -> None:
    """The data are fixed, of one heavy value or two; 2,000 seeds, a fifth of them may exceed."""
    heavy = np.array([[string_key("heavy")], [string_key("other")]], dtype=np.uint64)
    asked = np.array([string_key("asked")], dtype=np.uint64)
    rows, bits, exceeded = 64, 4, 0
    for seed in range(2000):
        constants = row_constants(seed, rows)
        bucket, negative = buckets_and_signs(heavy, constants, bits)
        own, sign = buckets_and_signs(asked, constants, bits)
        collided = np.where(bucket == own, np.where(negative == sign, 1.0, -1.0), 0.0).mean(axis=1)
        bias = share * collided[0] + (1 - share) * collided[1]
        exceeded += abs(bias) > collision_bound(rows, 2**bits, np.log(0.1))
    assert exceeded <= binom.isf(FALSE_ALARM, 2000, 0.2)


@settings(deadline=None, max_examples=200)
@given(
    first=st.floats(-1, 1),
    second=st.floats(-1, 1),
    spare=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    free=st.booleans(),
    beta=st.sampled_from([0.5, 0.05, 1e-3]),
)
def test_limits_of_signed_means_miss_as_seldom_as_they_say(
    first: float, second: float, spare: tuple[float, float], free: bool, beta: float
) -> None:
    """Two levels, by enumeration of all outcomes; each has a mean of its own where it is free."""
    n, contrast = np.array([6, 9]), np.array([0.6, 0.25])
    means = np.array([first, second if free else first])
    coefficient = 1 / (n.sum() * contrast)
    truth = float((n * coefficient * contrast) @ means)
    outcomes, chances = [], []
    for level in range(2):
        moved = contrast[level] * means[level]
        size = abs(moved) + spare[level] * (1 - abs(moved))
        up, down = (size + moved) / 2, (size - moved) / 2
        law = np.zeros((n[level] + 1, n[level] + 1))
        law[0, 0] = 1
        for _ in range(n[level]):
            after = law * (1 - size)
            after[1:] += law[:-1] * up
            after[:, 1:] += law[:, :-1] * down
            law = after
        ups, downs = np.nonzero(
            np.add.outer(np.arange(n[level] + 1), np.arange(n[level] + 1)) <= n[level]
        )
        outcomes.append((ups - downs, ups + downs))
        chances.append(law[ups, downs])
    i, j = (x.ravel() for x in np.indices((chances[0].size, chances[1].size)))
    chance = chances[0][i] * chances[1][j]
    assert chance.sum() == pytest.approx(1)
    sums = np.array([outcomes[0][0][i], outcomes[1][0][j]], dtype=float)
    observed = coefficient[0] * sums[0] + coefficient[1] * sums[1]
    sizes = np.array([outcomes[0][1][i], outcomes[1][1][j]], dtype=float)
    ends = np.full(2, 0.1), np.ones(2)
    law_of = DifferenceLaw(n.astype(float), coefficient, contrast, *ends, free=free, signed=True)
    lower, upper = self_normalised_interval(law_of, sums, sizes, np.log(beta))
    assert chance[lower > truth + 1e-12].sum() <= beta
    assert chance[upper < truth - 1e-12].sum() <= beta
    assert np.all((lower <= np.clip(observed, -1, 1)) & (np.clip(observed, -1, 1) <= upper))


@pytest.mark.parametrize("f", [0.0, 0.01, 0.3, 1.0])
@pytest.mark.parametrize("others", ["alike", "one row"])
def test_limits_from_a_strings_own_signs_miss_as_seldom_as_they_say(f: float, others: str) -> None:
    """4,000 sketches at once, of two levels; each side may miss a tenth of them."""
    rng, runs, rows, log_p = np.random.default_rng(3), 4000, 100, np.log(0.1)
    n, p, q = np.array([3000, 2000]), np.array([0.7, 0.45]), np.array([0.2, 0.01])
    coefficient = 1 / (n.sum() * (p - q))
    held = rng.binomial(n, f, (runs, 2))
    parts = np.zeros((runs, rows))
    for level in range(2):
        for chance, sign in ((p[level], 1), (q[level], -1)):
            reports = rng.binomial(held[:, level], chance)
            where = rng.multinomial(reports, np.full(rows, 1 / rows))
            parts += sign * coefficient[level] * where
    noise = np.zeros(rows)
    noise[: rows if others == "alike" else 1] = 0.01
    parts += noise * rng.choice((-1, 1), (runs, rows))
    observed, scatter = parts.sum(axis=1), rows * parts.var(axis=1)
    law = DifferenceLaw(n.astype(float), coefficient, p - q, 2 * q, p + q, signed=True)
    for free in (False, True):
        exact = dataclasses.replace(law, free=free)
        lower, upper = own_sign_limits(exact, observed, scatter, rows, log_p)
        assert (lower > f).sum() <= binom.isf(FALSE_ALARM, runs, 0.1)
        assert (upper < f).sum() <= binom.isf(FALSE_ALARM, runs, 0.1)
        assert np.all((lower <= np.clip(observed, 0, 1)) & (np.clip(observed, 0, 1) <= upper))


def test_too_few_rows_say_nothing_by_their_signs() -> None:
    one = np.ones(1)
    law = DifferenceLaw(1e4 * one, 1e-4 * one, one, one, one, signed=True)
    lower, upper = own_sign_limits(law, 0.5 * one, 0 * one, 10, np.log(0.001))
    assert (lower[0], upper[0]) == (0, 1)


def test_a_sketchs_bounds_fall_below_what_the_worst_collisions_allow() -> None:
    """Where no string is frequent: 100,000 people of whom no two hold the same."""
    metric, n = sketch(levels=[8], watch=["never"]), 100_000
    statistic = metric.zero()
    level, names = np.zeros(n, dtype=np.uint8), np.array([f"name {i}" for i in range(n)])
    metric.accumulate(statistic, level, metric.randomize(names, level, SeededBits(2)))
    found = metric.estimate(statistic)
    assert np.asarray(found.upper)[0] < collision_bound(512, 64, np.log(0.025)) / 1.5
    assert np.asarray(metric.estimate(statistic, bound="anytime").upper)[0] > 0.015


@pytest.mark.parametrize("target", ["population", "sample"])
def test_strings_are_covered_beside_a_heavy_one_that_collides_in_many_rows(target: str) -> None:
    """100 seeds of the hashes, two buckets a row; a fifth of the intervals may miss."""
    missed, n = 0, 4000
    values = np.where(np.arange(n) < 3600, "heavy", "asked")
    level = (np.arange(n) % 3).astype(np.uint8)
    for seed in range(100):
        metric = sketch(options={"rows": 256, "buckets": 2, "seed": seed}, watch=["asked"])
        statistic = metric.zero()
        metric.accumulate(statistic, level, metric.randomize(values, level, SeededBits(seed)))
        found = metric.estimate(statistic, 0.2, "uniform", target=target)
        missed += not found.lower[0] <= 0.1 <= found.upper[0]  # type: ignore[index]
    assert missed <= binom.isf(FALSE_ALARM, 100, 0.2)


def test_the_number_of_blocks_has_the_least_variance() -> None:
    for hundredths in range(5, 800, 35):
        epsilon = Fraction(hundredths, 100)
        sketches = [
            CountSketch([epsilon], categories=None, rows=2, buckets=2**i) for i in range(11)
        ]
        chosen = sketches[-1].blocks[0]
        assert chosen == best_blocks(epsilon, 1024)
        e = float(np.exp(float(epsilon)))
        variances = {w: (e + 2 * w - 1) * (2 + (e - 1) / w) for w in (2**i for i in range(11))}
        assert variances[chosen] == pytest.approx(min(variances.values()), rel=1e-9)
        assert best_blocks(epsilon, 2) == min(2, chosen)


def test_a_list_of_categories_is_refused() -> None:
    with pytest.raises(DefinitionError, match="'open' for count_sketch, which needs no list"):
        define(name="m", kind="frequency", mechanism="count_sketch", categories=3, levels=[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 0}, "rows = 0: expected 1 or more"),
        ({"buckets": 48}, "buckets = 48: expected a power of two"),
        ({"rows": 2**20, "buckets": 32}, "expected at most 16777216"),
        ({"seed": -1}, "seed = -1: expected 0 to"),
    ],
)
def test_a_sketch_that_cannot_be_is_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        sketch(options=options)


def test_the_seed_changes_what_a_report_means_and_the_watch_does_not() -> None:
    assert sketch().revision != sketch(options={"seed": 1}).revision
    assert sketch().revision == sketch(watch=["c"]).revision


@pytest.mark.parametrize("buckets", [1, 2, 64])
@pytest.mark.parametrize("bound", ["fixed", "anytime", "normal"])
def test_strings_nobody_listed_are_found_again(bound: str, buckets: int) -> None:
    metric = sketch(options={"rows": 1024, "buckets": buckets})
    values = np.repeat(["N725MQ", "", "émile"], [30_000, 15_000, 5_000])
    level = np.tile([0, 1, 2, 2, 2], 10_000).astype(np.uint8)
    statistic = metric.zero()
    metric.accumulate(statistic, level, metric.randomize(values, level, SeededBits(1)))
    asked = ["émile", "N725MQ", "never", ""]
    found = metric.estimate(statistic, bound=bound, categories=asked)
    truth = np.array([0.1, 0.6, 0.0, 0.3])
    assert found.labels == tuple(asked)
    assert np.all((found.lower <= truth) & (truth <= found.upper))
    if buckets == 64:
        assert np.all(np.abs(found.value - truth) < 0.03)


def test_nothing_is_asked_for_where_nothing_is_on_watch() -> None:
    metric = sketch(watch=[])
    statistic = metric.zero()
    metric.accumulate(statistic, [0], metric.randomize(["a"], [0], SeededBits(1)))
    for bound in ("fixed", "anytime", "normal"):
        found = metric.estimate(statistic, bound=bound)
        assert np.shape(found.value) == np.shape(found.lower) == (0,)


def test_a_thousand_strings_are_answered_from_a_million_cells_at_once() -> None:
    """In 0.035 s on the machine that this was written on; ten times as much is allowed for."""
    metric = sketch(levels=[0.5, 1, 2, 3, 3.5, 4, 5, 6], options={"buckets": 128})
    level = np.repeat(np.arange(8), 100)
    statistic = metric.zero()
    assert statistic.size > 10**6
    metric.accumulate(statistic, level, metric.randomize(["a"] * 800, level, SeededBits(1)))
    names = [f"name {index}" for index in range(1000)]
    seconds = []
    for _ in range(3):
        start = time.process_time()
        metric.estimate(statistic, categories=names)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.35
