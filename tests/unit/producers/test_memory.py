"""What a person may rely on when their device repeats its answers."""

import dataclasses
import itertools
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from estimators import Metric
from producers import AlreadyAnswered, BudgetSpent, Connection, DefinitionChanged, Ledger, Reporter
from producers.ledger.permanent_answers import repeat_or_draw
from tests.support.clocks import Clock
from tests.support.rows import row
from tests.support.running.broker import DELAY, LATE, METRICS, Broker

MEMOIZED = dataclasses.replace(
    DELAY, name="late", mechanism="randomized_response", levels=[1, 2], memoized=True
)
CARRIER = dataclasses.replace(METRICS[2], levels=[1, 2], memoized=True)
DAY = 86_400.0


@pytest.fixture
def ledger(tmp_path: Path, clock: Clock) -> Ledger:
    return Ledger(tmp_path / "ledger", budget=10, clock=clock)


class Device:
    """Reports in one pane after the other, and what it sent."""

    def __init__(self, ledger: Ledger, metric: Metric) -> None:
        self.ledger, self.metric, self.pane = ledger, metric, 0

    def report(
        self,
        value: float | str,
        epsilon: float = 1,
        permanent: Fraction | None = None,
        changes: int = 8,
    ) -> bytes:
        self.pane += 1
        level = np.atleast_1d(self.metric.level_of([epsilon]))
        times = np.array([60_000 * self.pane])
        reports = repeat_or_draw(
            self.ledger, self.metric, np.array([value]), level, times, permanent, changes, None
        )
        return self.metric.randomizer.encode(reports)


def cost(ledger: Ledger) -> float:
    return float(ledger.accounts()[""].spent)


def test_the_same_value_has_the_same_answer_and_costs_what_others_would(ledger: Ledger) -> None:
    device = Device(ledger, CARRIER)
    first = {name: device.report(name, changes=2) for name in ("AA", "B6", "DL")}
    assert cost(ledger) == 3
    for _ in range(5):
        for name, answer in first.items():
            assert device.report(name, changes=2) == answer
    assert cost(ledger) == 3
    account = ledger.accounts()["carrier"]
    assert (account.reports, account.permanent, float(account.ever_spent)) == (18, 3, 3.0)
    assert len(set(first.values())) > 1  # alike with probability below 1e-3
    assert "so they reveal when it changed. This account does not include that" in str(ledger)


def test_a_period_is_charged_for_its_room_whether_or_not_the_value_changed(tmp_path: Path) -> None:
    for changes, values in itertools.product((0, 1, 2, 8), ("AAAAAAAAAAAA", "ABDUABDUABDU")):
        path = tmp_path / f"{changes}{values}"
        device, costs = Device(Ledger(path, budget=20, clock=Clock()), CARRIER), list[float]()
        for value in values:
            device.report({"A": "AA", "B": "B6", "D": "DL", "U": "UA"}[value], changes=changes)
            costs.append(cost(device.ledger))
        with row(changes, values):
            assert costs == [min(report, changes + 1) for report in range(1, 13)]


def test_a_value_without_room_is_answered_with_the_one_before(ledger: Ledger, clock: Clock) -> None:
    device = Device(ledger, CARRIER)
    one, two = device.report("AA", changes=1), device.report("B6", changes=1)
    assert device.report("DL", changes=1) == two
    assert device.report("AA", changes=1) == one  # one of the two that there is room for
    assert device.report("DL", changes=1) == one
    clock.now += 0.6 * DAY
    assert device.report("B6", changes=1) == two
    clock.now += 0.6 * DAY  # the first answer was not sent for a day: there is room again
    device.report("DL", changes=1)
    assert device.report("B6", changes=1) == two
    assert ledger.accounts()["carrier"].ever_spent == 3
    assert cost(ledger) == 2


def test_no_period_has_more_answers_than_are_charged(ledger: Ledger, clock: Clock) -> None:
    """Of any stretch of a day, distinct answers are at most the charges at its end."""
    device, generator = Device(ledger, CARRIER), np.random.default_rng(5)
    sent: list[tuple[float, bytes, float]] = []
    for _ in range(80):
        clock.now += float(generator.choice([60, 0.2 * DAY, 0.9 * DAY, 1.5 * DAY]))
        answer = device.report(str(generator.choice(["AA", "B6", "DL", "UA", "WN"])), changes=1)
        sent.append((clock.now, answer, cost(ledger)))
        recent = {each for at, each, _ in sent if at > clock.now - DAY}
        assert len(recent) <= cost(ledger) <= 2


