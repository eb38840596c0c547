"""Answers by attributes of devices are the sums of their slices, with bounds that hold together."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from aggregator import Reader
from aggregator.errors import StateUnreadable
from aggregator.reading.plans import LocalPlan
from aggregator.reading.query import Query
from aggregator.reading.serialization import values
from aggregator.reading.slices.estimates import Slices
from aggregator.state.definition_history import CountingDefinitions
from aggregator.storage.store import Store
from estimators import LocalMetric, Metric, define
from producers.wire.reports_pb2 import Attribute
from tests.support.metrics import mean_metric
from tests.support.reports import counted
from tests.support.reports.counted import HOUR
from tests.support.reports.messages import DAY, EPOCH, agreeing, batch
from tests.support.rows import row

PARTITIONS = 2
VERSIONS = ["1", "2", "3"]
BY: dict[str, Any] = {
    "by": ["country", "version"],
    "attributes": {"country": ["DE", "FR"], "version": VERSIONS},
}


def late(**fields: Any) -> LocalMetric:
    known: dict[str, Any] = {
        "name": "late",
        "kind": "mean",
        "mechanism": "randomized_response",
        "range": (0, 1),
        "levels": [1, 4],
        "pane": "10m",
        "minimum_reports": 60,
        **BY,
    }
    return LocalMetric.require(define(**known | fields))


LATE = late()
PLAIN = mean_metric("plain", "randomized_response", (0, 1), [1], pane="10m")
METRICS: dict[str, Metric] = {"late": LATE, "plain": PLAIN}


@dataclasses.dataclass
class Device:
    time_ms: int
    country: str
    version: str
    values: list[int]


def devices(count: int = 400, days: int = 3) -> list[Device]:
    rng = np.random.default_rng(5)
    return [
        Device(
            EPOCH + days * DAY * number // count,
            str(rng.choice(["DE", "FR", "XX", ""], p=[0.6, 0.3, 0.08, 0.02])),
            str(rng.choice([*VERSIONS, "9"])),
            rng.integers(0, 2, 5).tolist(),
        )
        for number in range(count)
    ]


def message(metric: Metric, device: Device, seed: int) -> Any:
    pairs = (("country", device.country), ("version", device.version))
    sent = [Attribute(name=name, value=value) for name, value in pairs if value]
    return batch(metric, device.values, 4.0, device.time_ms, seed, attributes=sent)


class Counting(counted.Counting):
    """Counts into each partition in turn, several commits each, and keeps the definitions."""

    def count_all(self, payloads: list[Any]) -> None:
        definitions = CountingDefinitions(self.metrics, {"future": "1h", "past": "3650d"})
        self.store.registry.store_definitions(definitions.digest, definitions.encode())
        for number in range(PARTITIONS):
            mine = payloads[number::PARTITIONS]
            third = -(-len(mine) // 3)
            for first in range(0, len(mine), third):
                self.count(number, *mine[first : first + third], partitions=PARTITIONS)


@pytest.fixture
def counting(store: Store) -> Counting:
    counting = Counting(store, METRICS)
    counting.count_all([message(LATE, one, seed) for seed, one in enumerate(devices())])
    return counting


@pytest.fixture
def closed(counting: Counting) -> Reader:
    """A reader of three days that are final."""
    ends = [agreeing(LATE, EPOCH + 4 * DAY, 10**6 + 99 * part) for part in range(PARTITIONS)]
    counting.count_all([one for together in zip(*ends, strict=True) for one in together])
    return Reader(counting.store, METRICS)


def reports(found: Slices) -> dict[Any, int]:
    return {tuple(one.slice.values()): one.reports for one in found.slices}


def expected(attribute: str, first: int, last: int, **where: str) -> dict[Any, int]:
    found: dict[Any, int] = {}
    declared = BY["attributes"][attribute]
    for one in devices():
        if not first <= one.time_ms < last or any(getattr(one, k) != v for k, v in where.items()):
            continue
        value = getattr(one, attribute)
        name = value if value in declared else "other" if value else None
        found[(name,)] = found.get((name,), 0) + len(one.values)
    return found


def test_slices_of_a_window_have_the_reports_of_their_devices(closed: Reader) -> None:
    windows = [(0, 3 * DAY), (DAY, 2 * DAY), (5 * HOUR, DAY + 7 * HOUR), (HOUR, 2 * HOUR + 1)]
    for first, last in windows:
        start, end = (EPOCH + first) / 1000, (EPOCH + last) / 1000
        whole = EPOCH + first - first % HOUR, EPOCH + last + -last % HOUR
        with row(first, last):
            found = closed.estimate("late", start, end, by=["country"])
            assert (found.window.start_ms, found.window.end_ms) == whole
            assert reports(found) == expected("country", *whole)
            assert (found.status, found.coverage) == ("final", 1.0)
            some = closed.estimate("late", start, end, by=["version"], where={"country": "DE"})
            assert reports(some) == expected("version", *whole, country="DE")
            one = closed.estimate("late", start, end, where={"country": "FR", "version": "2"})
            assert one.reports == expected("version", *whole, country="FR").get(("2",), 0)


def test_the_running_total_has_open_tables_too(counting: Counting) -> None:
    reader = Reader(counting.store, METRICS)
    found = reader.estimate("late", by=["country"])
    assert reports(found) == expected("country", 0, 2**60)
    assert (found.status, found.coverage) == ("provisional", 1.0)
    assert found.simultaneous == 4, "as declared: counts still grow"
    assert sum(reports(found).values()) == reader.estimate("late").reports


def test_slices_sum_to_the_metric_and_bounds_share_beta(closed: Reader) -> None:
    query = Query(EPOCH / 1000, (EPOCH + 3 * DAY) / 1000, by=["country"])
    window = closed.window("late", query)
    assert (window.sums == closed.window("late", dataclasses.replace(query, by=())).sums).all()
    found = LocalPlan.answer_slices([window], query)[0]
    names = [one.slice["country"] for one in found.slices]
    assert names == ["DE", "FR", "other", None], "most reports first, undeclared values last"
    enough = [one for one in found.slices if one.reports >= LATE.minimum_reports]
    assert [*found.slices[: len(enough)]] == enough
    assert all(one.estimate is None for one in found.slices[len(enough) :])
    assert found.simultaneous == len(enough) < len(found.slices)
    for one in enough:
        assert one.estimate is not None
        alone = closed.estimate("late", query.start, query.end, where=one.slice)
        itself = closed.window("late", dataclasses.replace(query, by=(), where=one.slice))
        shared = LATE.estimate(itself.sums, 0.05 / len(enough))
        assert (one.estimate.lower, one.estimate.upper) == (shared.lower, shared.upper)
        assert one.estimate.lower < alone.lower < alone.upper < one.estimate.upper
        assert one.estimate.beta == 0.05
    apart = dataclasses.replace(query, simultaneous=False)
    (pointwise,) = LocalPlan.answer_slices([window], apart)
    assert pointwise.simultaneous == 1
    (top,) = LocalPlan.answer_slices([window], dataclasses.replace(query, top=1))
    assert (len(top.slices), top.left_out) == (1, len(found.slices) - 1)
    assert top.simultaneous == found.simultaneous
    assert repr(top.slices[0]) == repr(found.slices[0])


def test_a_series_has_the_slices_of_each_step(closed: Reader) -> None:
    first, last = EPOCH / 1000, (EPOCH + 3 * DAY) / 1000
    german, second = {"country": "DE"}, {"version": "2"}
    rows: Any = (["country"], {}, 24), (["version"], german, 8), ([], second, 8)
    for by, where, hours in rows:
        with row(by, where):
            series = closed.series("late", first, last, step=f"{hours}h", by=by, where=where, top=3)
            shown = len({str(point.slice) for point in series.points})
            assert shown == (3 if by else 1)
            assert len(series.points) == len(series.to_frame()) == 72 // hours * shown
            names = [column for column in series.to_frame().columns if column.startswith("by_")]
            assert names == [f"by_{name}" for name in (*by, *where)]
            for point in series.points:
                window = point.start, point.end
                answer: Any = closed.estimate("late", *window, by=by, where=where)
                if by:
                    (answer,) = (one for one in answer.slices if values(one.slice) == point.slice)
                is_enough = answer.reports >= LATE.minimum_reports
                estimate = answer.estimate if by else answer
                assert (point.reports, point.coverage) == (answer.reports, 1.0)
                assert point.status == ("final" if is_enough else "too_few_reports")
                assert point.upper == (estimate.upper if is_enough else None)
    assert (series.covers, series.left_out) == ("this window", 0)
    narrow = closed.series("late", first, last, step="10m", by="country", where={"version": "1"})
    assert (narrow.step_seconds, narrow.left_out) == (HOUR / 1000, 0)
    assert narrow.covers == "this window, for all slices of a step together"
    with pytest.raises(ValueError, match=r"step = '1h': .* points, expected at most 250"):
        closed.series("late", 0, last, step="1h", by=["country"])


def test_a_marginal_goes_on_where_an_attribute_was_added(store: Store) -> None:
    before = late(by=["country"], attributes={"country": ["DE", "FR"]})
    everyone = devices()
    counting = Counting(store, {"late": before})
    half = len(everyone) // 2
    counting.count_all([message(before, one, seed) for seed, one in enumerate(everyone[:half])])
    counting.metrics = {"late": LATE}
    counting.count_all([message(LATE, one, 1000 + i) for i, one in enumerate(everyone[half:])])
    with Reader(store, {"late": LATE}) as reader:
        found = reader.estimate("late", by=["country"])
        assert reports(found) == expected("country", 0, 2**60)
        assert found.coverage == 1.0
        newer = reader.estimate("late", by=["version"])
        assert newer.coverage == pytest.approx(0.5, abs=0.02)
        assert sum(reports(newer).values()) == 5 * (len(everyone) - half)


def test_a_table_that_is_gone_is_told(closed: Reader) -> None:
    (key, *_) = sorted(closed.store.client.keys("*}:slices-day:late*"))
    closed.store.client.delete(key)
    with pytest.raises(StateUnreadable, match="slices that were counted"):
        closed.estimate("late", EPOCH / 1000, (EPOCH + 3 * DAY) / 1000, by=["country"])
    assert closed.estimate("late").reports > 0


def test_tables_that_expired_lower_the_coverage(store: Store) -> None:
    short = late(by_retention="1ms")
    Counting(store, {"late": short}).count_all(
        [message(short, one, seed) for seed, one in enumerate(devices())]
    )
    reader, start = Reader(store, {"late": short}), EPOCH + 5 * HOUR
    found = reader.estimate("late", start / 1000, (start + DAY) / 1000, by=["country"])
    assert (found.coverage or 0) < 0.3
    days = reader.estimate("late", EPOCH / 1000, (EPOCH + DAY) / 1000, by=["country"])
    assert days.coverage == 1.0


def test_what_there_is_not_is_named(store: Store) -> None:
    rows: list[tuple[str, dict[str, Any], str]] = [
        ("late", {"by": ["contry"]}, "attribute 'contry': did you mean 'country'"),
        ("late", {"where": {"country": "DEU"}}, "country = 'DEU': did you mean 'DE'"),
        ("late", {"by": ["country"], "where": {"country": "DE"}}, "expected it once"),
        ("plain", {"by": ["country"]}, "metric 'plain' has no slices"),
    ]
    for name, options, why in rows:
        with row(options), pytest.raises(ValueError, match=why):
            Reader(store, METRICS).estimate(name, **options)
