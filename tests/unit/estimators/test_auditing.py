"""An empirical bound on epsilon holds as often as it says, and is near what is true."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from estimators import LocalMetric, define
from estimators.auditing import Trials, epsilon_bound, largest_leak, opposite_values
from estimators.exact.randomness import SeededBits
from tests.support.reports.cases import CASES, metric_for
from tests.support.rows import row

LEVELS = (0.5, 1.0, 2.0, 4.0)


def test_a_mechanism_that_keeps_its_promise_is_called_broken_no_oftener_than_said() -> None:
    """Exactly, over all outcomes, for the event that tells two values apart best."""
    for epsilon, confidence, n in itertools.product((0.25, 1.0, 4.0), (0.9, 0.999), (60, 200)):
        p = math.exp(epsilon) / (1 + math.exp(epsilon))
        own, other = np.meshgrid(np.arange(n + 1), np.arange(n + 1), indexing="ij")
        bounds = epsilon_bound(own.ravel(), n, other.ravel(), n, confidence)
        chance = np.outer(binom.pmf(np.arange(n + 1), n, p), binom.pmf(np.arange(n + 1), n, 1 - p))
        with row(epsilon, confidence, n):
            assert chance.ravel()[bounds > epsilon].sum() <= 1 - confidence
    assert epsilon_bound([0, 5, 5], 5, [0, 5, 0], 5, 0.9).tolist()[:2] == [0, 0]


def drawn(metric: LocalMetric, level: int, value: Any, n: int, seed: int) -> Any:
    values = np.array([value] * n)
    return metric.randomize(values, np.full(n, level, dtype=np.uint8), SeededBits(seed))


def trials(metric: LocalMetric, level: int, n: int, seed: int) -> tuple[Trials, Trials]:
    first, second = opposite_values(metric)
    reports = [drawn(metric, level, value, n, seed + i) for i, value in enumerate((first, second))]
    others = [drawn(metric, level, first, n, seed + 2 + i) for i in range(4)]
    return Trials(reports[0], *others[:2]), Trials(reports[1], *others[2:])


def test_a_stated_likelihood_is_that_of_the_reports() -> None:
    """Under one value, the likelihood ratio of another one has mean 1: within 5 deviations."""
    for case in CASES:
        metric = metric_for(case, LEVELS)
        values = opposite_values(metric)
        first, second = (metric.domain.to_unit(np.array([x]))[0] for x in values)
        for level in range(len(LEVELS)):
            reports = drawn(metric, level, values[1], 20_000, seed=level)
            under = [metric.randomizer.log_likelihood(reports, level, x) for x in (first, second)]
            ratio = np.exp(under[0] - under[1])
            with row(case, level):
                assert ratio.max() <= math.exp(LEVELS[level]) * (1 + 1e-9)
                assert abs(ratio.mean() - 1) < 5 * ratio.std() / math.sqrt(ratio.size)


def test_the_likelihood_of_a_value_in_between_counts_its_rounding() -> None:
    cases = itertools.product(("randomized_response", "laplace"), (-0.6, 0.31), range(len(LEVELS)))
    for mechanism, value, level in cases:
        metric = metric_for(mechanism, LEVELS)
        reports = drawn(metric, level, value, 50_000, seed=level)
        own, other = (metric.randomizer.log_likelihood(reports, level, x) for x in (value, -1.0))
        ratio = np.exp(other - own)
        with row(mechanism, value, level):
            assert abs(ratio.mean() - 1) < 5 * ratio.std() / math.sqrt(ratio.size)


@pytest.mark.more
def test_the_attack_comes_close_and_never_above() -> None:
    for case in CASES:
        metric = metric_for(case, (1.0, 2.0))
        for level, epsilon in enumerate(metric.levels):
            leak = largest_leak(metric, level, *trials(metric, level, 20_000, seed=10 * level))
            with row(case, epsilon):
                assert 0.75 * epsilon < leak.lower <= epsilon


def test_a_level_may_have_symbols_that_the_next_one_lacks() -> None:
    """The number of symbols falls from 192 to 187: their likelihood there is that of no report."""
    metric = LocalMetric.require(
        define(name="m", kind="mean", mechanism="windows", range=(0, 1), levels=[10, 12])
    )
    reports = drawn(metric, 0, 1.0, 2_000, seed=1)
    likelihood = metric.randomizer.log_likelihood(reports, 1, 1.0)
    assert (np.isneginf(likelihood) == (reports >= 187)).all()
    assert (reports >= 187).any()
    assert largest_leak(metric, 0, *trials(metric, 0, 2_000, seed=1)).lower <= 10


def test_randomness_that_was_used_twice_is_noticed() -> None:
    metric = metric_for("rappor", (1.0,))
    first, second = trials(metric, 0, 2_000, seed=1)
    for place in ("beside", "across"):
        copies = {place: first.reports, ("across", "beside")[place == "across"]: first.across}
        leak = largest_leak(metric, 0, Trials(first.reports, **copies), second)
        assert leak.lower > 2
        assert leak.event.startswith("repeats")


def test_what_shows_the_second_value_counts_and_not_in_the_reports_that_it_was_chosen_by() -> None:
    """The first value never sends symbol 2; then neither does, and others tell them apart."""
    metric = define(name="m", kind="frequency", mechanism="grr", categories=3, levels=[1])

    def made(symbols: list[int], later: list[int]) -> Trials:
        reports = np.concatenate([np.resize(symbols, 500), np.resize(later, 1500)])
        other = (reports + 1) % 3
        return Trials(reports.astype(np.uint8), other.astype(np.uint8), other.astype(np.uint8))

    one, two = [0, 1], [0, 1, 2, 2]
    assert largest_leak(metric, 0, made(one, one), made(two, two)).lower > 2
    assert largest_leak(metric, 0, made(one, [0]), made(two, [1])).lower == 0
