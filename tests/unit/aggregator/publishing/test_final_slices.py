"""A final event has slices where a whole stretch of them becomes final with its pane."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import pytest

from aggregator.errors import StateUnreadable
from aggregator.features.reader import Reader
from aggregator.publishing import events
from aggregator.publishing.due_events import Publication
from aggregator.publishing.events import Event
from aggregator.publishing.pane_finalizer import PaneFinalizer
from aggregator.publishing.published_log import PublishedLog
from aggregator.reading.serialization import as_dict
from aggregator.reading.slices.estimates import slices_answer
from aggregator.storage.progress import TopicProgress
from aggregator.storage.store import Store
from estimators import Metric, define
from producers.wire.batch import heartbeat
from producers.wire.reports_pb2 import Attribute, ReportBatch
from tests.support.reports.counted import MINUTE, Counting
from tests.support.reports.messages import EPOCH, batch

GROUPINGS: dict[str, list[tuple[str, ...]]] = {
    "late": [("country",), ("country", "version")],
    "gone": [("country",)],
}
COUNTRIES = ("DE", "FR", "GB")
FIRST, LAST = "00:00:00Z", "00:20:00Z"
"""The panes of the first stretch of half an hour that have reports."""


def late(**fields: Any) -> Metric:
    known: dict[str, Any] = {
        "by": ["country", "version"],
        "by_pane": "30m",
        "attributes": {"country": ["DE", "FR"], "version": ["1"]},
        "minimum_reports": 30,
    }
    return mean("late", **known | fields)


def mean(name: str, **fields: Any) -> Metric:
    randomizer = {"mechanism": "randomized_response", "range": (0, 1), "levels": [4]}
    return define(name=name, kind="mean", pane="10m", **randomizer, **fields)


PLAIN = mean("plain")
METRICS: dict[str, Metric] = {"late": late(), "plain": PLAIN}


@pytest.fixture
def counted(store: Store) -> Counting:
    """Panes of both metrics: two of the first stretch, and one of the second."""
    counting = Counting(store, METRICS)
    sent: list[ReportBatch | bytes] = []
    for minute in (0, 20, 30):
        for place, country in enumerate(COUNTRIES):
            values, at = [place % 2] * (40 * (place + 1)), EPOCH + minute * MINUTE
            seed = 1000 * minute + 10 * place
            attributes = [Attribute(name="country", value=country)]
            sent.append(batch(METRICS["late"], values, 4.0, at, seed, attributes=attributes))
            sent.append(batch(PLAIN, values, 4.0, at, seed + 1))
    for one in METRICS.values():
        sent += [heartbeat(one, EPOCH + 45 * MINUTE)] * 8
    counting.count(0, *sent)
    return counting


def finals(
    store: Store,
    published: PublishedLog,
    groupings: Any = GROUPINGS,
    metrics: Mapping[str, Metric] = METRICS,
) -> dict[str, Event]:
    publication = Publication(Reader(store, metrics), published, "dither", 0)
    found = PaneFinalizer(publication, 10, groupings).final_events(store.overview(), 1)
    return {event.key.partition("T")[2]: event for event in found if event.subject == "late"}


def test_the_last_pane_of_a_stretch_has_slices(counted: Counting, published: PublishedLog) -> None:
    store = counted.store
    found = finals(store, published)
    assert [*found] == [FIRST, LAST, "00:30:00Z"]
    told = {pane: json.loads(event.data).get("slices") for pane, event in found.items()}
    assert told[FIRST] is None
    assert told["00:30:00Z"] is None, "its stretch is not final yet"
    country, both = told[LAST]
    assert (country["from"], country["to"]) == ("2013-01-01T00:00:00Z", "2013-01-01T00:30:00Z")
    assert (country["by"], country["status"], country["coverage"]) == (["country"], "final", 1.0)
    reports = {str(one["slice"]["country"]): one["reports"] for one in country["slices"]}
    assert reports == {"FR": 160, "DE": 80, "{'other': True}": 240}
    assert country["updated"] is None, "that is not known of a stretch"
    assert both["by"] == ["country", "version"]
    with Reader(store, METRICS) as reader:
        edges = EPOCH / 1000, EPOCH / 1000 + 1800
        asked = as_dict(slices_answer(reader.estimate("late", *edges, by=["country"])))
    assert country == {**asked, "updated": None}


def test_all_publishers_tell_the_same_once(counted: Counting, published: PublishedLog) -> None:
    first, again = finals(counted.store, published), finals(counted.store, published)
    assert first == again
    without = finals(counted.store, published, {})
    assert without[FIRST] == first[FIRST]
    assert without[LAST].id == first[LAST].id
    whole = json.loads(first[LAST].data)
    del whole["slices"]
    assert whole == json.loads(without[LAST].data)
    published.note_committed(first.values(), {})
    assert finals(counted.store, published) == {}


def test_slices_that_are_too_large_for_kafka_are_left_out(
    counted: Counting, published: PublishedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = finals(counted.store, published)[LAST]
    monkeypatch.setattr(events, "MAX_EVENT_BYTES", len(whole.data) - 1)
    cut = json.loads(finals(counted.store, published)[LAST].data)
    assert [(len(one["slices"]), one["left_out"]) for one in cut["slices"]] == [(1, 2), (1, 2)]
    assert cut["slices"][0]["slices"][0] == json.loads(whole.data)["slices"][0]["slices"][0]
    monkeypatch.setattr(events, "MAX_EVENT_BYTES", 1)
    none = json.loads(finals(counted.store, published)[LAST].data)
    assert [(one["slices"], one["left_out"]) for one in none["slices"]] == [([], 3), ([], 3)]
    assert none["value"] == cut["value"]


def test_unreadable_slices_stop_their_metric(counted: Counting, published: PublishedLog) -> None:
    for key in counted.store.client.keys("*}:slices:late*"):
        counted.store.client.set(key, b"spoilt")
    publication = Publication(Reader(counted.store, METRICS), published, "dither", 0)
    found = PaneFinalizer(publication, 10, GROUPINGS).final_events(counted.store.overview(), 1)
    assert [next(found).subject for _ in range(4)] == ["late", "plain", "plain", "plain"]
    with pytest.raises(StateUnreadable):
        next(found)


def test_slices_of_a_torn_state_or_that_a_metric_has_no_longer_are_not_told(
    counted: Counting, published: PublishedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = {"late": late(by=["version"], attributes={"version": ["1"]}), "plain": PLAIN}
    found = finals(counted.store, published, metrics=metrics)
    assert [*found] == [FIRST, LAST, "00:30:00Z"]
    assert all("slices" not in json.loads(event.data) for event in found.values())
    with monkeypatch.context() as torn:
        torn.setattr(
            Reader, "read", lambda _, window: dataclasses.replace(window, status="provisional")
        )
        assert [*finals(counted.store, published)] == [FIRST]
    monkeypatch.setattr(TopicProgress, "is_continued", lambda *_: False)
    assert [*finals(counted.store, published)] == []
