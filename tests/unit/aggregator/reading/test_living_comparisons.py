"""A living comparison looks at final panes in order, and its decision is a function of them."""

import dataclasses
from typing import Any

import msgspec
import numpy as np
import pytest

from aggregator.config.definitions import MetricDefinitions
from aggregator.features.comparisons.definitions import ComparisonDefinition
from aggregator.features.comparisons.living import living_answer
from aggregator.features.comparisons.run import (
    MAX_LOOKS,
    ComparisonDecided,
    ComparisonRun,
    StoredComparison,
)
from aggregator.features.reader import Reader
from aggregator.reading.query import Query
from aggregator.state.watermark import CONFIRMING_BATCHES
from aggregator.storage.store import Store
from aggregator.timestamps import iso
from estimators import LocalMetric, Metric, compare, define
from producers.wire.batch import heartbeat
from producers.wire.reports_pb2 import Attribute, ReportBatch
from tests.support.reports.counted import HOUR, Counting
from tests.support.reports.messages import EPOCH, batch
from tests.support.rows import row


def metric(name: str, **fields: Any) -> LocalMetric:
    """Return a metric by variant."""
    variants: dict[str, Any] = {"by": ["variant"], "attributes": {"variant": ["new", "old"]}}
    return LocalMetric.require(define(name=name, pane="1h", **variants, **fields))


CLICKS = metric(
    "clicks",
    kind="mean",
    mechanism="randomized_response",
    range=(0, 1),
    levels=[2, 4],
    minimum_reports=30,
)
COLOUR = metric(
    "colour", kind="frequency", mechanism="grr", categories=["red", "blue", "green"], levels=[4]
)
WAIT = metric("wait", kind="distribution", range=(0, 8), bins=8, levels=[4], unit="s")
BEGIN, HOURS = 2, 14
"""Hours: the comparison begins later than the reports."""
CHECKOUT = ComparisonDefinition(
    name="checkout",
    metric="clicks",
    start_ms=EPOCH + BEGIN * HOUR,
    where={"variant": "new"},
    against={"variant": "old"},
    split=1.0,
)
COLOURS = ComparisonDefinition(
    name="colours", metric="colour", start_ms=EPOCH, where={"variant": "new"}, against="rest"
)
METRICS: dict[str, Metric] = {"clicks": CLICKS, "colour": COLOUR, "wait": WAIT}
DEFINITIONS = MetricDefinitions(METRICS, comparisons={"checkout": CHECKOUT, "colours": COLOURS})


def of_variant(variant: str, one: ReportBatch) -> ReportBatch:
    one.attributes.append(Attribute(name="variant", value=variant))
    return one


def sent(hours: range, means: tuple[float, float] = (0.6, 0.4)) -> list[ReportBatch]:
    """An hour of reports after another: those of the new variant are larger."""
    found = []
    for hour in hours:
        draws, time = np.random.default_rng(hour), EPOCH + hour * HOUR
        for number, variant in enumerate(("new", "old")):
            for level, epsilon in enumerate((2.0, 4.0)):
                values = draws.binomial(1, means[number], 60).tolist()
                seed = 1 + 10 * hour + 2 * number + level
                found.append(of_variant(variant, batch(CLICKS, values, epsilon, time, seed)))
            shares = (0.6, 0.2, 0.2) if variant == "new" else (0.2, 0.6, 0.2)
            colours = draws.choice(3, 100, p=shares).tolist()
            seed = 8 + 10 * hour + number
            found.append(of_variant(variant, batch(COLOUR, colours, 4.0, time, seed)))
            waits = draws.uniform(0, 3 if variant == "new" else 8, 200).tolist()
            seed += 10**6
            found.append(of_variant(variant, batch(WAIT, waits, 4.0, time, seed)))
    return found


def close(hours: int) -> list[bytes]:
    """What closes all panes up to an hour."""
    ends = [heartbeat(one, EPOCH + hours * HOUR + one.lateness_ms) for one in METRICS.values()]
    return ends * CONFIRMING_BATCHES


@pytest.fixture
def counting(store: Store) -> Counting:
    return Counting(store, METRICS)


