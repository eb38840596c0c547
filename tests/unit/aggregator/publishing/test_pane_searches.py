"""Final events with the frequent strings of their pane: found beside the publisher, once each."""

import contextlib
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import structlog
from prometheus_client import CollectorRegistry, generate_latest

from aggregator.features.reader import Reader
from aggregator.monitoring.collector import Exporter
from aggregator.publishing import pane_searches
from aggregator.publishing.due_events import Publication
from aggregator.publishing.events import FINAL_TYPE, Event, pane_key
from aggregator.publishing.pane_finalizer import PaneFinalizer
from aggregator.publishing.published_log import PublishedLog
from aggregator.reading.discovered_strings import Discovered, discover_strings
from aggregator.reading.window import Window
from aggregator.state.pane_keys import metric_key
from aggregator.storage.store import Store
from estimators import Metric, define
from producers.wire.batch import heartbeat
from tests.support.reports.counted import MINUTE, Counting
from tests.support.reports.messages import EPOCH
from tests.support.running.deployment import wait_until

TAIL: dict[str, Any] = {
    "kind": "frequency",
    "categories": "open",
    "discover": True,
    "preset": "upper",
    "levels": [4],
    "options": {"last": 16, "rows": 64},
}
DELAY: dict[str, Any] = {"kind": "mean", "mechanism": "laplace", "range": (0, 1), "levels": [1]}
METRICS: dict[str, Metric] = {
    name: define(name=name, pane="1m", lateness="1m", **known)
    for name, known in {"tail": TAIL, "page": TAIL, "delay": DELAY}.items()
}
CODES = ("JF", "LG", "EW")


@pytest.fixture
def counted(store: Store) -> Store:
    """Two panes of each metric: in each of two, 8,000 people hold one of three codes."""
    counting, rng = Counting(store, METRICS), np.random.default_rng(1)
    sent: list[Any] = []
    for minute in (0, 1):
        for name in ("tail", "page"):
            held = rng.choice(CODES, 4_000, p=(0.5, 0.3, 0.2)).tolist()
            sent.append(counting.batch(name, held, minute, 4.0))
        sent.append(counting.batch("delay", [0.5] * 100, minute))
    for one in METRICS.values():
        sent += [heartbeat(one, EPOCH + 5 * MINUTE)] * 8
    counting.count(0, *sent)
    return store


@contextlib.contextmanager
def finalizing(
    store: Store, published: PublishedLog, top: int = 10, unsearched: tuple[str, ...] = ()
) -> Iterator[PaneFinalizer]:
    publication = Publication(Reader(store, METRICS), published, "dither", 0)
    finalizer = PaneFinalizer(publication, top, None, unsearched)
    with contextlib.closing(finalizer):
        yield finalizer


