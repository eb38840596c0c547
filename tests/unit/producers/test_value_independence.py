"""Whether, when and how many reports appear depends on times and levels, never on values."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import producers
from estimators import LocalMetric, Metric, define
from estimators.extremes import Progress
from producers.device import roll_up as roll_ups
from producers.device.roll_up import How
from producers.device.rounds import Round
from producers.ledger.ledger_file import transaction
from producers.ledger.permanent_answers import repeat_or_draw
from tests.support.axes import CRASH
from tests.support.clocks import Clock
from tests.support.metrics import frequency_metric
from tests.support.running.broker import LATE

BEGINNING = 1_700_000_000.0
PERIOD = 600
CATEGORIES = 5
MEAN = dataclasses.replace(LATE, levels=[0.5, 1], memoized=True)
FRESH = dataclasses.replace(MEAN, name="fresh", memoized=False)
BITS = frequency_metric("carrier", "rappor", CATEGORIES, [0.5, 1], memoized=True)
SYMBOLS = dataclasses.replace(BITS, name="fuel", mechanism="grr")
AGE = define(name="age", kind="maximum", range=(0, 1), levels=[0.5, 1], rounds=4, split="budget")
METRICS = (MEAN, FRESH, BITS, SYMBOLS, AGE)


@dataclasses.dataclass(frozen=True)
class Step:
    """One call, but for the values."""

    seconds: int
    metric: Metric
    epsilon: float
    reports: int = 1
    permanent: float | None = None
    changes: int = 1


@st.composite
def steps(draw: st.DrawFn) -> Step:
    metric = draw(st.sampled_from(METRICS))
    epsilon = draw(st.sampled_from([0.5, 1.0]))
    flips_again = isinstance(metric, LocalMetric) and metric.memoized and metric is not SYMBOLS
    return Step(
        draw(st.sampled_from([0, 20, 60, 100, 300, 590, 600, 601])),
        metric,
        epsilon,
        1 if metric is AGE else draw(st.integers(1, 3)),
        draw(st.sampled_from([None, None, 1.5])) if flips_again else None,
        draw(st.integers(0, 2)),
    )


class Device:
    """Reports with a ledger, and notes what became of each call, and what left."""

    def __init__(self, folder: Path, budget: float, connection: producers.Connection) -> None:
        self.clock = Clock(BEGINNING)
        self.ledger = producers.Ledger(folder / "ledger", budget, f"{PERIOD}s", clock=self.clock)
        self.reporters = {
            metric.name: producers.Reporter(metric, connection, clock=self.clock)
            for metric in METRICS
        }
        self.round = 0

    def close(self) -> list[int]:
        """Return how many reports of each metric have reached Kafka."""
        for reporter in self.reporters.values():
            reporter.close()
        return [reporter.delivered.reports for reporter in self.reporters.values()]

    def take(self, step: Step, values: Sequence[float]) -> tuple[Any, ...]:
        """Return all that anybody may learn of a call, but for the reports' content."""
        self.clock.now += step.seconds
        reporter, metric = self.reporters[step.metric.name], step.metric
        given: Any = [value if metric.range else int(CATEGORIES * value) % 5 for value in values]
        times = self.clock.now + 60.0 * np.arange(step.reports)
        try:
            if metric is AGE:
                self.round = min(self.round + 1, 4)
                asked = msgspec.structs.replace(
                    Round.of(AGE, Progress(), 0), number=self.round, threshold=2.0**-self.round
                )
                return (reporter.answer(asked, given[0], step.epsilon, ledger=self.ledger),)
            reporter.report(
                given,
                step.epsilon,
                times,
                ledger=self.ledger,
                permanent=step.permanent,
                changes=step.changes,
            )
        except (producers.BudgetSpent, producers.AlreadyAnswered) as refused:
            return type(refused), str(refused).replace(str(self.ledger.path), "")
        return ("sent", step.reports)

    def accounts(self) -> list[tuple[Any, ...]]:
        return [
            (name, one.spent, one.left, one.reports, one.permanent, one.more_at)
            for name, one in self.ledger.accounts().items()
        ]


