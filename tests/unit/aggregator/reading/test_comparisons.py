"""Comparisons through a store: arms are the slices, the rest, windows and metrics that they say."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest

from aggregator import Reader
from aggregator.features.comparisons.arms import compare_all
from aggregator.features.comparisons.changes import Changes
from aggregator.features.comparisons.comparison_answers import comparison_answer
from aggregator.features.comparisons.query import CompareQuery
from aggregator.publishing.events import release_data
from aggregator.reading.query import Query
from aggregator.reading.window import Window
from aggregator.state.pane_keys import metric_key
from aggregator.storage.redis_keys import final_key, publisher_key, release_key
from estimators import Metric, TrustedMetric, compare, define
from estimators.interruption import interruptible
from tests.support.reports.counted import connected
from tests.support.reports.messages import DAY, EPOCH, agreeing
from tests.support.rows import row
from tests.support.running.servers import Redis
from tests.unit.aggregator.reading.test_slices import (
    LATE,
    PARTITIONS,
    Counting,
    devices,
    late,
    message,
)

LATER = late(name="later", by=(), attributes={})
METRICS: dict[str, Metric] = {"late": LATE, "later": LATER}
START, END = EPOCH / 1000, (EPOCH + 3 * DAY) / 1000


@pytest.fixture(scope="module")
def reader(redis_server: Redis) -> Iterator[Reader]:
    """A reader of three days that are final; FR is late more often. No test changes them."""
    redis_server.clear()
    with connected(redis_server.url) as store:
        counting = Counting(store, METRICS)
        everyone = devices(800)
        rng = np.random.default_rng(2)
        for one in everyone:
            one.values = rng.binomial(1, 0.9 if one.country == "FR" else 0.3, 5).tolist()
        counting.count_all([message(LATE, one, seed) for seed, one in enumerate(everyone)])
        counting.count_all([message(LATER, one, 5000 + i) for i, one in enumerate(everyone)])
        for metric in (LATE, LATER):
            ends = [agreeing(metric, EPOCH + 4 * DAY, 10**6 + 99 * p) for p in range(PARTITIONS)]
            counting.count_all([one for pair in zip(*ends, strict=True) for one in pair])
        yield Reader(store, METRICS)


def test_a_limit_on_a_logarithmic_scale_is_its_nearest_edge_and_named(reader: Reader) -> None:
    size = define(
        name="size", kind="distribution", range=(1, 1000), bins=3, scale="log", levels=[1]
    )
    sizes = Reader(reader.store, {"size": size})
    compared = sizes.compare("size", end=START, against_start=START, below=[300, 10.0])
    assert compared.labels == ["below 100", "below 10"]
    assert reader.compare("late", {"country": "DE"}, start=START, end=END).query.below == ()


def sums(reader: Reader, **where: str) -> Any:
    return reader.window("late", Query(START, END, where=where)).sums


def test_two_slices_are_compared_as_their_sums_are(reader: Reader) -> None:
    found = reader.compare("late", {"country": "DE"}, {"country": "FR"}, start=START, end=END)
    expected = compare(LATE, sums(reader, country="DE"), sums(reader, country="FR"))
    assert (found.value, found.lower) == (expected.value, expected.lower)
    assert (found.upper, found.p_value) == (expected.upper, expected.p_value)
    assert (found.law, found.bound) == ("joint", "fixed")
    assert (found.status, found.decided) == ("final", True)
    assert found.value == pytest.approx(-0.6, abs=0.1)


def test_a_slice_and_the_rest_have_no_report_in_common(reader: Reader) -> None:
    nothing: dict[str, Any] = {"other": None, "against_start": None, "against_end": None}
    found = reader.compare("late", {"country": "DE"}, start=START, end=END, **nothing)
    one, whole = sums(reader, country="DE"), sums(reader)
    expected = compare(LATE, one, whole - one)
    assert (found.lower, found.upper) == (expected.lower, expected.upper)
    assert found.a.estimate.reports + found.b.estimate.reports == LATE.counts(whole).sum()


def test_each_slice_against_the_rest_shares_beta(reader: Reader) -> None:
    query = CompareQuery.of_options((), "rest", by="country", start=START, end=END)
    found = compare_all(reader, "late", query)
    assert [one.a.where["country"] for one in found] == ["DE", "FR", "other", None]
    assert {one.simultaneous for one in found} == {4}
    alone = reader.compare("late", {"country": "DE"}, start=START, end=END)
    assert found[0].lower < alone.lower < alone.upper < found[0].upper
    assert found[0].p_value == pytest.approx(min(1, 4 * alone.p_value))


@pytest.mark.parametrize("by", [(), ("country",)])
def test_intervals_of_both_arms_share_beta_with_it(reader: Reader, by: tuple[str, ...]) -> None:
    where = () if by else {"country": "DE"}
    window: dict[str, Any] = {"by": by, "start": START, "end": END}
    found = compare_all(reader, "late", CompareQuery.of_options(where, "rest", **window))[0]
    query = CompareQuery.of_options(where, "rest", each=True, **window)
    each = compare_all(reader, "late", query)[0]
    share = 0.05 / 3 / each.simultaneous
    statistics = sums(reader, country="DE"), sums(reader) - sums(reader, country="DE")
    for arm, statistic in zip((each.a, each.b), statistics, strict=True):
        expected = LATE.estimate(statistic, share)
        assert (arm.estimate.lower, arm.estimate.upper) == (expected.lower, expected.upper)
    expected_difference = compare(LATE, *statistics, beta=share)
    assert (each.lower, each.upper) == (expected_difference.lower, expected_difference.upper)
    p_value = min(1, 3 * each.simultaneous * expected_difference.p_value)
    assert each.p_value == pytest.approx(p_value)
    assert comparison_answer(found).a.lower is msgspec.UNSET
    assert comparison_answer(each).b.upper == each.b.estimate.upper


def test_two_windows_are_compared_and_overlapping_ones_refused(reader: Reader) -> None:
    middle = (EPOCH + DAY) / 1000
    found = reader.compare("late", start=middle, end=END, against_start=START, against_end=middle)
    assert found.a.window.start_ms == found.b.window.end_ms == EPOCH + DAY
    assert not found.decided
    with pytest.raises(ValueError, match="reports in common"):
        reader.compare("late", start=START, end=END, against_start=START, against_end=middle)
    with pytest.raises(ValueError, match="reports in common"):
        reader.compare("late", {"country": "DE"}, {"version": "1"}, start=START, end=END)


def test_while_arms_grow_the_bounds_hold_at_all_times(reader: Reader) -> None:
    found = reader.compare("late", {"country": "DE"}, {"country": "FR"}, split=2.0)
    assert (found.bound, found.status) == ("anytime", "provisional")
    assert found.covers == "all times from the first report"
    shown = comparison_answer(found)
    assert (shown.p_value_kind, shown.split) == ("may be looked at at any time", 2.0)
    assert shown.a.where == {"country": "DE"}


def test_what_nobody_waits_for_ends_between_its_steps(reader: Reader) -> None:
    class GoneError(Exception):
        pass

    def check() -> None:
        if not next(left):
            raise GoneError

    age = define(name="age", kind="distribution", range=[0, 90], bins=64, levels=[1.1, 2.1, 4.1, 9])
    sums = age.zero()
    sums.reshape(4, -1)[:, 0] = 100
    arms = {"country": "DE"}, {"country": "FR"}
    asks: tuple[Callable[[], object], ...] = (
        lambda: reader.window("late"),
        lambda: age.estimate(sums),
        lambda: reader.compare("late", *arms, split=2.0),
    )
    for ask, steps in zip(asks, (2, 5, 5), strict=True):
        left = iter(range(steps, -1, -1))
        with interruptible(check), pytest.raises(GoneError):
            ask()


def test_arms_with_few_reports_have_no_numbers(reader: Reader) -> None:
    strict = dataclasses.replace(LATE, minimum_reports=100_000)
    with Reader(reader.store, {"late": strict}) as other:
        found = other.compare("late", {"country": "DE"}, start=START, end=END)
        assert (found.status, found.comparison) == ("too_few_reports", None)
        shown = comparison_answer(found)
        assert (shown.value, shown.p_value, shown.decided) == (None, None, False)


def test_what_cannot_be_compared_is_told(reader: Reader) -> None:
    rows: list[tuple[dict[str, Any], str]] = [
        ({}, "expected a slice to compare with it"),
        ({"where": {"country": "XX"}}, "country = 'XX'"),
        ({"where": {"contry": "DE"}}, "did you mean 'country'"),
        ({"where": {"country": "DE"}, "against": "other"}, "expected 'rest', or values"),
        ({"where": {"country": "DE"}, "independent": True}, "independent = True"),
    ]
    for options, why in rows:
        with row(options), pytest.raises(ValueError, match=why):
            reader.compare("late", **options)


def test_a_release_is_compared_with_the_one_that_is_a_period_older(reader: Reader) -> None:
    """Its bounds are those of both releases at half of a beta that all periods share."""
    pay = define(name="pay", kind="mean", trust="central", range=(0, 9), levels=[1], pane="1h")
    assert isinstance(pay, TrustedMetric)
    key, prefix = metric_key(pay.name, pay.revision), publisher_key(reader.store.topic)
    drawn = {}
    for hour, level in ((0, 3), (24, 3), (25, 4), (48, 6)):
        statistic, start = pay.zero(), EPOCH + hour * pay.pane_ms
        nobody = np.zeros(5000, dtype=np.int64)
        pay.accumulate(statistic, nobody, pay.randomize(np.full(5000, float(level)), nobody))
        drawn[hour] = dataclasses.replace(pay.release(statistic), status="final")
        end = start + pay.pane_ms
        pane = Window(metric=pay, start_ms=start, end_ms=end, status="final", policy="hpm-a")
        reader.store.client.zadd(final_key(prefix, key), {str(start): start})
        reader.store.client.set(release_key(prefix, key, start), release_data(pane, drawn[hour]))
    changes = Changes(Reader(reader.store, {"pay": pay}))
    for period, before, chance in (("24h", 24, 10), ("7d", None, 10), (None, 24, 10)):
        with row(period):
            found = changes.read("pay", period)
            if before is None:
                assert found == []
                continue
            (change,) = found
            assert change.decided
            now, then = (pay.with_beta(drawn[hour], 0.05 / chance) for hour in (48, before))
            assert change.value == pytest.approx(drawn[48].value - drawn[before].value)
            assert change.lower == pytest.approx(now.lower - then.upper)
            assert change.b.window.start_ms == EPOCH + before * pay.pane_ms
