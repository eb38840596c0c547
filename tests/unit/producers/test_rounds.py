"""A device answers each round at most once, whatever restarts, and pays for what it answers."""

import contextlib
import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from estimators import SearchMetric, define
from estimators.extremes import Progress
from estimators.extremes.binary_search import Decision
from producers import BudgetSpent, DefinitionChanged, Ledger, Reporter, Rounds
from producers.device.rounds import Round, decode, encode
from producers.ledger.single_answers import claim_round
from tests.support.clocks import Clock
from tests.support.rows import row
from tests.support.running.broker import Broker

ROUNDS = 6


def metric(**changes: Any) -> SearchMetric:
    fields: dict[str, Any] = {"name": "age", "kind": "maximum", "range": (0, 64), "levels": [1, 3]}
    found: SearchMetric = define(**{**fields, "rounds": ROUNDS, **changes})
    return found


def ledger(folder: Path, budget: float = 4) -> Ledger:
    return Ledger(folder / "ledger", budget=budget)


def test_a_device_answers_each_round_at_most_once_after_any_restart(tmp_path: Path) -> None:
    for split, answered in (("users", 1), ("budget", ROUNDS)):
        folder, asked = tmp_path / split, metric(split=split)
        folder.mkdir()
        turns = [
            claim_round(ledger(folder), asked, number, 1)  # another one each time: a restart
            for number in range(1, ROUNDS + 1)
            for _ in range(3)
        ]
        assert sum(turns) == answered
        assert float(ledger(folder).accounts()["age"].spent) == 3.0
    other = metric(split="budget", name="other")
    assert claim_round(ledger(tmp_path), other, 4, 0)
    assert not claim_round(ledger(tmp_path), other, 3, 0), "an earlier one after a later one"


def test_devices_draw_their_rounds_evenly(tmp_path: Path) -> None:
    asked, drawn = metric(), []
    for device in range(60):
        account = Ledger(tmp_path / f"ledger-{device}", budget=4)
        drawn += [n for n in range(1, ROUNDS + 1) if claim_round(account, asked, n, 0)]
    assert len(drawn) == 60
    assert set(drawn) == set(range(1, ROUNDS + 1)), "one is missing once in 10,000 runs"


def test_a_round_beyond_the_budget_is_not_answered_and_stays_open(tmp_path: Path) -> None:
    asked = metric(split="budget")
    with pytest.raises(BudgetSpent):
        claim_round(ledger(tmp_path, 0.4), asked, 1, 1)
    assert claim_round(ledger(tmp_path, 4), asked, 1, 1)


def impossible(asked: SearchMetric) -> list[Round]:
    """Return rounds that a definition does not allow, however a server words them."""
    first = Round.of(asked, Progress(), 0)
    told = (
        {"number": ROUNDS + 1},
        {"number": ROUNDS + 1, "rounds": 50},
        {"number": 1, "rounds": 50},
        {"number": 0},
        {"threshold": 32.5},
        {"threshold": 16.0},  # a point of round 2
        {"threshold": float("nan")},
        {"threshold": 64.0},
        {"number": 2, "threshold": 32.0},
        {"revision": asked.revision + 1},
        {"metric": "size"},
    )
    return [msgspec.structs.replace(first, **changes) for changes in told]


@pytest.mark.parametrize("split", ["users", "budget"])
def test_a_round_that_the_definition_does_not_allow_is_refused(tmp_path: Path, split: str) -> None:
    asked = metric(split=split)
    with Reporter(asked, {"test.mock.num.brokers": 1}) as reporter:
        for wrong in impossible(asked):
            for book in (ledger(tmp_path), None):
                with pytest.raises(ValueError, match="expected"):
                    reporter.answer(wrong, 50.0, 1.0, ledger=book)
        reporter.flush()
        assert reporter.delivered.reports == 0
    assert float(ledger(tmp_path).accounts()[""].spent) == 0