@pytest.fixture
def reader(store: Store, counting: Counting) -> Reader:
    """Fourteen hours that are final, and one that grows."""
    counting.count(0, *sent(range(HOURS)), *close(HOURS), *sent(range(HOURS, HOURS + 1)))
    return Reader(store, DEFINITIONS)


def take(reader: Reader, run: ComparisonRun, hours: int = HOURS) -> list[ComparisonDecided]:
    """Look at the panes up to an hour."""
    closed = dict.fromkeys(METRICS, EPOCH + hours * HOUR)
    return [one for found in run.due(reader.store.overview(), closed) for one in found]


def sums(reader: Reader, variant: str, until: int | None = None) -> Any:
    """The sums of a variant from the start of the comparison."""
    end = None if until is None else (EPOCH + until * HOUR) / 1000
    start = CHECKOUT.start_ms / 1000
    return reader.window("clicks", Query(start, end, where={"variant": variant})).sums


def store_state(reader: Reader, run: ComparisonRun) -> None:
    client: Any = reader.store.client
    client.set(run.state_key, msgspec.msgpack.encode(run.stored()))


def test_it_is_decided_at_the_first_final_pane_at_which_0_is_outside(reader: Reader) -> None:
    (decided,) = take(reader, ComparisonRun(reader, CHECKOUT))
    hour = int(np.argmax([iso(EPOCH + h * HOUR) == decided.at for h in range(HOURS + 1)]))
    for until in range(BEGIN + 1, HOURS + 1):
        pair = sums(reader, "new", until), sums(reader, "old", until)
        expected = compare(CLICKS, *pair, bound="anytime", split=1.0)
        assert (expected.lower > 0) == expected.decided
        if until < hour:
            assert not expected.decided
        if until == hour:
            assert (decided.lower, decided.upper) == (expected.lower, expected.upper)
            assert decided.p_value == expected.p_value <= 0.05
            assert decided.a.reports == expected.reports[0]
    assert hour > BEGIN
    assert decided.covers == f"all times from {iso(CHECKOUT.start_ms)}"
    assert (decided.a.start, decided.a.end) == (iso(CHECKOUT.start_ms), decided.at)


