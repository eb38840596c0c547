"""A window over several panes of a memoized metric never has bounds that are too narrow."""

from __future__ import annotations

import numpy as np
import pytest

from aggregator.reading.reader import Reader
from aggregator.reading.windows import Sums, Window
from estimators import Estimate, LocalMetric, define
from estimators.exact.randomness import SeededBits

MINUTE = 60_000


def metric(*, memoized: bool) -> LocalMetric:
    return define(
        name="late",
        kind="mean",
        mechanism="randomized_response",
        range=(0, 1),
        levels=[1, 2],
        pane="1m",
        memoized=memoized,
    )


def read(
    start: int | None, end: int | None, *, memoized: bool = True, status: str = "final"
) -> Estimate:
    asked = metric(memoized=memoized)
    level = np.ones(4000, dtype=int)
    statistic = asked.zero()
    values = np.repeat([0.0, 1.0], 2000)
    asked.accumulate(statistic, level, asked.randomize(values, level, SeededBits(1)))
    return Reader.answer(
        Window(metric=asked, start_ms=start, end_ms=end, status=status, content=Sums(statistic))
    )


def width(estimate: Estimate) -> float:
    return float(estimate.upper - estimate.lower)


def test_one_pane_is_as_sharp_as_if_nothing_was_repeated() -> None:
    for status in ("final", "provisional"):
        repeated = read(0, MINUTE, status=status)
        fresh = read(0, MINUTE, memoized=False, status=status)
        assert (repeated.lower, repeated.upper) == (fresh.lower, fresh.upper)
        assert width(repeated) < 0.2


def test_a_window_of_several_panes_is_as_wide_as_their_worst_case() -> None:
    one, nine = read(0, MINUTE), read(0, 9 * MINUTE)
    assert nine.value == one.value
    assert 3 * width(one) <= width(nine) < 4.2 * width(one)  # and 39% for Hoeffding
    assert nine.effective_reports == pytest.approx(one.effective_reports / 9)
    fresh = read(0, 9 * MINUTE, memoized=False)
    assert width(fresh) == width(one)


def test_a_running_total_says_that_it_knows_nothing() -> None:
    for start, end, status in (
        (None, None, "provisional"),
        (0, None, "provisional"),
        (None, MINUTE, "final"),
        (0, 2 * MINUTE, "provisional"),
    ):
        found = read(start, end, status=status)
        assert (found.lower, found.upper) == (0, 1), (start, end, status)
        assert found.lower < found.value < found.upper
