"""What bounds cover: one window, so many, all times; and what was chosen among how many."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from aggregator.features.reader import Reader
from aggregator.publishing import events
from aggregator.reading.coverage import count_distinct_policies
from aggregator.reading.query import Query
from aggregator.reading.serialization import answer, as_dict
from aggregator.reading.window import Window, WindowStatistic
from aggregator.storage.store import Store
from aggregator.terminal.estimate_text import EstimateView, as_text
from estimators import Estimate, LocalMetric, Metric
from estimators.exact.randomness import SeededBits
from tests.support.metrics import mean_metric
from tests.support.reports.counted import Counting
from tests.support.reports.messages import EPOCH
from tests.support.rows import row

DAY, MINUTE = 86_400_000, 60_000
LATE: LocalMetric = mean_metric("late", "randomized_response", (0, 1), [0.5, 4], pane="1h")
STATISTIC = np.array([9000, 4100, 9000, 2500])


def window(**more: Any) -> Window:
    return Window(
        **{"metric": LATE, "status": "provisional", "content": WindowStatistic(STATISTIC), **more}
    )


def test_bounds_of_a_window_cover_this_window_and_those_of_a_running_total_all_times() -> None:
    rows: list[tuple[dict[str, Any], str, str]] = [
        ({}, "anytime", "all times from the first report"),
        ({"start_ms": DAY}, "anytime", "all times from 1970-01-02T00:00:00Z"),
        ({"start_ms": 0, "end_ms": DAY}, "anytime", "this window"),
        ({"start_ms": 0, "end_ms": DAY, "status": "final"}, "fixed", "this window"),
        ({"start_ms": 0, "end_ms": DAY, "slides": True}, "anytime", "this window"),
        ({"slides": True, "status": "not_ready"}, "anytime", "this window"),
    ]
    for where, bound, covers in rows:
        seen = window(**where)
        found = Reader.answer(seen)
        told, text = as_dict(answer(seen, found)), as_text(EstimateView(seen, found, 9))
        with row(where):
            assert (found.bound, found.covers, told["covers"]) == (bound, covers, covers)
            assert "chosen_among" not in told
            assert f"covers     {covers}" in text
            assert "end_ms" not in where or "all times" not in text


def test_several_windows_share_beta() -> None:
    seen = window(start_ms=0, end_ms=DAY, status="final")
    found = Reader.answer(seen, Query(beta=0.05, windows=720))
    alone = LATE.estimate(STATISTIC, 0.05 / 720)
    assert (found.lower, found.upper) == (alone.lower, alone.upper)
    assert (found.beta, found.covers) == (0.05, "720 windows"), "beta is that of all of them"
    with pytest.raises(ValueError, match="beta = 2: expected a probability between 0 and 1"):
        Reader.answer(seen, Query(beta=2, windows=720))
    with pytest.raises(ValueError, match="expected a window"):
        Reader.answer(window(), Query(windows=2))
    with pytest.raises(ValueError, match="expected 1 to"):
        Query(windows=0)


def test_naming_weights_shares_beta_among_those_that_differ() -> None:
    assert count_distinct_policies(LATE) == 3, "optimal and paper agree for randomized response"
    seen = window(start_ms=0, end_ms=DAY, status="final", changed_ms=0)
    in_force = Reader.answer(seen)
    assert in_force.chosen_among == 1
    assert in_force.upper < Reader.answer(seen, Query(weights=seen.policy)).upper, (
        "all of beta is its own"
    )
    for policy in LATE.policies:
        found = Reader.answer(seen, Query(weights=policy))
        third = LATE.estimate(STATISTIC, 0.05 / 3, policy)
        assert (found.lower, found.upper) == (third.lower, third.upper)
        assert (found.beta, found.chosen_among) == (0.05, 3), "that in force, if it is named"
        assert as_dict(answer(seen, found))["chosen_among"] == 3
        assert "chosen     among 3" in as_text(EstimateView(seen, found, 9))
        assert "without --weights is not among them" in as_text(EstimateView(seen, found, 9))
        before = Reader.answer(seen, Query(weights=policy, weights_fixed=True))
        whole = LATE.estimate(STATISTIC, 0.05, policy)
        assert (before.lower, before.upper) == (whole.lower, whole.upper)
        assert as_dict(answer(seen, before))["weights_fixed"] is True
        assert "--weights-fixed" in as_text(EstimateView(seen, before, 9))
    assert Reader.answer(seen, Query(weights="uniform", target="sample")).chosen_among == 6
    assert Reader.answer(seen, Query(target="sample")).chosen_among == 2


def test_windows_that_begin_before_a_change_of_weights_share_beta() -> None:
    for start, among in ((None, 3), (0, 3), (DAY - 1, 3), (DAY, 1), (2 * DAY, 1)):
        seen = window(start_ms=start, end_ms=3 * DAY, status="final", changed_ms=DAY)
        found = Reader.answer(seen)
        assert found.chosen_among == among
        pane = dataclasses.replace(seen, start_ms=start or 0)
        told = json.loads(events.final_event(pane, found, 9, "/").data)
        assert told.get("chosen_among", 1) == among
    assert Reader.answer(window(changed_ms=DAY), Query(weights_fixed=True)).chosen_among == 1


def test_a_store_notes_when_weights_were_changed(store: Store, metrics: dict[str, Metric]) -> None:
    def changed() -> int | None:
        return store.overview().policy_changed_ms("delay")

    assert changed() is None
    store.registry.set_policy("delay", "optimal", now_ms=1)
    assert changed() is None, "they were in force"
    store.registry.set_policy("delay", "uniform", now_ms=2)
    store.registry.set_policy("delay", "uniform", now_ms=3)
    assert changed() == 2
    assert store.overview().policy_changed_ms("carrier") is None
    store.registry.set_policy("delay", "optimal", now_ms=4)
    assert changed() == 4
    reader = Reader(store, metrics)
    first = reader.describe(store.overview(), "delay").version
    store.registry.set_policy("delay", "uniform", now_ms=5)
    store.registry.set_policy("delay", "optimal", now_ms=6)
    assert reader.describe(store.overview(), "delay").version != first, "its bounds are others"
    assert reader.estimate("delay").chosen_among == count_distinct_policies(metrics["delay"])


def test_points_of_a_series_hold_by_themselves_or_together(counting: Counting) -> None:
    for hour in range(6):
        counting.count(0, counting.batch("delay", [5] * 200, 60 * hour))
    reader = Reader(counting.store, counting.metrics)
    day: Any = {"start": EPOCH / 1000, "end": EPOCH / 1000 + 6 * 3600, "step": "1h"}
    alone = reader.series("delay", **day)
    together = reader.series("delay", **day, all_points=True)
    assert (alone.covers, together.covers) == ("this window", "6 windows")
    assert (alone.beta, together.beta) == (0.05, 0.05)
    for one, all_of_them in zip(alone.points, together.points, strict=True):
        assert one.value == all_of_them.value
        assert all_of_them.lower < one.lower < one.upper < all_of_them.upper  # type: ignore[operator]
    counting.store.registry.set_policy("delay", "uniform")
    changed = reader.series("delay", **day)
    assert [point.chosen_among for point in changed.points] == [3] * 6


# -- A memoized metric: bounds of a window over several panes are never too narrow -----------------


def read(
    start: int | None, end: int | None, *, memoized: bool = True, status: str = "final"
) -> Estimate:
    asked = dataclasses.replace(LATE, levels=[1, 2], pane="1m", memoized=memoized)
    level = np.ones(4000, dtype=int)
    statistic = asked.zero()
    values = np.repeat([0.0, 1.0], 2000)
    asked.accumulate(statistic, level, asked.randomize(values, level, SeededBits(1)))
    return Reader.answer(
        Window(
            metric=asked,
            start_ms=start,
            end_ms=end,
            status=status,
            content=WindowStatistic(statistic),
        )
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
    assert width(read(0, 9 * MINUTE, memoized=False)) == width(one)


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
