"""What is promised of windows that grow, or are looked at often, and of weights chosen after.

Sums are drawn from the exact law of randomized response; the bounds are those of an answer at the
beta that it has (`tests/unit/aggregator/reading/test_coverage.py`), for thousands of sums at once.
Each limit on a count is exceeded by one seed in 10^4 where the promise is kept exactly.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.signal import fftconvolve
from scipy.stats import binom

from aggregator.reading.coverage import distinct_policies
from aggregator.reading.query import Query
from aggregator.reading.reader import Reader
from aggregator.reading.windows import Sums, Window
from estimators import define
from estimators.bounds import limits
from estimators.mechanisms import RandomizedResponse
from estimators.question import Question
from estimators.weights import level_weights, total_weight
from tests.support.rows import row

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from estimators.estimate import Counts

BETA = 0.05
DAY = 24
LEVELS = [0.25, 0.5, 1, 2, 4]
LATE = define(
    name="late", kind="mean", mechanism="randomized_response", range=(-1, 1), levels=LEVELS
)
MEAN = 0.3
CHANCE = (1 + MEAN * np.tanh(np.array(LEVELS) / 2)) / 2
"""Of a sign that is sent as +1."""


def misses(ones: Counts, each: int, beta: float, policy: str = "optimal") -> NDArray[np.bool_]:
    """Return which fixed bounds miss the mean: one for each row of counts of +1 by level."""
    mechanism = LATE.randomizer
    assert isinstance(mechanism, RandomizedResponse)
    counts = np.full(len(LEVELS), each)
    shares = level_weights(policy, counts, mechanism.facts)
    question = Question(beta=beta, weights=policy)
    found = shares @ ((2 * ones.T / each - 1) / mechanism.signs.contrast[:, None])
    law = mechanism.law(counts, shares, question)
    total = total_weight(policy, counts, mechanism.facts)
    lower, upper = limits(law, found, question, math.log(beta / 2), total)
    missed: NDArray[np.bool_] = (lower > MEAN) | (upper < MEAN)
    return missed


def slid(runs: int, hours: int, each: int, beta: float) -> NDArray[np.bool_]:
    """Return where the bounds of a day that slides by an hour miss, shape (runs, hours)."""
    rng = np.random.default_rng(1)
    drawn = rng.binomial(each, CHANCE, (runs, hours + DAY - 1, len(LEVELS)))
    sums = np.cumsum(np.concatenate([np.zeros_like(drawn[:, :1]), drawn], axis=1), axis=1)
    days = sums[:, DAY:] - sums[:, :-DAY]
    return misses(days.reshape(-1, len(LEVELS)), DAY * each, beta).reshape(runs, hours)


@pytest.mark.parametrize(
    ("runs", "hours"), [(400, 100), pytest.param(4_000, 720, marks=pytest.mark.slow)]
)
def test_a_day_that_slides_is_wrong_seldom_and_several_windows_are_covered_together(
    runs: int, hours: int
) -> None:
    """The slow one takes a minute: a month of hours."""
    alone = slid(runs, hours, 200, BETA)
    ever = np.count_nonzero(alone.any(axis=1))
    assert ever > binom.isf(1e-4, runs, BETA), "which is why no 'at all times' is promised here"
    shares = alone.mean(axis=1)
    assert shares.mean() <= BETA + 3.72 * shares.std() / math.sqrt(runs)
    together = slid(runs, hours, 200, BETA / hours)
    assert np.count_nonzero(together.any(axis=1)) <= binom.isf(1e-4, runs, BETA)


FAIR = define(
    name="fair", kind="mean", mechanism="randomized_response", range=(-1, 1), levels=[4], pane="1d"
)
"""Of the values +1 and -1 with mean 0, whose reports are fair signs."""


def edges(reports: int, status: str, windows: int) -> tuple[int, int]:
    """Return the counts of +1, out of so many reports, from which an answer excludes the mean 0.

    At most the first, or at least the second: from answers as readers get them.
    """

    def excludes(ones: int) -> bool:
        sums = Sums(np.array([reports, ones]))
        seen = Window(metric=FAIR, start_ms=0, end_ms=86_400_000, status=status, content=sums)
        return float(Reader.answer(seen, Query(beta=BETA, windows=windows)).lower) > 0

    low, high = reports // 2, reports + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if middle > reports or excludes(middle) else (middle + 1, high)
    return reports - low, low


def test_answers_while_windows_grow_and_final_answers_are_two_statements() -> None:
    """Exactly, for one window and for thirty that are promised together: no draws.

    The law of the counts of +1 on paths that were never excluded is carried from look to look.
    """
    last = 20_000
    looks = sorted({round(1.15**i) for i in range(25, 71)} | {last})
    for windows in (1, 30):
        growing, before = np.ones(1), 0
        for reports in looks:
            more = binom.pmf(np.arange(reports - before + 1), reports - before, 0.5)
            growing, before = fftconvolve(growing, more), reports
            least, most = edges(reports, "provisional", windows)
            growing[: least + 1] = growing[most:] = 0.0
        law = binom.pmf(np.arange(last + 1), last, 0.5)
        least, most = edges(last, "final", windows)
        kept = [growing.sum(), law[least + 1 : most].sum(), growing[least + 1 : most].sum()]
        grown, final, either = (1 - float(one) ** windows for one in kept)
        with row(windows, grown, final, either):
            assert 0.1 * BETA < grown <= BETA
            assert 0.8 * BETA < final <= BETA
            assert BETA < either <= 2 * BETA, "which is why it is not said of both together"


@pytest.mark.parametrize(
    ("runs", "each"), [(3_000, 1_000), pytest.param(100_000, 2_000, marks=pytest.mark.slow)]
)
def test_weights_chosen_among_four_after_looking_miss_no_more_often_than_promised(
    runs: int, each: int
) -> None:
    drawn = np.random.default_rng(2).binomial(each, CHANCE, (runs, len(LEVELS)))
    among = distinct_policies(LATE)
    assert among == 3
    whole, shared = (
        np.any([misses(drawn, each, beta, policy) for policy in LATE.policies], axis=0)
        for beta in (BETA, BETA / among)
    )
    assert np.count_nonzero(whole) > binom.isf(1e-4, runs, BETA), "which is why they share beta"
    assert np.count_nonzero(shared) <= binom.isf(1e-4, runs, BETA)
    either = np.count_nonzero(shared | misses(drawn, each, BETA))
    assert either <= binom.isf(1e-4, runs, 2 * BETA), "the one in force has a beta of its own"