def test_a_server_cannot_ask_for_ever(tmp_path: Path) -> None:
    """Rounds 1 to 50 of a search of 7, and again with every threshold: epsilon in all, no more."""
    asked, book = metric(split="budget", rounds=7, levels=[1]), ledger(tmp_path, 100)
    answers, first = 0, Round.of(asked, Progress(), 0)
    with Reporter(asked, {"test.mock.num.brokers": 1}) as reporter:
        for number in range(1, 51):
            parts = 2**number
            for place in range(1, min(parts, 16), 2):
                for rounds in (50, 7):
                    changes = {"number": number, "rounds": rounds, "threshold": 64 * place / parts}
                    told = msgspec.structs.replace(first, **changes)
                    with contextlib.suppress(ValueError):
                        answers += reporter.answer(told, 50.0, 1.0, ledger=book)
    assert answers == 7
    assert 1 <= float(book.accounts()["age"].spent) < 1 + 7e-4  # each rounded up


@pytest.mark.parametrize("split", ["users", "budget"])
def test_another_definition_under_the_same_name_is_no_new_turn(tmp_path: Path, split: str) -> None:
    one = metric(split=split)
    turns = [claim_round(ledger(tmp_path), one, number, 0) for number in range(1, ROUNDS + 1)]
    assert sum(turns) == (1 if split == "users" else ROUNDS)
    changes: list[dict[str, Any]] = [
        {"range": (0, 32)},
        {"rounds": 1},
        {"levels": [1, 3, 4]},
        {"beta": 0.1},
        {"split": "budget", "rounds": 2},
        {"pane": "2m"},
        {"kind": "minimum"},
    ]
    for changed in changes:
        other = metric(**{"split": split, **changed})
        for number in range(1, other.rounds + 1):
            with row(changed), pytest.raises(DefinitionChanged, match="another name"):
                claim_round(ledger(tmp_path), other, number, 0)
    assert float(ledger(tmp_path).accounts()[""].ever_spent) == pytest.approx(1, abs=1e-3)
    renamed = dataclasses.replace(other, name="age_2")
    assert any(claim_round(ledger(tmp_path), renamed, n, 0) for n in range(1, ROUNDS + 1))


def test_what_is_said_for_people_may_change_within_a_search(tmp_path: Path) -> None:
    one = metric(split="budget")
    other = metric(split="budget", unit="years", description="of people", round_time="2h")
    assert [claim_round(ledger(tmp_path), each, n, 0) for n, each in ((1, one), (2, other))]


def test_a_definition_is_known_by_more_than_its_revision(tmp_path: Path) -> None:
    """A revision is 32 bits: somebody who tries 2^32 definitions finds another one that has it."""
    one, other = metric(split="budget"), metric(split="budget", range=(0, 32))
    other.__dict__["revision"] = one.revision
    assert claim_round(ledger(tmp_path), one, 1, 0)
    with pytest.raises(DefinitionChanged):
        claim_round(ledger(tmp_path), other, 2, 0)


def test_a_round_that_comes_again_with_another_question_is_not_answered(tmp_path: Path) -> None:
    asked, book = metric(split="budget"), ledger(tmp_path)
    first = Round.of(asked, Progress(), 0)
    second = msgspec.structs.replace(first, number=2, threshold=16.0)
    with Reporter(asked, {"test.mock.num.brokers": 1}) as reporter:
        assert reporter.answer(first, 50.0, 1.0, ledger=book) == 1
        assert reporter.answer(second, 50.0, 1.0, ledger=book) == 1
        for again in (msgspec.structs.replace(second, threshold=48.0), second, first):
            assert reporter.answer(again, 50.0, 1.0, ledger=book) == 0


