"""The lottery of a ledger: in each turn, a device draws by tickets which metric it answers.

The application chooses how likely each metric is, by its tickets. The draw is made before the value
is known, from the system's randomness, and is stored, so that no event, server or restart changes
it.
"""

from __future__ import annotations

import dataclasses
import itertools
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from estimators.durations import above_zero
from estimators.exact.randomness import Bits, SystemBits
from estimators.exact.sampling import uniform_below
from estimators.metrics.validation import NAME_PATTERN
from producers.ledger.accounts import describe_period, utc_time
from producers.ledger.ledger_file import LedgerError, has_table
from producers.ledger.past_answers import AlreadyAnswered

DAY_MS = 86_400_000
KEPT_MS = 62 * DAY_MS
"""How long a draw is stored. An older turn is never drawn again."""
LONGEST_TURN_MS = 31 * DAY_MS
MOST_TICKETS = 2**24
"""Up to this number, a draw takes 32 bits of a word (`estimators.exact.sampling.uniform_below`)."""
TURN_SETTING = "turn_ms"
_AS_IN = ', as in tickets={"late": 5, "country": 31}'

_CREATE_TABLES = (
    "CREATE TABLE IF NOT EXISTS tickets (metric TEXT PRIMARY KEY, tickets INTEGER NOT NULL) "
    "WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS turns (start_ms INTEGER PRIMARY KEY, metric TEXT NOT NULL, "
    "is_paid INTEGER NOT NULL)",
)


class Turn(NamedTuple):
    """A turn's draw: the metric that it answers, and whether it was paid for."""

    metric: str
    is_paid: bool


@dataclasses.dataclass(frozen=True)
class Lottery:
    """The length of a turn in ms, and the tickets of each metric, in the order of names."""

    turn_ms: int
    tickets: Mapping[str, int]

    def draw(self, bits: Bits | None = None) -> str:
        """Return a metric, drawn with probability proportional to its tickets.

        Examples
        --------
        >>> from estimators.exact.randomness import SeededBits
        >>> lottery, bits = Lottery(DAY_MS, {"country": 3, "late": 1}), SeededBits(1)
        >>> [lottery.draw(bits) for _ in range(5)]
        ['country', 'country', 'late', 'country', 'late']
        """
        bound = np.array([sum(self.tickets.values())], dtype=np.uint64)
        drawn = int(uniform_below(SystemBits() if bits is None else bits, bound)[0])
        ends = itertools.accumulate(self.tickets.values())
        return next(name for name, end in zip(self.tickets, ends, strict=True) if drawn < end)


def describe_lottery(lottery: Lottery, present: Turn | None) -> str:
    """Return a sentence on what a ledger's lottery does, and what it drew for the present turn.

    `lottery`: the lottery; `present`: the draw of the present turn; None if nothing is drawn yet.
    """
    total = sum(lottery.tickets.values())
    shares = ", ".join(f"{name} {count}" for name, count in lottery.tickets.items())
    drawn = "not drawn yet" if present is None else present.metric
    return (
        f"Every {describe_period(lottery.turn_ms)} this device draws one question by itself, from "
        f"{total} tickets ({shares}), and answers no other; now: {drawn}."
    )


def check_tickets(tickets: Mapping[str, int]) -> dict[str, int]:
    """Return the tickets in the order of names.

    Raises ValueError if a name or a number cannot be used.
    """
    if not isinstance(tickets, Mapping):
        raise ValueError(f"tickets = {tickets!r}: expected a mapping{_AS_IN}")
    for metric, count in tickets.items():
        if not isinstance(metric, str) or NAME_PATTERN.fullmatch(metric) is None:
            raise ValueError(f"tickets of {metric!r}: expected the name of a metric")
        if type(count) is not int or count < 1:
            raise ValueError(f"tickets of {metric!r} = {count!r}: expected a whole number above 0")
    if not 0 < sum(tickets.values()) <= MOST_TICKETS:
        raise ValueError(
            f"{sum(tickets.values())} tickets: expected 1 to {MOST_TICKETS} in all{_AS_IN}"
        )
    return dict(sorted(tickets.items()))


