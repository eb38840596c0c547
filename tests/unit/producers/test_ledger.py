"""What a person may rely on when their device keeps an account of epsilon."""

import dataclasses
import os
import sqlite3
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators import Metric
from estimators.exact.randomness import SeededBits, Words
from producers import BudgetSpent, Ledger, LedgerError, Reporter
from producers.delivery.batches import PendingBatch
from producers.ledger import ledger_file
from tests.support.clocks import Clock
from tests.support.rows import row
from tests.support.running.broker import CARRIER, LATE, Broker

HOUR = 3600.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def spent(ledger: Ledger) -> Fraction:
    return ledger.accounts()[""].spent


def test_a_report_spends_the_level_that_is_used(broker: Broker, topic: str, path: Path) -> None:
    ledger = Ledger(path, budget=5)
    with Reporter(LATE, broker.config, topic=topic) as reporter:
        reporter.report(1.0, epsilon=0.99, ledger=ledger)
        assert spent(ledger) == Fraction(1, 2)
        reporter.report([1.0, 0.0, 1.0], epsilon=[0.5, 1, 3.9], ledger=ledger)
    assert spent(ledger) == Fraction(1, 2) + Fraction(1, 2) + 1 + 2
    assert ledger.accounts()["late"].reports == 4
    assert sum(len(batch.levels) for batch in broker.batches(topic)) == 4


def test_a_refusal_says_what_is_left_and_when_there_is_more(path: Path, clock: Clock) -> None:
    ledger = Ledger(path, budget=2, clock=clock)
    ledger.spend("late", 1)
    clock.now += HOUR
    ledger.spend("late", 0.5)
    with pytest.raises(BudgetSpent) as caught:
        ledger.spend("late", 1)
    error = caught.value
    assert (error.asked, error.left, error.budget) == (Fraction(1), Fraction(1, 2), Fraction(2))
    assert error.free_at is not None
    assert error.free_at.timestamp() == 1_700_000_000 + 24 * HOUR
    assert "epsilon = 1 for 'late': 0.5 is left of the budget of all metrics, 2" in str(error)
    assert "from 2023-11-15 22:13:20 UTC" in str(error)
    clock.now = error.free_at.timestamp() - 0.001
    with pytest.raises(BudgetSpent):
        ledger.spend("late", 1)
    clock.now = error.free_at.timestamp()
    ledger.spend("late", 1)

    ledger = Ledger(path, budget="1234.5678")
    with pytest.raises(BudgetSpent, match="whole budget is smaller than that") as caught:
        ledger.spend("late", 2000)
    assert caught.value.free_at is None
    assert ": 1234.5678 is left of the budget of all metrics, 1234.5678 (" in str(caught.value)


class Counting(SeededBits):
    """Bits that know whether they were asked for."""

    asked = 0

    def integers(self, n: int) -> Words:
        self.asked += n
        return super().integers(n)


def test_a_refused_report_is_not_drawn_and_not_sent(broker: Broker, topic: str, path: Path) -> None:
    bits, ledger = Counting(1), Ledger(path, budget=1)
    with Reporter(LATE, broker.config, topic=topic, bits=bits) as reporter:
        with pytest.raises(BudgetSpent):
            reporter.report([1.0, 1.0], epsilon=1, ledger=ledger)
        path.write_bytes(b"")
        with pytest.raises(LedgerError):
            reporter.report(1.0, epsilon=1, ledger=ledger)
    assert bits.asked == 0
    assert broker.read(topic) == []