def test_a_changed_definition_draws_no_answer(broker: Broker, topic: str, ledger: Ledger) -> None:
    changes: list[dict[str, Any]] = [
        {"pane": "2m"},
        {"levels": [1, 2, 3]},
        {"memoized": False},
        {"mechanism": "oue"},
    ]
    with Connection(broker.config) as connection:
        Reporter(CARRIER, connection, topic=topic).report("AA", 1, time=60.0, ledger=ledger)
        before = cost(ledger)
        for changed in changes:
            other = dataclasses.replace(CARRIER, **changed)
            told = "the definition of 'carrier' differs from the one"
            with row(changed), pytest.raises(DefinitionChanged, match=told):
                Reporter(other, connection).report("AA", 1, time=600.0, ledger=ledger)
        assert cost(ledger) == before
        renamed = dataclasses.replace(CARRIER, name="carrier_2", pane="2m")
        Reporter(renamed, connection, topic=topic).report("AA", 1, time=600.0, ledger=ledger)
        assert cost(ledger) == before + 1


def test_a_mean_has_two_answers_at_most_however_the_value_moves(ledger: Ledger) -> None:
    device, generator = Device(ledger, MEMOIZED), np.random.default_rng(1)
    values = [*generator.uniform(-60, 180, 40), -60, 180]  # the ends have one answer each for sure
    sent = [device.report(value) for value in values]
    assert cost(ledger) == 2
    assert set(sent) <= {b"\0", b"\1"}


def test_answers_outlive_the_process_and_differ_between_devices(tmp_path: Path) -> None:
    answers = []
    for number in range(6):
        path = tmp_path / str(number)
        first = Device(Ledger(path, budget=5), CARRIER).report("AA")
        again = Device(Ledger(path), CARRIER)
        again.pane = 1
        assert again.report("AA") == first
        answers.append(first)
    assert len(set(answers)) > 1  # all alike with probability below 1e-6


def test_an_answer_is_charged_in_each_period_of_its_use(ledger: Ledger, clock: Clock) -> None:
    device = Device(ledger, CARRIER)
    device.report("AA", changes=0)
    clock.now += 0.9 * DAY
    device.report("AA", changes=0)
    assert cost(ledger) == 1
    clock.now += 0.9 * DAY  # the answer was used within the last day, though drawn before
    assert cost(ledger) == 1
    device.report("AA", changes=1)
    assert cost(ledger) == 2  # a change would be charged
    clock.now += 0.2 * DAY
    assert cost(ledger) == 1
    device.report("AA", changes=1)
    assert cost(ledger) == 2
    assert ledger.accounts()["carrier"].ever_spent == 1


def test_over_budget_the_same_value_is_refused_as_another_one_is(tmp_path: Path) -> None:
    for value in ("AA", "B6"):
        device = Device(Ledger(tmp_path / value, budget=1), CARRIER)
        answer = device.report("AA")
        with pytest.raises(BudgetSpent):
            device.report(value)
        device.pane -= 1  # the refused report did not take the pane
        assert device.report(value, changes=0) == answer


def test_reports_are_drawn_anew_from_a_permanent_answer(ledger: Ledger) -> None:
    device = Device(ledger, CARRIER)
    assert len({device.report("AA", 1, Fraction(2), changes=0) for _ in range(20)}) > 10
    assert cost(ledger) == 2
    again = [device.report("AA", 2, changes=0) for _ in range(2)]
    assert again[0] == again[1]  # the permanent answer itself
    assert cost(ledger) == 2
    device.report("AA", 1, changes=0)
    assert cost(ledger) == 3, "a level has answers of its own"


def test_a_pane_has_one_answer(broker: Broker, topic: str, ledger: Ledger) -> None:
    with Reporter(MEMOIZED, broker.config, topic=topic) as reporter:
        reporter.report(17.0, epsilon=1, time=60.0, ledger=ledger)
        for time in (61.0, 119.0, 5.0):
            with pytest.raises(AlreadyAnswered, match="ends at 1970-01-01 00:02:00") as caught:
                reporter.report(17.0, epsilon=1, time=time, ledger=ledger)
            assert caught.value.next_ms == 120_000
        with pytest.raises(AlreadyAnswered):
            reporter.report([17.0, 3.0], epsilon=1, time=[120.0, 130.0], ledger=ledger)
        reporter.report([17.0, 3.0], epsilon=1, time=[120.0, 180.0], ledger=ledger)
    assert sum(len(batch.levels) for batch in broker.batches(topic)) == 3


def test_a_permanent_epsilon_needs_a_ledger(broker: Broker, topic: str, ledger: Ledger) -> None:
    for metric, book, permanent, told in (
        (MEMOIZED, None, 2.0, "memoized = true"),
        (LATE, ledger, 2.0, "memoized = true"),
        (MEMOIZED, ledger, 0.5, "expected an epsilon from 1"),
    ):
        with (
            Reporter(metric, broker.config, topic=topic) as reporter,
            pytest.raises(ValueError, match=told),
        ):
            reporter.report(1.0, epsilon=1, ledger=book, permanent=permanent)
    assert cost(ledger) == 0