@pytest.fixture(scope="module")
def connection() -> Iterator[producers.Connection]:
    with producers.Connection({"test.mock.num.brokers": 1}) as connection:
        yield connection


SAME = [Step(60, BITS, 1.0)] * 6 + [Step(0, FRESH, 0.5)]


@settings(max_examples=20)
@given(
    told=st.lists(steps(), min_size=2, max_size=12),
    budget=st.sampled_from([1, 2, 3.5, 8]),
    seed=st.integers(0, 2**32),
    constant=st.booleans(),
)
@example(told=SAME, budget=2, seed=1, constant=True)
@example(told=SAME, budget=4, seed=1, constant=True)
def test_the_same_times_and_levels_are_sent_and_refused_alike_whatever_the_values(
    tmp_path_factory: pytest.TempPathFactory,
    connection: producers.Connection,
    told: list[Step],
    budget: float,
    seed: int,
    constant: bool,
) -> None:
    devices = [Device(tmp_path_factory.mktemp("device"), budget, connection) for _ in range(2)]
    generator = np.random.default_rng(seed)
    try:
        for step in told:
            one = np.zeros(step.reports) if constant else generator.random(step.reports)
            other = generator.random(step.reports)
            first, second = (
                device.take(step, values.tolist())
                for device, values in zip(devices, (one, other), strict=True)
            )
            assert first == second
        assert devices[0].accounts() == devices[1].accounts()
    finally:
        sent = [device.close() for device in devices]
    assert sent[0] == sent[1]


@settings(max_examples=15)
@given(
    history=st.lists(st.tuples(st.sampled_from([0, 200, 601]), st.integers(0, 4)), min_size=1),
    other=st.permutations(range(CATEGORIES)),
    changes=st.integers(0, 2),
)
def test_histories_that_change_alike_repeat_their_answers_alike(
    tmp_path_factory: pytest.TempPathFactory,
    history: list[tuple[int, int]],
    other: list[int],
    changes: int,
) -> None:
    """Which answer comes again when is a function of times, and of which values are equal."""
    patterns = []
    for names in (range(CATEGORIES), other):
        clock = Clock(BEGINNING)
        path = tmp_path_factory.mktemp("device") / "ledger"
        ledger = producers.Ledger(path, 100, f"{PERIOD}s", clock=clock)
        sent: list[int] = []
        for pane, (seconds, value) in enumerate(history[:12]):
            clock.now += seconds
            values, times = np.array([names[value]]), np.array([60_000 * pane])
            level = np.zeros(1, dtype=np.uint8)
            repeat_or_draw(ledger, SYMBOLS, values, level, times, None, changes, None)
            with transaction(path, write=False) as database:
                last = "SELECT answer FROM uses ORDER BY number DESC LIMIT 1"
                sent.append(database.execute(last).fetchone()[0])
        patterns.append(sent)
    assert patterns[0] == patterns[1]


# -- Roll-ups -------------------------------------------------------------------------------------

HOURLY = dataclasses.replace(LATE, name="hourly", levels=[1], pane="1h", lateness="4h")


STEPS = dataclasses.replace(
    SYMBOLS, name="steps", memoized=False, levels=[1], pane="1h", lateness="4h"
)
FLAGS = dataclasses.replace(CRASH, levels=[1], lateness="4h")
OF_CATEGORIES = {"furthest": (STEPS, "0"), "flags": (FLAGS, FLAGS.labels[0])}


