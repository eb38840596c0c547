"""What a person may rely on when their device repeats its answers."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from estimators import Metric
from producers import AlreadyAnswered, BudgetSpent, Ledger, Reporter
from producers.memory import remembered
from tests.producers.broker import LATE, Broker
from tests.producers.test_reporter import Clock

MEMOIZED = Metric(
    name="late",
    kind="mean",
    mechanism="randomized_response",
    range=(-60, 180),
    levels=[1, 2],
    pane="1m",
    memoized=True,
)
CARRIER = Metric(
    name="carrier",
    kind="frequency",
    mechanism="rappor",
    categories=["AA", "B6", "DL", "UA", "WN", "9E", "EV", "MQ", "US"],
    levels=[1, 2],
    pane="1m",
    memoized=True,
)
DAY = 86_400.0


@pytest.fixture
def clock() -> Clock:
    return Clock(1_700_000_000.0)


@pytest.fixture
def ledger(tmp_path: Path, clock: Clock) -> Ledger:
    return Ledger(tmp_path / "ledger", budget=10, clock=clock)


class Device:
    """Reports in one pane after the other, and what it sent."""

    def __init__(self, ledger: Ledger, metric: Metric) -> None:
        self.ledger, self.metric, self.pane = ledger, metric, 0

    def report(
        self, value: float | str, epsilon: float = 1, permanent: Fraction | None = None
    ) -> bytes:
        self.pane += 1
        level = np.atleast_1d(self.metric.level_of([epsilon]))
        times = np.array([60_000 * self.pane])
        reports = remembered(
            self.ledger, self.metric, np.array([value]), level, times, permanent, None
        )
        return self.metric.randomizer.encode(reports)


def cost(ledger: Ledger) -> float:
    return float(ledger.accounts()[""].spent)


def test_the_same_value_has_the_same_answer_and_costs_once(ledger: Ledger) -> None:
    device = Device(ledger, CARRIER)
    first = {name: device.report(name) for name in ("AA", "B6", "DL")}
    assert cost(ledger) == 3
    for _ in range(5):
        for name, answer in first.items():
            assert device.report(name) == answer
    assert cost(ledger) == 3
    account = ledger.accounts()["carrier"]
    assert (account.reports, account.permanent, float(account.ever_spent)) == (18, 3, 3.0)
    assert len(set(first.values())) > 1  # alike with probability below 1e-3


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


def test_an_answer_is_charged_in_each_period_in_which_it_is_used(
    ledger: Ledger, clock: Clock
) -> None:
    device = Device(ledger, CARRIER)
    device.report("AA")
    clock.now += 0.9 * DAY
    device.report("AA")
    assert cost(ledger) == 1
    clock.now += 0.9 * DAY  # the answer was used within the last day, though drawn before
    assert cost(ledger) == 1
    device.report("B6")
    assert cost(ledger) == 2
    clock.now += 0.2 * DAY
    assert cost(ledger) == 1
    device.report("AA")
    assert cost(ledger) == 2
    assert ledger.accounts()["carrier"].ever_spent == 2


def test_a_new_answer_is_refused_over_budget_and_an_old_one_repeated(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger", budget=1)
    device = Device(ledger, CARRIER)
    answer = device.report("AA")
    with pytest.raises(BudgetSpent):
        device.report("B6")
    device.pane -= 1  # the refused report did not take the pane
    assert device.report("AA") == answer


def test_reports_are_drawn_anew_from_a_permanent_answer(ledger: Ledger) -> None:
    device = Device(ledger, CARRIER)
    sent = [device.report("AA", 1, Fraction(2)) for _ in range(20)]
    assert len(set(sent)) > 10
    assert cost(ledger) == 2
    assert device.report("AA", 2) == device.report("AA", 2)  # the permanent answer itself
    assert cost(ledger) == 2


def test_levels_have_answers_of_their_own(ledger: Ledger) -> None:
    device = Device(ledger, CARRIER)
    device.report("AA", 1)
    device.report("AA", 2)
    assert cost(ledger) == 3


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


def test_a_permanent_epsilon_needs_a_ledger_and_a_memoized_metric(
    broker: Broker, topic: str, ledger: Ledger
) -> None:
    for metric, book in ((MEMOIZED, None), (LATE, ledger)):
        with (
            Reporter(metric, broker.config, topic=topic) as reporter,
            pytest.raises(ValueError, match="memoized = true"),
        ):
            reporter.report(1.0, epsilon=1, ledger=book, permanent=2)
    with (
        Reporter(MEMOIZED, broker.config, topic=topic) as reporter,
        pytest.raises(ValueError, match=r"permanent = 0\.5: expected an epsilon from 1"),
    ):
        reporter.report(1.0, epsilon=1, ledger=ledger, permanent=0.5)
    assert cost(ledger) == 0


def test_the_ledger_says_what_repeated_answers_do_not_hide(ledger: Ledger) -> None:
    device = Device(ledger, CARRIER)
    device.report("AA")
    device.report("AA")
    assert (
        "2 randomized answers about carrier (1). Whoever has seen all of them can be at most e^1 = "
        "2.8 times surer of anything about you than before. That is about which values you had of "
        "carrier: answers are drawn once for each value and repeated, which does not hide when a "
        "value changed."
    ) in str(ledger)
