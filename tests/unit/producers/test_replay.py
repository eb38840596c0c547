"""A population plays in order of event time, at the speed that was asked for."""

from __future__ import annotations

import threading
from typing import Any, cast

import numpy as np
import pytest

from estimators import Metric
from producers import Reporter
from producers.populations.level_distribution import LevelDistribution
from producers.populations.population import Population
from producers.populations.produce import produce
from producers.populations.replay import Progress, Replay
from producers.populations.truth import Truth
from tests.support.running.broker import CARRIER, DELAY, LATE, PLACE, WORDS, Broker, count

MIX = LevelDistribution.parse("1:0.5,4:0.5")


class Time:
    """Seconds that pass only while someone sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


class Recorder:
    """Stands for a reporter; notes what was reported, and when."""

    def __init__(self, metric: Metric, time: Time) -> None:
        self.metric, self._time = metric, time
        self.calls: list[tuple[float, list[float], list[float], list[int]]] = []

    def report_groups(self, value: Any, epsilon: Any, time: Any, groups: Any) -> None:
        [(rows, attributes)] = groups
        assert rows.tolist() == [*range(len(value))]
        assert attributes == {}
        self.calls.append(
            (self._time.now, value.tolist(), epsilon.tolist(), time.astype(np.int64).tolist())
        )


def population(times: list[int]) -> Population:
    return Population(np.array(times, dtype=np.int64), {"late": np.arange(float(len(times)))})


def play(who: Population, time: Time, **options: Any) -> tuple[Recorder, Replay]:
    recorder = Recorder(LATE, time)
    reporters = {"late": cast("Reporter", recorder)}
    return recorder, Replay(who, reporters, MIX, timer=time, sleep=time.sleep, **options)


@pytest.mark.parametrize("options", [{"speed": 100.0}, {"seconds": 90.0}])
def test_nobody_reports_before_their_time_nor_much_later(options: dict[str, float]) -> None:
    times = sorted(np.random.default_rng(1).integers(0, 9_000_000, 500).tolist())
    times[0], times[-1] = 0, 9_000_000
    time = Time()
    recorder, replay = play(population([t + 5 for t in times]), time, **options)
    end = replay.run()
    late = [
        now - (event - 5) / 1000 / 100 for now, _, _, events in recorder.calls for event in events
    ]
    assert len(late) == 500
    assert min(late) >= -1e-9
    assert max(late) <= 0.06
    assert end.seconds == pytest.approx(90, abs=0.1)


def test_without_a_speed_nobody_waits_and_chunks_are_bounded() -> None:
    time = Time()
    recorder, replay = play(population(list(range(1, 26))), time, chunk=10)
    assert replay.run().devices == 25
    assert time.now == 0
    assert [len(values) for _, values, _, _ in recorder.calls] == [10, 10, 5]


def test_the_choice_of_epsilons_does_not_depend_on_chunks_or_speed() -> None:
    chosen = []
    for options in ({"chunk": 7}, {"chunk": 100}, {"speed": 0.01}):
        recorder, replay = play(population(list(range(1, 101))), Time(), seed=5, **options)
        replay.run()
        chosen.append([epsilon for _, _, some, _ in recorder.calls for epsilon in some])
    assert chosen[0] == chosen[1] == chosen[2]
    assert set(chosen[0]) == {1.0, 4.0}


def test_a_replay_stops_when_asked_and_the_truth_is_of_what_was_reported() -> None:
    stop, heard = threading.Event(), list[Progress]()

    def progress(now: Progress) -> None:
        heard.append(now)
        if now.devices == 20:
            stop.set()

    recorder, replay = play(population(list(range(1, 101))), Time(), chunk=10, stop=stop)
    end = replay.run(progress)
    assert (end.devices, end.time_ms) == (20, 20)
    assert [now.devices for now in heard] == [10, 20]
    assert replay.truths()["late"].reports == 20
    assert sum(len(values) for _, values, _, _ in recorder.calls) == 20


def test_an_empty_population_plays_at_once() -> None:
    _, replay = play(population([]), Time(), seconds=5.0)
    assert replay.run() == Progress(0, 0, 0, 0.0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"speed": 1.0, "seconds": 1.0}, "expected one of the two"),
        ({"speed": 0.0}, "speed = 0.0: expected a number above 0"),
        ({"seconds": float("inf")}, "seconds = inf"),
    ],
)
def test_a_speed_that_is_none_is_refused(options: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        play(population([1]), Time(), **options)


def test_a_metric_without_a_column_or_a_level_is_refused_before_anything_is_sent() -> None:
    who, time = population([1]), Time()
    with pytest.raises(ValueError, match=r"metric 'delay': the population has only .'late'."):
        Replay(who, {"delay": cast("Reporter", Recorder(DELAY, time))}, MIX)
    with pytest.raises(ValueError, match="the mix cannot be used"):
        Replay(
            who, {"late": cast("Reporter", Recorder(LATE, time))}, LevelDistribution.parse("0.1:1")
        )


def test_producing_sends_what_everybody_has_and_says_what_it_was(
    broker: Broker, topic: str
) -> None:
    generator = np.random.default_rng(2)
    delay = generator.uniform(-100, 200, 5000)
    delay[generator.random(5000) < 0.1] = np.nan
    carrier = generator.integers(-1, 9, 5000)
    who = Population(np.arange(5000) * 100 + 1, {"delay": delay, "carrier": carrier})
    heard: list[tuple[Progress, dict[str, Truth]]] = []
    done = produce(
        {"delay": DELAY, "carrier": CARRIER},
        who,
        broker.config,
        MIX,
        topic=topic,
        progress=lambda now, truths: heard.append((now, truths)),
    )
    batches = broker.batches(topic)
    for metric in (DELAY, CARRIER):
        own = [batch for batch in batches if batch.metric == metric.name]
        levels = metric.counts(count(metric, own))
        assert levels.tolist() == done.truth[metric.name].levels.tolist()
    assert done.truth["delay"].value == pytest.approx(
        np.clip(delay[~np.isnan(delay)], -60, 180).mean()
    )
    assert done.reports == who.has_value("delay").sum() + who.has_value("carrier").sum()
    assert (done.devices, done.batches) == (5000, len(batches))
    assert done.bytes == sum(batch.ByteSize() for batch in batches)
    assert heard[-1][0].reports == done.reports


def test_strings_and_vectors_are_produced_and_counted(broker: Broker, topic: str) -> None:
    """Bounds that miss once in a million seeds."""
    generator = np.random.default_rng(2)
    words = np.array(["sun", "snow", "", "rain"], dtype=object)[generator.integers(0, 4, 8000)]
    place = generator.normal((1, -2), 1, (8000, 2))
    place[::10, 1] = np.nan
    who = Population(np.arange(8000) + 1, {"words": words, "place": place})
    metrics = {"words": WORDS, "place": PLACE}
    done = produce(metrics, who, broker.config, LevelDistribution.parse("1:0.5,4:0.5"), topic=topic)
    assert done.reports == (words != "").sum() + 7200
    batches = broker.batches(topic)
    for name, metric in metrics.items():
        truth = done.truth[name]
        statistic = count(metric, [batch for batch in batches if batch.metric == name])
        estimate = metric.estimate(statistic, beta=1e-6)
        assert metric.counts(statistic).tolist() == truth.levels.tolist()
        assert estimate.labels == truth.labels
        assert np.all((estimate.lower <= truth.value) & (truth.value <= estimate.upper))
    sun, reports = done.truth["words"].value, (words != "").sum()
    assert np.asarray(sun).tolist() == [(words == w).sum() / reports for w in ("sun", "snow")]