class Gatherer:
    """A device that gathers; it notes when a window is reported or refused, and which one."""

    def __init__(self, folder: Path, how: How) -> None:
        self.folder, self.how, self.clock = folder, how, Clock(BEGINNING)
        self.seen = list[tuple[float, Any]]()
        self.ledger = producers.Ledger(folder / "ledger", 2, "3h", clock=self.clock)
        self.start()

    def start(self) -> None:
        seen, clock = self.seen, self.clock

        class Seen(producers.HttpReporter):
            def report(self, value: Any, epsilon: Any, time: Any = None, **more: Any) -> None:
                super().report(value, epsilon, time, **more)
                seen.append((clock.now, time))

        queue = self.folder / "queue"
        metric, nothing = OF_CATEGORIES.get(self.how, (HOURLY, None))
        self.reporter = Seen(metric, "http://127.0.0.1:9", queue=queue, clock=clock)
        self.gathered = producers.RollUp(
            self.reporter, self.how, "1h", 1, ledger=self.ledger, nothing=nothing, clock=clock
        )

    def restart(self) -> None:
        self.reporter.close(0)
        self.start()

    def look(self) -> None:
        try:
            self.gathered.report_ended()
        except producers.BudgetSpent as refused:
            self.seen.append((self.clock.now, refused.free_at))

    def add(self, values: list[float]) -> None:
        for value in values:
            added: Any = None if self.how in ("count", "active") else value
            if self.how in OF_CATEGORIES:
                added = [0, 1] if self.how == "furthest" else ["crashed", "used_x"]
                added = added[value > 0]
            self.gathered.add(added)


ONCE, TWICE = [[1.0], [], [], []], [[2**63, 2**63], [], [], []]
NEVER = [list[float]()] * 4
HUGE = [[1e308] * 2, [], [-1e308] * 2, []]
VALUES = st.lists(st.sampled_from([0.0, 1.0, 3, 1e308, -1e308, 2**62]), max_size=3)
MINUTES = [0, 1, 10, 20, 45, 59, 60, 61, 150, 600, -1, -90, 50_000, -50_000]


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    history=st.lists(
        st.tuples(
            st.sampled_from(MINUTES),
            st.sampled_from(["look", "look", "restart", ""]),
            st.lists(VALUES, min_size=4, max_size=4),
        ),
        min_size=2,
        max_size=20,
    ),
    how=st.sampled_from(["count", "sum", "active", "last", "largest", "furthest", "flags"]),
    delay=st.integers(0, 4),
)
@example(history=[(0, "", ONCE), (61, "", ONCE)], how="active", delay=0)
@example(history=[(0, "", ONCE), (61, "look", ONCE), (150, "look", NEVER)], how="furthest", delay=0)
@example(history=[(0, "", ONCE), (61, "look", ONCE), (150, "look", NEVER)], how="flags", delay=0)
@example(history=[(0, "", TWICE), (150, "look", NEVER)], how="sum", delay=4)
@example(
    history=[(50_000, "", HUGE), (-50_000, "look", HUGE[2:] + NEVER[2:]), (150, "look", NEVER)],
    how="sum",
    delay=0,
)
@example(
    history=[(50_000, "look", NEVER), (-50_000, "", ONCE), (61, "look", NEVER)],
    how="count",
    delay=0,
)
def test_a_roll_up_reports_at_the_same_moments_whether_and_whenever_something_is_added(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    history: list[tuple[int, str, list[list[float]]]],
    how: How,
    delay: int,
) -> None:
    """Looks and starts are the same on both devices. "last" and "largest" need a value in each."""

    class Delays:
        def randint(self, _: int, longest: int) -> int:
            return longest * delay // 4

    monkeypatch.setattr(roll_ups, "_random", Delays())
    devices = [Gatherer(tmp_path_factory.mktemp("device"), how) for _ in range(2)]
    shows_values = how in ("last", "largest")
    for minutes, action, values in history:
        for index, device in enumerate(devices):
            before, after = values[2 * index : 2 * index + 2]
            device.clock.now += 60 * minutes
            device.add([*before, 0.5] if shows_values and index else before)
            if action == "look":
                device.look()
            elif action == "restart":
                device.restart()
            device.add(after if index or not shows_values else [*after, 0.5])
    for device in devices:
        device.reporter.close(0)
    assert devices[0].seen == devices[1].seen