@pytest.mark.parametrize("kind", ["minimum", "maximum"])
def test_the_points_of_a_search_are_those_that_decisions_lead_to(kind: str) -> None:
    generator = np.random.default_rng(1)
    for ends in ((0, 64), (-0.3, 1e9 + 0.1), (1e9, 1e9 + 1e-3), (1e-300, 1e300)):
        search = metric(kind=kind, range=ends, rounds=50).search
        for _ in range(10):
            decisions: list[Decision] = []
            for number, outwards in enumerate(generator.random(50) < generator.random(), 1):
                threshold = search.threshold(Progress(tuple(decisions)))
                assert search.could_ask(number, threshold)
                decisions.append(Decision(threshold, (), (), 0.0, 1.0, bool(outwards)))
        for number in (1, 2, 5):
            points = {search.threshold(Progress(done)) for done in histories(number - 1)}
            assert len(points) == 2 ** (number - 1)
            for point in points:
                above = math.nextafter(point, math.inf)
                assert search.could_ask(number, above) == (above in points)
            assert not any(search.could_ask(number, end) for end in ends)


def histories(length: int) -> list[tuple[Decision, ...]]:
    return [
        tuple(Decision(0.0, (), (), 0.0, 1.0, outwards) for outwards in each)
        for each in itertools.product((False, True), repeat=length)
    ]


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


def test_what_is_no_round_is_refused() -> None:
    first = Round.of(metric(), Progress(), 0)
    wrong = (msgspec.structs.replace(first, **{name: None}) for name in ("metric", "threshold"))
    for text in (b"", b"{}", *map(encode, (*wrong, msgspec.structs.replace(first, number=2)))):
        with row(text), pytest.raises(ValueError, match=r"ound|JSON|`str`|required|truncated"):
            decode(text)


def test_a_reporter_answers_its_own_rounds(broker: Broker, topic: str, tmp_path: Path) -> None:
    asked, book = metric(split="budget"), ledger(tmp_path)
    first = Round.of(asked, Progress(), 0)
    with Reporter(asked, broker.config, topic=topic, clock=Clock(1_700.5)) as reporter:
        assert reporter.answer(first, 50.0, 1.0, ledger=book) == 1
        assert reporter.answer(first, 50.0, 1.0, ledger=book) == 0
        assert reporter.answer(first, [1.0, 2.0, 3.0], [1.0, 3.0, 4.0]) == 3
        for wrong, value, told in (
            (Round.of(metric(name="size"), Progress(), 0), 50.0, "expected a round of 'age'"),
            (first, [1.0, 2.0], "expected one value, as a ledger is for one person"),
            (first, float("nan"), "value nan of"),
        ):
            with pytest.raises(ValueError, match=told):
                reporter.answer(wrong, value, 1.0, ledger=book)
        with pytest.raises(ValueError, match="asked in rounds"):
            reporter.report(50.0, 1.0)
    sent = [(batch.round, batch.time_ms, len(batch.levels)) for batch in broker.batches(topic)]
    assert sorted(sent) == [(1, 1_700_500, 1), (1, 1_700_500, 3)]


def test_a_made_up_round_on_the_topic_is_passed_over(broker: Broker, topic: str) -> None:
    asked = metric(split="budget")
    first = Round.of(asked, Progress(), 0)
    with Rounds(broker.config, topic) as rounds:
        for wrong in (impossible(asked)[2], impossible(asked)[4]):  # others are no rounds at all
            broker.write(topic, encode(wrong))
        with pytest.raises(TimeoutError):
            next(rounds.follow(asked, timeout=0.3))
        broker.write(topic, encode(first))
        assert next(rounds.follow(asked, timeout=30.0)) == first


def test_rounds_of_metrics_that_nobody_follows_are_not_kept(broker: Broker, topic: str) -> None:
    asked, other = metric(split="budget"), metric(name="other")
    old, first = Round.of(asked, Progress(), 0), Round.of(other, Progress(), 0)
    second = Round.of(asked, Progress((Decision(32.0, (), (), 0.0, 1.0, True),)), 1)
    for told in (old, first, second, old):  # as if it were read again
        broker.write(topic, encode(told))
    with Rounds(broker.config, topic) as rounds:
        rounds.read_to_end([asked])
        assert rounds._latest == {(asked.name, asked.revision): second}
        assert next(rounds.follow(other, timeout=30.0)) == first