def test_wherever_a_run_is_cut_it_says_the_same(
    reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most_looks, hours in ((MAX_LOOKS, HOURS), (4, HOURS - 1)):  # 4 looks are thinned twice
        monkeypatch.setattr("aggregator.features.comparisons.run.MAX_LOOKS", most_looks)
        whole = ComparisonRun(reader, CHECKOUT)
        told = take(reader, whole, hours)
        for pause in range(BEGIN, hours, 3):
            run = ComparisonRun(reader, CHECKOUT)
            found = take(reader, run, pause)
            kept = msgspec.msgpack.encode(run.stored())
            stored = msgspec.msgpack.decode(kept, type=StoredComparison)
            run = ComparisonRun(reader, CHECKOUT, stored)
            found += take(reader, run, hours)
            with row(most_looks, pause):
                assert found == told
                assert run.stored() == whole.stored()
    assert whole.stored().stride == 4


def test_an_answer_has_final_panes_and_what_was_counted_since(reader: Reader) -> None:
    pair = sums(reader, "new"), sums(reader, "old")
    expected = compare(CLICKS, *pair, bound="anytime", split=1.0)
    before = reader.comparison("checkout")
    assert "publish.enabled" in before.reason
    assert before.decided_at is None
    run = ComparisonRun(reader, CHECKOUT)
    (decided,) = take(reader, run, HOURS - 1)
    store_state(reader, run)
    found = reader.comparison("checkout")
    for one in (before, found):
        assert (one.value, one.lower, one.upper) == (expected.value, expected.lower, expected.upper)
        assert (one.p_value, one.decided, one.status) == (expected.p_value, True, "provisional")
    assert (found.decided_at, found.reason) == (decided.at, "")
    answer = living_answer(found, history=True)
    assert answer.until == iso(EPOCH + (HOURS - 1) * HOUR)
    assert (answer.decisions, answer.history) == ([decided], run.history)
    assert len(run.history) == HOURS - 1 - BEGIN
    three = reader.comparison("checkout", each=True)
    assert three.lower < found.lower
    assert three.a.estimate.bound == "anytime"


def test_what_may_have_expired_is_in_no_answer(store: Store) -> None:
    """Reports of 2013 whose hours of slices are kept for 7 days."""
    metrics = {**METRICS, "clicks": dataclasses.replace(CLICKS, by_retention="7d")}
    Counting(store, metrics).count(0, *sent(range(HOURS)), *close(HOURS))
    reader = Reader(store, MetricDefinitions(metrics, comparisons={"checkout": CHECKOUT}))
    found = reader.comparison("checkout")
    assert (found.status, found.comparison, found.decided) == ("expired", None, False)
    assert "may have expired" in found.reason
    run = ComparisonRun(reader, CHECKOUT)
    assert not take(reader, run)
    assert run.incomplete == HOURS - BEGIN
    week = 7 * 24 * HOUR
    for start in (run.next_ms, run.next_ms + HOUR - 1):
        assert not run.may_have_expired(start, run.next_ms + week + HOUR)
        assert run.may_have_expired(start, run.next_ms + week + HOUR + 1)


def test_a_decision_says_how_many_panes_it_does_not_have(store: Store) -> None:
    """The first reports are of before the attribute was declared; a later decision lacks them."""
    undeclared = {**METRICS, "clicks": dataclasses.replace(CLICKS, by=(), attributes={})}
    Counting(store, undeclared).count(0, *sent(range(BEGIN, BEGIN + 3)))
    Counting(store, METRICS).count(0, *sent(range(BEGIN + 3, HOURS)), *close(HOURS))
    reader = Reader(store, DEFINITIONS)
    run = ComparisonRun(reader, CHECKOUT)
    (found,) = take(reader, run)
    assert (found.incomplete, run.incomplete) == (3, 3)


def test_nothing_has_expired_of_what_was_looked_at(store: Store) -> None:
    """The experiment is over: its reports have expired, and the publisher has the sums of all."""
    counting = Counting(store, METRICS)
    counting.count(0, *sent(range(HOURS)), *close(HOURS))
    reader = Reader(store, MetricDefinitions(METRICS, comparisons={"checkout": CHECKOUT}))
    run = ComparisonRun(reader, CHECKOUT)
    take(reader, run)
    store_state(reader, run)
    whole = reader.comparison("checkout")
    brief = {**METRICS, "clicks": dataclasses.replace(CLICKS, by_retention="7d")}
    after = Reader(store, MetricDefinitions(brief, comparisons={"checkout": CHECKOUT}))
    found = after.comparison("checkout")
    assert (found.status, found.reason) == ("provisional", "")
    assert (found.value, found.lower, found.p_value) == (whole.value, whole.lower, whole.p_value)
    counting.count(1, *sent(range(HOURS + 1, HOURS + 2)))  # in 2013: not looked at, and expired
    assert after.comparison("checkout").status == "expired"


def test_a_changed_definition_begins_anew(reader: Reader) -> None:
    run = ComparisonRun(reader, CHECKOUT)
    take(reader, run)
    store_state(reader, run)
    changed = dataclasses.replace(CHECKOUT, split=2.0)
    assert ComparisonRun(reader, changed).name != run.name
    assert not ComparisonRun.resumed(reader, changed).has_begun
    assert ComparisonRun.resumed(reader, CHECKOUT).stored() == run.stored()
    client: Any = reader.store.client
    for broken in (b"no state", msgspec.msgpack.encode(run.stored())[:-4]):
        client.set(run.state_key, broken)
        assert not ComparisonRun.resumed(reader, CHECKOUT).has_begun
    odd = msgspec.structs.replace(run.stored(), next_ms=run.next_ms + 1)
    assert not ComparisonRun(reader, CHECKOUT, odd).has_begun


def test_a_decision_about_each_category_is_an_event_of_its_own(reader: Reader) -> None:
    run = ComparisonRun(reader, COLOURS)
    expected = {f"{run.name}/{category}": "colours" for category in ("red", "blue")}
    assert {run.event_key(one): one.comparison for one in take(reader, run)} == expected