def test_a_clock_or_bits_that_fail_or_wait_leave_nothing_charged_and_nothing_locked(
    path: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait() -> float:
        asked.set()
        go_on.wait(60)
        return time.time()

    asked, go_on = threading.Event(), threading.Event()
    ledger = Ledger(path, budget=1)
    bits = cast("Any", types.SimpleNamespace(integers=lambda _: ledger.left()))
    memoized = dataclasses.replace(CARRIER, memoized=True)
    with (
        Reporter(memoized, broker.config, bits=bits) as reporter,
        pytest.raises(LedgerError, match="within a transaction of the same thread"),
    ):
        reporter.report("AA", epsilon=1, ledger=ledger)
    assert Ledger(path).left() == 1
    monkeypatch.setattr(ledger_file, "BUSY_SECONDS", 0.05)
    waiting = threading.Thread(target=Ledger(path, clock=wait).spend, args=("late", 1))
    waiting.start()
    assert asked.wait(60)
    assert Ledger(path).left() == 1, "a clock that waits locks nothing"
    with ThreadPoolExecutor(1) as pool, ledger.transaction():
        assert "another thread" in str(pool.submit(ledger.left).exception())
    go_on.set()
    waiting.join()
    assert Ledger(path).left() == 0


def test_what_cannot_be_reported_costs_nothing(broker: Broker, topic: str, path: Path) -> None:
    ledger = Ledger(path, budget=10)
    cases: list[tuple[Metric, Any, float, float | None, str]] = [
        (LATE, float("nan"), 1, None, "value nan of"),
        (LATE, 1.0, 0.1, None, "offers"),
        (LATE, 1.0, 1, -5, "1970"),
        (CARRIER, "Concorde", 1, None, "Concorde"),
    ]
    for metric, value, epsilon, moment, told in cases:
        with row(told), Reporter(metric, broker.config, topic=topic) as reporter:
            with pytest.raises(ValueError, match=told):
                reporter.report(value, epsilon=epsilon, time=moment, ledger=ledger)
            reporter.close()
            with pytest.raises(ValueError, match="closed"):
                reporter.report(1.0 if metric is LATE else "AA", epsilon=1, ledger=ledger)
            with pytest.raises(ValueError, match="closed"):
                reporter._send(PendingBatch(b"0" * 16, b"a", 1))
    assert spent(ledger) == 0


def test_a_metric_has_a_budget_of_its_own_beside_the_common_one(path: Path) -> None:
    ledger = Ledger(path, budget=2, metrics={"late": 1.5})
    ledger.spend("late", 1)
    with pytest.raises(BudgetSpent, match=r"the budget of 'late', 1\.5") as caught:
        ledger.spend("late", 1)
    assert caught.value.of_metric
    ledger.spend("carrier", 1)
    for name in ("carrier", "late"):
        with row(name), pytest.raises(BudgetSpent, match="the budget of all metrics"):
            ledger.spend(name, 0.5)
    assert [ledger.left(name) for name in ("late", "other", "")] == [0, 0, 0]


@settings(max_examples=20)
@given(steps=st.lists(st.tuples(st.integers(-30, 30), st.integers(1, 30)), max_size=40))
def test_no_stretch_of_a_period_costs_more_than_the_budget_whatever_the_clock_does(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]]
) -> None:
    clock = Clock(1_700_000_000.0)
    ledger = Ledger(tmp_path_factory.mktemp("any") / "ledger", budget=5, period="20s", clock=clock)
    seen = clock.now
    paid: list[tuple[float, int]] = []
    for seconds, tenths in steps:
        clock.now += seconds
        now = max(seen, clock.now)  # a clock that went back stands still
        recent = sum(cost for at, cost in paid if at > now - 20)
        if recent + tenths > 50:
            with pytest.raises(BudgetSpent) as caught:
                ledger.spend("late", Fraction(tenths, 10))
            assert caught.value.left == Fraction(50 - recent, 10)
        else:
            ledger.spend("late", Fraction(tenths, 10))
            seen = now
            paid.append((now, tenths))
    for end, _ in paid:
        assert sum(cost for at, cost in paid if end - 20 < at <= end) <= 50


def test_what_is_spent_by_a_clock_behind_is_free_no_earlier(path: Path, clock: Clock) -> None:
    ledger, first = Ledger(path, budget=1, clock=clock), clock.now
    ledger.spend("late", 0.5)
    clock.now = first - 12 * HOUR
    ledger.spend("late", 0.5)
    clock.now = first - 60
    with pytest.raises(BudgetSpent, match="the clock is 60 s behind the latest report"):
        ledger.spend("late", 0.5)
    clock.now = first + 12.5 * HOUR
    with pytest.raises(BudgetSpent) as caught:
        ledger.spend("late", 0.5)
    assert caught.value.free_at is not None
    assert caught.value.free_at.timestamp() == first + 24 * HOUR


def test_a_budget_can_be_changed_and_a_period_cannot(path: Path) -> None:
    Ledger(path, budget=1, period="1h").spend("late", 1)
    assert Ledger(path, budget=3).left() == 2
    assert Ledger(path).left() == 2
    assert Ledger(path, budget="0.5").left() == 0
    with pytest.raises(ValueError, match="period = '1d'"):
        Ledger(path, budget=1, period="1d")


def test_a_budget_that_cannot_be_counted_is_refused(path: Path) -> None:
    for budget in (0, -1, "much", 0.00001, float("nan"), float("inf")):
        with row(budget), pytest.raises(ValueError, match="budget = "):
            Ledger(path, budget=budget)
    assert not path.exists()


def test_the_file_can_be_read_by_its_owner_alone(path: Path) -> None:
    Ledger(path, budget=1)
    assert path.stat().st_mode & 0o077 == 0
    assert [each.name for each in path.parent.iterdir()] == ["ledger"]


# -- Files that cannot be used ----------------------------------------------------------------