def store_lottery(
    database: sqlite3.Connection,
    period_ms: int,
    turn: str | None,
    tickets: Mapping[str, int] | None,
) -> None:
    """Store the length of a turn, which is fixed, and the tickets for turns not drawn yet.

    `database`: a transaction of the ledger; `period_ms`: the period of the budget; `turn`: the
    length of a turn; `tickets`: the tickets by metric; a value of None keeps what is stored. Raises
    ValueError if the ledger cannot have this turn or these tickets.
    """
    if not isinstance(turn, str | None):
        raise ValueError(f"turn = {turn!r}: expected a duration, as in turn='1d'")
    stored_lottery = read_lottery(database)
    turn_ms = None if turn is None else above_zero("turn", turn)
    if stored_lottery is None:
        if turn_ms is None or tickets is None:
            raise ValueError(f"turn = {turn!r}, tickets = {tickets!r}: expected both, or neither")
        if not period_ms <= turn_ms <= LONGEST_TURN_MS:
            raise ValueError(
                f"turn = {turn!r}: expected at least the ledger's period, {period_ms} ms, and at "
                "most 31d; devices that are on once a day need period='20h' for turn='1d'"
            )
        if database.execute("SELECT 1 FROM answers").fetchone() is not None:
            raise ValueError("this ledger repeats answers: expected another file for a lottery")
        for schema in _CREATE_TABLES:
            database.execute(schema)
        database.execute("INSERT INTO settings VALUES (?, ?)", (TURN_SETTING, turn_ms))
    elif turn_ms not in (None, stored_lottery.turn_ms):
        raise ValueError(
            f"turn = {turn!r}: this ledger has turns of {stored_lottery.turn_ms} ms; leave turn "
            "out, or create another file"
        )
    if tickets is not None:
        rows = check_tickets(tickets).items()
        database.execute("DELETE FROM tickets")
        database.executemany("INSERT INTO tickets VALUES (?, ?)", rows)


def read_lottery(database: sqlite3.Connection) -> Lottery | None:
    """Return the lottery of a ledger; None if it has none."""
    if not has_table(database, "tickets"):
        return None
    (turn_ms,) = database.execute(
        "SELECT value FROM settings WHERE name = ?", (TURN_SETTING,)
    ).fetchone()
    rows = database.execute("SELECT metric, tickets FROM tickets ORDER BY metric")
    return Lottery(turn_ms, dict(rows.fetchall()))


def read_turn(database: sqlite3.Connection, start_ms: int) -> Turn | None:
    """Return the draw of the turn that begins at a time; None if nothing is drawn yet."""
    row = database.execute(
        "SELECT metric, is_paid FROM turns WHERE start_ms = ?", (start_ms,)
    ).fetchone()
    return None if row is None else Turn(row[0], bool(row[1]))


def drawn_turn(
    database: sqlite3.Connection, path: Path, now: int, start_ms: int, bits: Bits | None
) -> Turn:
    """Return the draw of a turn; draw and store its metric if that was not done before.

    `database`: a transaction of the ledger, whose time does not change; `path`: the ledger's file;
    `now`: the ledger's time in ms; `start_ms`: the start of the turn; `bits`: the source of
    randomness.
    Raises ValueError if the ledger has no lottery, or no turn begins at that time. Raises
    LedgerError if the turn is in the future or too old, because a clock is wrong.
    """
    lottery = read_lottery(database)
    if lottery is None or start_ms % lottery.turn_ms:
        raise ValueError(f"ledger {path} has no turn that begins at {start_ms} ms")
    if (turn := read_turn(database, start_ms)) is not None:
        return turn
    if not now - KEPT_MS < start_ms <= now:
        raise LedgerError(
            path,
            f"the clock asks about {utc_time(start_ms):%Y-%m-%d}, and the ledger's time is "
            f"{utc_time(now):%Y-%m-%d}: expected a turn of the last 62 days. Set the clock right; "
            "if it was ahead once, begin with a new file",
        )
    metric = lottery.draw(bits)
    database.execute("INSERT INTO turns VALUES (?, ?, 0)", (start_ms, metric))
    return Turn(metric, is_paid=False)


def claim_turn(
    database: sqlite3.Connection, path: Path, now: int, start_ms: int | None, metric: str
) -> None:
    """Record that a turn is paid for, and delete old turns; without a lottery, do nothing.

    `database`: a transaction that charges the metric; `path`: the ledger's file; `now`: the
    ledger's time in ms; `start_ms`: the start of the turn; None if the charge is for no turn;
    `metric`: the metric's name. Raises ValueError if the ledger has a lottery, and the turn is not
    over, or drew another metric, or `start_ms` is None. Raises AlreadyAnswered if the turn is
    already paid for.
    """
    lottery = read_lottery(database)
    if lottery is None:
        return
    turn = None if start_ms is None else read_turn(database, start_ms)
    if (
        start_ms is None
        or turn is None
        or turn.metric != metric
        or now < start_ms + lottery.turn_ms
    ):
        raise ValueError(
            f"ledger {path} has a lottery, so it pays for nothing but the metric that it drew for "
            f"a turn, once the turn is over: report {metric!r} by a RollUp whose window is the "
            "turn, or with another ledger; nothing was reported"
        )
    if turn.is_paid:
        raise AlreadyAnswered(metric, start_ms + lottery.turn_ms)
    database.execute("UPDATE turns SET is_paid = 1 WHERE start_ms = ?", (start_ms,))
    database.execute("DELETE FROM turns WHERE start_ms <= ?", (now - KEPT_MS,))
