"""A device answers each round at most once, whatever restarts, and pays for what it answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from estimators import Metric
from estimators.extremes import Progress
from producers import BudgetSpent, Ledger, Reporter
from producers.delivery import Batch, Outbox
from producers.reports_pb2 import ReportBatch
from producers.rounds import Round, decode, encode
from producers.turns import take_turn

ROUNDS = 6


def metric(**changes: Any) -> Metric:
    fields: dict[str, Any] = {"name": "age", "kind": "maximum", "range": (0, 64), "levels": [1, 3]}
    return Metric(**{**fields, "rounds": ROUNDS, **changes})


def ledger(folder: Path, budget: float = 4) -> Ledger:
    return Ledger(folder / "ledger", budget=budget)


@pytest.mark.parametrize("split", ["users", "budget"])
def test_a_device_answers_each_round_at_most_once_after_any_restart(
    split: str, tmp_path: Path
) -> None:
    asked = metric(split=split)
    turns = [
        take_turn(ledger(tmp_path), asked, number, 1)  # another one each time: a restart
        for number in range(1, ROUNDS + 1)
        for _ in range(3)
    ]
    assert sum(turns) == (1 if split == "users" else ROUNDS)
    assert float(ledger(tmp_path).accounts()["age"].spent) == 3.0


def test_devices_draw_their_rounds_evenly(tmp_path: Path) -> None:
    asked, drawn = metric(), []
    for device in range(60):
        account = Ledger(tmp_path / f"ledger-{device}", budget=4)
        drawn += [n for n in range(1, ROUNDS + 1) if take_turn(account, asked, n, 0)]
    assert len(drawn) == 60
    assert set(drawn) == set(range(1, ROUNDS + 1)), "one is missing once in 10,000 runs"


def test_an_earlier_round_is_not_answered_after_a_later_one(tmp_path: Path) -> None:
    asked = metric(split="budget")
    assert take_turn(ledger(tmp_path), asked, 4, 0)
    assert not take_turn(ledger(tmp_path), asked, 3, 0)


def test_a_round_that_the_budget_does_not_cover_is_not_answered_and_stays_open(
    tmp_path: Path,
) -> None:
    asked = metric(split="budget")
    with pytest.raises(BudgetSpent):
        take_turn(ledger(tmp_path, 0.4), asked, 1, 1)
    assert take_turn(ledger(tmp_path, 4), asked, 1, 1)


def test_another_definition_is_another_search(tmp_path: Path) -> None:
    one, other = metric(split="budget"), metric(split="budget", range=(0, 32))
    assert take_turn(ledger(tmp_path), one, 1, 0)
    assert take_turn(ledger(tmp_path), other, 1, 0)


def test_a_round_is_read_back_as_it_was_written() -> None:
    asked, search = metric(), metric().search
    progress = Progress()
    for _ in range(ROUNDS + 1):
        told = Round.of(asked, progress, 1_000)
        assert decode(encode(told)) == told
        assert told.progress == progress
        if not told.is_over:
            statistic = search.zero()
            search.accumulate(statistic, [0] * 9, [1] * 9)
            before, progress = told, search.decide(progress, statistic)
            assert Round.of(asked, progress, 2_000).extends(before)
            assert not before.extends(before)
    assert told.is_over
    assert told.number == ROUNDS


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b'{"metric":"age","revision":1,"number":2,"rounds":6,"threshold":1,"opened_ms":0,'
        b'"decisions":[]}',
        b'{"metric":"age","revision":1,"number":1,"rounds":6,"threshold":null,"opened_ms":0,'
        b'"decisions":[]}',
    ],
)
def test_what_is_no_round_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"round|JSON|missing|required|truncated"):
        decode(text)


def test_a_reporter_answers_rounds_of_its_metric_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = metric(split="budget")
    first = Round.of(asked, Progress(), 0)
    sent: list[ReportBatch] = []
    put = Outbox.put

    def watched(self: Outbox, batch: Batch) -> None:
        sent.append(ReportBatch.FromString(batch.payload))
        put(self, batch)

    monkeypatch.setattr(Outbox, "put", watched)
    with Reporter(asked, {"test.mock.num.brokers": 1}, clock=lambda: 1_700.5) as reporter:
        assert reporter.answer(first, 50.0, 1.0, ledger=ledger(tmp_path)) == 1
        assert reporter.answer(first, 50.0, 1.0, ledger=ledger(tmp_path)) == 0
        assert reporter.answer(first, [1.0, 2.0, 3.0], [1.0, 3.0, 4.0]) == 3
        with pytest.raises(ValueError, match="expected an open round of 'age'"):
            reporter.answer(Round.of(metric(name="size"), Progress(), 0), 50.0, 1.0)
        with pytest.raises(ValueError, match="expected one person's"):
            reporter.answer(first, [1.0, 2.0], 1.0, ledger=ledger(tmp_path))
        with pytest.raises(ValueError, match="not a number"):
            reporter.answer(first, float("nan"), 1.0)
        with pytest.raises(ValueError, match="asked in rounds"):
            reporter.report(50.0, 1.0)
        reporter.flush()
        assert reporter.delivered.reports == 4
    assert [(batch.round, batch.time_ms, len(batch.levels)) for batch in sent] == [
        (1, 1_700_500, 1),
        (1, 1_700_500, 3),
    ]