@contextlib.contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, place: tuple[str, int]) -> Iterator[list[float]]:
    """Have the search of a pane fail; yield when it was tried."""
    tried: list[float] = []

    def search(window: Window, *rest: Any) -> Discovered:
        if (window.metric.name, window.start_ms) == place:
            tried.append(time.monotonic())
            raise MemoryError("no room for the search")
        return discover_strings(window, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(pane_searches, "discover_strings", search)
        yield tried


def next_searched(finalizer: PaneFinalizer, store: Store) -> Event:
    """Take turns until a pane was searched."""
    found: list[Event] = []

    def is_there() -> bool:
        found.extend(finalizer.searched_events(store.overview(), 1))
        return bool(found)

    wait_until(is_there, "a pane was searched")
    (event,) = found
    return event


def test_events_do_not_wait_and_metrics_take_turns(counted: Store, published: PublishedLog) -> None:
    with finalizing(counted, published) as finalizer:
        assert [*finalizer.searched_events(counted.overview(), 1)] == [], "the search has begun"
        others = [*finalizer.final_events(counted.overview(), 1)]
        assert [event.subject for event in others] == ["delay", "delay"]
        assert all("discovery" not in json.loads(event.data) for event in others)
        found = []
        for _ in range(4):
            found.append(next_searched(finalizer, counted))
            published.note_committed(found[-1:], {})
        assert [*finalizer.searched_events(counted.overview(), 1)] == []
    assert {event.subject for event in found[:2]} == {"tail", "page"}
    assert len({event.id for event in found}) == 4
    for event in found:
        told = json.loads(event.data)
        assert [row["string"] for row in told["discovery"]["strings"]] == [*CODES]
        for row, truth in zip(told["discovery"]["strings"], (0.5, 0.3, 0.2), strict=True):
            assert row["lower"] < truth < row["upper"]
        assert (told["reports"], told["discovery"]["left_out"]) == (4_000, 0)
        assert told["discovery"]["beta"] == 0.05


def test_a_list_is_bounded_and_survives_a_takeover(counted: Store, published: PublishedLog) -> None:
    with finalizing(counted, published, top=2, unsearched=("page",)) as finalizer:
        plain = [*finalizer.final_events(counted.overview(), 1)]
        assert sorted(event.subject for event in plain) == ["delay", "delay", "page", "page"]
        assert all("discovery" not in json.loads(event.data) for event in plain)
        event = next_searched(finalizer, counted)
    told = json.loads(event.data)["discovery"]
    assert event.subject == "tail"
    assert ([row["string"] for row in told["strings"]], told["left_out"]) == ([*CODES[:2]], 1)
    with finalizing(counted, published, top=2, unsearched=("page",)) as other:
        assert next_searched(other, counted) == event


def test_a_search_that_fails_is_tried_again_and_other_panes_do_not_wait(
    counted: Store, published: PublishedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pane_searches, "FIRST_RETRY_SECONDS", 0.1)
    assert "dither_failed_pane_searches" not in scraped(counted), "nobody knows"
    with finalizing(counted, published, unsearched=("page",)) as finalizer:
        with (
            failing(monkeypatch, ("tail", EPOCH)) as tried,
            structlog.testing.capture_logs() as logs,
        ):
            found = next_searched(finalizer, counted)
            published.note_committed([found], {})
            assert (found.subject, found.time) == ("tail", "2013-01-01T00:02:00Z")

            def tries_often() -> bool:
                assert not [*finalizer.searched_events(counted.overview(), 1)]
                return len(tried) >= 4

            wait_until(tries_often, "it was tried four times")
            shown = scraped(counted)
        assert np.all(np.diff(tried)[:3] >= (0.1, 0.2, 0.4))
        assert 'dither_failed_pane_searches{metric="tail"} 1.0' in shown
        assert 'dither_failed_pane_searches{metric="page"}' not in shown, "it is not searched"
        (first, *_) = logs
        assert (first["metric"], first["pane"]) == ("tail", "2013-01-01T00:00:00Z")
        assert isinstance(first["exc_info"], MemoryError)

        last = next_searched(finalizer, counted)
        published.note_committed([last], {})
        assert [*finalizer.searched_events(counted.overview(), 1)] == []
    told = json.loads(last.data)
    assert (last.subject, last.time) == ("tail", "2013-01-01T00:01:00Z")
    assert [row["string"] for row in told["discovery"]["strings"]] == [*CODES]
    assert 'dither_failed_pane_searches{metric="tail"} 0.0' in scraped(counted)


def test_a_pane_that_is_gone_is_not_waited_for(
    counted: Store, published: PublishedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pane_searches, "FIRST_RETRY_SECONDS", 0.01)
    with (
        finalizing(counted, published, unsearched=("page",)) as finalizer,
        failing(monkeypatch, ("tail", EPOCH)),
    ):
        published.note_committed([next_searched(finalizer, counted)], {})
        assert 'dither_failed_pane_searches{metric="tail"} 1.0' in scraped(counted)
        first = pane_key(metric_key("tail", METRICS["tail"].revision), EPOCH)
        published.note_committed([Event("id", FINAL_TYPE, "dither", "tail", "", first, b"{}")], {})

        def is_forgotten() -> bool:
            assert not [*finalizer.searched_events(counted.overview(), 1)]
            return 'dither_failed_pane_searches{metric="tail"} 0.0' in scraped(counted)

        wait_until(is_forgotten, "it is not counted any more")


def scraped(store: Store) -> str:
    """Return what a server exports."""
    registry = CollectorRegistry()
    registry.register(Exporter(Reader(store, METRICS), 10))
    return generate_latest(registry).decode()
