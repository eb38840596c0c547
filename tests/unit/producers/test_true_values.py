"""With a ledger, a person is in a pane of a trusted collection once, and in no other way.

Without a ledger a reporter is of many people, and nothing here is promised.
"""

import dataclasses
import shutil
from pathlib import Path

import pytest

from aggregator.state.partition import Partition
from estimators import Metric, define
from estimators.metrics.loading import definition_of
from producers import AlreadyAnswered, BudgetSpent, DefinitionChanged, Ledger, Reporter
from tests.support.clocks import Clock
from tests.support.reports.messages import log
from tests.support.running.broker import CARRIER, LATE, Broker, Message

PAY = define(name="pay", kind="mean", trust="central", range=(0, 9), levels=[0.1, 1], lateness="1h")
VOTE = define(name="vote", kind="frequency", trust="central", categories=3, levels=[1], pane="1m")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger", budget=3, clock=Clock(1_700_000_000.0))


def sent(
    broker: Broker, topic: str, metric: Metric, ledger: Ledger, times: list[float]
) -> list[Message]:
    """Report at each time, and return what is in Kafka."""
    with Reporter(metric, broker.config, topic=topic, trusted=True) as reporter:
        for time in times:
            reporter.report(7 if metric is PAY else 1, 1, time=time, ledger=ledger)
    return broker.read(topic)


def test_ten_reports_of_one_person_are_one(broker: Broker, topic: str, ledger: Ledger) -> None:
    with Reporter(PAY, broker.config, topic=topic, trusted=True) as reporter:
        reporter.report(7, 0.1, time=60.0, ledger=ledger)
        for second in range(61, 70):
            with pytest.raises(AlreadyAnswered, match="ends at 1970-01-01 00:02:00"):
                reporter.report(second % 9, 0.1, time=float(second), ledger=ledger)
        with pytest.raises(AlreadyAnswered):
            reporter.report([7, 8], 0.1, time=[120.0, 130.0], ledger=ledger)
        with pytest.raises(AlreadyAnswered):
            reporter.report(7, 0.1, time=5.0, ledger=ledger)  # an earlier pane
    assert [len(batch.levels) for batch in broker.batches(topic)] == [1]
    assert float(ledger.accounts()["pay"].spent) == 0.1


def test_each_pane_costs_its_level_and_leaves(broker: Broker, topic: str, ledger: Ledger) -> None:
    messages = sent(broker, topic, PAY, ledger, [60.0, 120.0, 180.0])
    assert [len(message.batch.levels) for message in messages] == [1, 1, 1]
    assert float(ledger.accounts()["pay"].spent) == 3
    with pytest.raises(BudgetSpent):
        sent(broker, topic, PAY, ledger, [240.0])
    with pytest.raises(AlreadyAnswered):
        sent(broker, topic, PAY, Ledger(ledger.path), [190.0])


def test_pseudonyms_cannot_be_linked_over_panes_or_people(broker: Broker, tmp_path: Path) -> None:
    found: list[bytes] = []
    for person in range(3):
        own = Ledger(tmp_path / str(person), budget=100)
        for metric in (PAY, VOTE):
            messages = sent(broker, broker.topic(), metric, own, [60.0, 120.0, 180.0])
            assert all(message.key == message.batch.batch_id for message in messages)
            found += [message.key for message in messages]
    assert len(set(found)) == len(found) == 18
    assert {len(each) for each in found} == {16}


def test_a_copied_ledger_is_counted_once(broker: Broker, ledger: Ledger, tmp_path: Path) -> None:
    """Two devices of one person, a restored backup: the file says who they are."""
    first = sent(broker, broker.topic(), VOTE, ledger, [30.0])  # the secret is drawn
    shutil.copy(ledger.path, tmp_path / "copy")
    books = (ledger, Ledger(tmp_path / "copy"), Ledger(tmp_path / "other", budget=3))
    messages = [sent(broker, broker.topic(), PAY, book, [60.0])[0] for book in books]
    assert first[0].key not in {message.key for message in messages}
    partition = Partition({"pay": PAY}, future_ms=600_000)
    partition.count(log(*(message.batch for message in messages)))
    counts = {name: count for name, count in partition.counts.items() if count}
    assert counts == {"accepted:pay": 2, "duplicate:pay": 1}


def test_a_key_would_link_panes_and_is_refused(broker: Broker, topic: str, ledger: Ledger) -> None:
    with (
        Reporter(PAY, broker.config, topic=topic, trusted=True, key=b"me") as reporter,
        pytest.raises(ValueError, match="open it without a key"),
    ):
        reporter.report(7, 1, time=60.0, ledger=ledger)
    assert ledger.accounts()[""].spent == 0


def test_true_values_need_an_application_that_says_so(
    broker: Broker, topic: str, ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that turns `local` into `central` gets nothing."""
    lied = define(name="late", **definition_of(LATE) | {"trust": "central", "mechanism": ""})
    with pytest.raises(ValueError, match="Pass `trusted=True` if the application intends this"):
        Reporter(lied, broker.config)
    sent(broker, topic, PAY, ledger, [60.0])
    assert "TRUE VALUES leave this device" in caplog.text


def test_a_memoized_metric_gives_no_true_values(broker: Broker, topic: str, ledger: Ledger) -> None:
    memoized = dataclasses.replace(CARRIER, memoized=True)
    with Reporter(memoized, broker.config, topic=topic) as reporter:
        reporter.report("AA", 1, time=60.0, ledger=ledger)
    lied = define(name="carrier", **definition_of(CARRIER) | {"trust": "central", "mechanism": ""})
    with (
        Reporter(lied, broker.config, topic=topic, trusted=True) as reporter,
        pytest.raises(DefinitionChanged),
    ):
        reporter.report("AA", 1, time=600.0, ledger=ledger)
    assert len(broker.batches(topic)) == 1


def test_what_cannot_be_reported_takes_no_pane(broker: Broker, topic: str, ledger: Ledger) -> None:
    with Reporter(PAY, broker.config, topic=topic, trusted=True) as reporter:
        with pytest.raises(ValueError, match="value nan of"):
            reporter.report(float("nan"), 1, time=60.0, ledger=ledger)
        reporter.report(7, 1, time=60.0, ledger=ledger)
    assert float(ledger.accounts()["pay"].spent) == 1


def test_the_ledger_says_who_knows_true_values(broker: Broker, topic: str, ledger: Ledger) -> None:
    sent(broker, topic, PAY, ledger, [60.0])
    ledger.spend("late", 0.5)
    assert str(ledger).startswith(
        "In the last 24 hours this device gave 1 randomized answer about late (0.5). It sent 1 "
        "true value of pay (1) to a trusted collector. Anyone who has seen all the collector's "
        "releases, and the randomized answers, can be at most e^1.5 = 4.5 times surer of anything "
        "about you than before. The collector itself knows the true values of pay."
    )
    accounts = ledger.accounts()
    assert [accounts[name].trusted for name in ("", "late", "pay")] == [False, False, True]