def scribble(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[100:] = b"\xa5" * (len(data) - 100)
    path.write_bytes(bytes(data))


def foreign(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE settings (name, value)")


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 9")


def test_a_file_that_cannot_be_used_is_named_and_nothing_is_spent(path: Path) -> None:
    damages: list[tuple[Callable[[Path], object], str]] = [
        (lambda path: path.write_text("dear diary\n" * 100), "not a ledger"),
        (lambda path: path.write_bytes(b""), "not a ledger"),
        (foreign, "not a ledger"),
        (scribble, "damaged"),
        (newer, r"another version \(9\)"),
        (Path.unlink, "no such file"),
    ]
    for number, (damage, told) in enumerate(damages):
        own = path.with_name(str(number))
        ledger = Ledger(own, budget=2)
        damage(own)
        for use in (partial(ledger.spend, "late", 1), ledger.summary, partial(Ledger, own)):
            with row(number, told), pytest.raises(LedgerError, match=told) as caught:
                use()
            assert str(own) in str(caught.value)
            assert "nothing was reported" in str(caught.value)
    with pytest.raises(LedgerError, match="expected a writable folder"):
        Ledger(path / "ledger", budget=2)


def test_a_file_others_may_write_is_not_used(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, own = Ledger(path, budget=2), os.geteuid()
    beside = path.with_name("ledger-journal")
    for file, mode, user, told in (
        (path, 0o666, own, "ledger has mode 0666, .* expected 0600"),
        (path, 0o620, own, f"`chmod 600 {path}`"),
        (beside, 0o606, own, "ledger-journal has mode 0606"),
        (path, 0o600, own + 1, f"expected user {own + 1}'s own file, and not one of user {own}"),
    ):
        file.touch()
        file.chmod(mode)
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        with row(file.name, mode, user), pytest.raises(LedgerError, match=told):
            ledger.spend("late", 1)
        file.chmod(0o600)


WITHOUT_UNIX = """
import os, sys
for name in ("geteuid", "fork", "register_at_fork", "O_DIRECTORY"):
    delattr(os, name)
from producers.ledger.ledger import Ledger
ledger = Ledger(sys.argv[1], budget=2)
os.chmod(sys.argv[1], 0o666)
ledger.spend("late", 1)
"""


def test_where_files_have_no_owner_a_ledger_works(path: Path) -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_UNIX, str(path)], check=True, timeout=60)
    path.chmod(0o600)
    assert spent(Ledger(path)) == 1


def test_a_clock_beyond_the_calendar_leaves_the_file_usable(path: Path, clock: Clock) -> None:
    right, ledger = clock.now, Ledger(path, budget=2, period="2922000d", clock=clock)
    for wrong in (253_402_300_800.0, 1e300, float("inf"), float("nan")):
        clock.now = wrong
        for use in (partial(ledger.spend, "late", 1), ledger.accounts):
            with row(wrong), pytest.raises(LedgerError, match="before the year 10000: set the"):
                use()
    clock.now = right
    ledger.spend("late", 2)
    with pytest.raises(BudgetSpent, match="free again from 9999-12-31"):
        ledger.spend("late", 2)
    assert spent(ledger) == 2


def test_a_damaged_page_is_found_when_the_ledger_is_opened(path: Path) -> None:
    Ledger(path, budget=2)
    with closing(sqlite3.connect(path)) as database, database:
        rows = [(0, "late" * 20, 1, 1, None)] * 2_000
        database.executemany("INSERT INTO spent VALUES (?, ?, ?, ?, ?)", rows)
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 4096] = bytes(4096)
    path.write_bytes(bytes(data))
    with pytest.raises(LedgerError, match="damaged"):
        Ledger(path)


# -- Several at once ----------------------------------------------------------------------------


SPENDING = """
import sys
from producers.ledger.ledger import BudgetSpent, Ledger
ledger, done = Ledger(sys.argv[1], budget=1), 0
try:
    while True:
        ledger.spend("late", "0.02")
        done += 1
except BudgetSpent:
    print(done)
"""


def test_threads_share_one_account_and_sums_do_not_drift(path: Path) -> None:
    ledger, done = Ledger(path, budget=1), list[int]()

    def spend() -> None:
        while True:
            ledger.spend("late", 0.1)  # in doubles, ten times 0.1 is less than 1
            done.append(1)

    with ThreadPoolExecutor(4) as pool:
        for spending in [pool.submit(spend) for _ in range(4)]:
            assert isinstance(spending.exception(), BudgetSpent)
    assert len(done) == 10
    assert ledger.left() == 0
    with pytest.raises(BudgetSpent):
        ledger.spend("late", "0.0001")


def test_processes_share_one_account(path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SPENDING, str(path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    done = [int(process.communicate(timeout=60)[0]) for process in processes]
    assert sum(done) == 50
    assert Ledger(path).left() == 0


# -- In plain words -----------------------------------------------------------------------------


def test_the_ledger_tells_its_total_in_plain_words(path: Path, clock: Clock) -> None:
    ledger = Ledger(path, budget=2, metrics={"late": 1}, clock=clock)
    assert str(ledger) == (
        "In the last 24 hours this device gave no answers. 2 of 2 is left. 1 of 1 is left for late."
    )
    ledger.spend("late", 1)
    clock.now += 25 * HOUR
    ledger.spend("dep_delay", "1.5", reports=3)
    assert str(ledger) == (
        "In the last 24 hours this device gave 3 randomized answers about dep_delay (1.5). "
        "Anyone who has seen all of them can be at most e^1.5 = 4.5 times surer of anything about "
        "you than before. 0.5 of 2 is left. More is free again from 2023-11-16 23:13 UTC. 1 of 1 "
        "is left for late. Since 2023-11-14 it gave 4 randomized answers, at a total cost of 2.5."
    )
    account = ledger.accounts()["dep_delay"]
    assert (account.reports, account.spent, account.budget) == (3, Fraction(3, 2), None)
