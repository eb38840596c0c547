"""Searches for frequent strings in the background."""

import dataclasses
import threading
from typing import Any

import numpy as np
import pytest

from aggregator.clock import Clock
from aggregator.features.discovery import searches
from aggregator.features.discovery.searches import (
    DiscoveryProgress,
    Searches,
    StringsQuestion,
    TooManySearchesError,
)
from aggregator.reading.discovered_strings import DiscoveryAnswer
from aggregator.reading.window import Window
from estimators import LocalMetric, define
from estimators.exact.randomness import SeededBits
from tests.support.running.deployment import wait_until

HOUR_MS = 3_600_000
METRIC = define(
    name="tail",
    kind="frequency",
    categories="open",
    discover=True,
    preset="upper",
    levels=[4],
    options={"last": 16},
)


class Store:
    """A store whose reads wait until they may go on, and may fail."""

    def __init__(self) -> None:
        assert isinstance(METRIC, LocalMetric)
        self.may_read, self.reads, self.status = threading.Event(), 0, "final"
        self.failure: Exception | None = None
        self.reading: int | None = None
        self.sums = METRIC.zero()
        level = np.zeros(9_000, dtype=np.uint8)
        METRIC.accumulate(self.sums, level, METRIC.randomize(["JF"] * 9_000, level, SeededBits(1)))

    def describe(
        self, name: str, start: float | None, end: float | None, *, window: str | None = None
    ) -> tuple[Window, int | None]:
        assert name == METRIC.name
        if end == 0:
            raise ValueError("an empty window")
        begin = int(start or 0)
        return Window(
            metric=METRIC, status=self.status, start_ms=begin, end_ms=HOUR_MS
        ), self.reading

    def read(self, window: Window) -> Window:
        self.reads += 1
        assert self.may_read.wait(90)
        if self.failure is not None:
            raise self.failure
        return window.with_sums(self.sums)


@dataclasses.dataclass
class Hands(Clock):
    """A clock that is moved by hand."""

    seconds: float = 0.0

    def monotonic(self) -> float:
        return self.seconds


class Background(Searches):
    """Searches that are asked by the name of a metric and the ends of a window."""

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store.read, clock)
        self.describe = store.describe

    def result(self, start: float | None = None, end: float | None = None, **options: Any) -> Any:
        question = StringsQuestion(*self.describe("tail", start, end), 0.05)
        return self.result_or_start(question, **options)

    def cancelled(self, start: float | None = None) -> DiscoveryProgress | None:
        return self.cancel(StringsQuestion(*self.describe("tail", start, None), 0.05))


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def clock() -> Hands:
    return Hands()


@pytest.fixture
def background(store: Store, clock: Hands) -> Any:
    found = Background(store, clock)
    yield found
    store.may_read.set()
    found.close()


def answer_of(background: Background, **options: Any) -> DiscoveryAnswer:
    found: list[DiscoveryAnswer] = []

    def is_there() -> bool:
        told = background.result(**options)
        if isinstance(told, DiscoveryAnswer):
            found.append(told)
        return bool(found)

    wait_until(is_there, "an answer")
    return found[0]


def test_a_search_begins_once_and_its_answer_is_kept(background: Background, store: Store) -> None:
    assert isinstance(background.result(), DiscoveryProgress)
    store.may_read.set()
    found = answer_of(background)
    assert [row.string for row in found.strings] == ["JF"]
    assert found.candidates >= 1
    assert found.found_from is not None
    assert 0 < found.found_from < 1
    assert background.result() is found
    assert store.reads == 1


def test_a_search_is_the_only_one_while_panes_close(background: Background, store: Store) -> None:
    for store.reading in (1, 2, 3):
        assert isinstance(background.result(), DiscoveryProgress)
    store.may_read.set()
    found = answer_of(background)
    assert store.reads == 1
    assert answer_of(background) is not found, "asked again, the newest pane is searched too"
    assert store.reads == 2


def test_a_look_searches_once_a_pane(background: Background, store: Store, clock: Hands) -> None:
    store.may_read.set()
    for reading in (None, 1):
        store.reading = reading
        looked = background.result(search=False)
        assert isinstance(looked, DiscoveryProgress)
        assert looked.status == "not_searched"
    found = answer_of(background)
    clock.seconds += searches.ANSWER_LIFETIME_SECONDS - 1
    for reading, pause in ((1, 0), (2, 0), (1, 2)):
        store.reading = reading
        clock.seconds += pause
        assert background.result(search=False) is found
    assert store.reads == 1
    store.reading = 2
    store.may_read.clear()
    assert background.result(search=False) is found, "while another goes on"
    wait_until(lambda: store.reads == 2, "it is searched again, after another pane")
    store.may_read.set()
    assert answer_of(background, search=False) is not None
    wait_until(lambda: background.result(search=False) is not found, "the new answer")


def test_one_runs_at_a_time_and_others_wait_in_line(background: Background, store: Store) -> None:
    background.result()
    wait_until(lambda: store.reads == 1, "the first one reads")
    first, second, third = (background.result(start) for start in (None, 1, 2))
    for told, status, before in ((first, "searching", 0), (second, "waiting", 1)):
        assert isinstance(told, DiscoveryProgress)
        assert (told.status, told.before) == (status, before)
    assert isinstance(third, DiscoveryProgress)
    assert third.before == 2
    for start in range(3, searches.MAX_WAITING_SEARCHES + 1):
        background.result(start)
    with pytest.raises(TooManySearchesError, match="waiting"):
        background.result(100)
    assert store.reads == 1


def test_one_asker_leaves_room_for_others(background: Background) -> None:
    for start in range(searches.MAX_SEARCHES_PER_CLIENT):
        background.result(start, client="one")
    with pytest.raises(TooManySearchesError, match="3 searches of one are waiting or under way"):
        background.result(100, client="one")
    assert isinstance(background.result(0, client="one"), DiscoveryProgress), "it is begun"
    assert isinstance(background.result(100, client="other"), DiscoveryProgress)


def test_a_search_that_is_cancelled_ends(background: Background, store: Store) -> None:
    assert background.cancelled() is None
    background.result()
    wait_until(lambda: store.reads == 1, "it reads")
    background.result(1)
    for start in (None, 1):
        told = background.cancelled(start)
        assert told is not None
        assert told.status == "cancelled"
        assert background.cancelled(start) is None
    store.may_read.set()
    assert answer_of(background).strings, "who asks again gets an answer"
    assert store.reads == 2, "the one in line was never read"


def test_an_answer_is_not_kept_for_ever(
    background: Background, store: Store, clock: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches, "MAX_KEPT_ANSWERS", 2)
    store.may_read.set()
    answer_of(background)
    clock.seconds = searches.ANSWER_LIFETIME_SECONDS + 1
    answer_of(background)
    assert store.reads == 2
    for start in range(1, 4):
        answer_of(background, start=start)
    assert len(background._searches) == 2


def test_of_a_window_that_is_open_nothing_is_searched(background: Background, store: Store) -> None:
    store.status = "provisional"
    store.may_read.set()
    found = background.result()
    assert isinstance(found, DiscoveryAnswer)
    assert (found.status, found.strings, found.reports) == ("provisional", [], 9_000)
    with pytest.raises(ValueError, match="empty"):
        background.result(end=0)
