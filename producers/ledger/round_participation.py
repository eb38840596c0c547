"""Records in the ledger which rounds a device answers, and which it has answered.

The device does not trust the sender of a round: a search has the rounds of the first definition
that the device answered, and no other definition of this name starts the search again.
"""

from __future__ import annotations

import math
import sqlite3

from estimators.exact.randomness import Bits
from estimators.metrics.search import SearchMetric
from producers.ledger.accounts import PARTS_PER_EPSILON
from producers.ledger.ledger import Ledger
from producers.ledger.pinned_definitions import pin

_CREATE_ROUNDS = """
CREATE TABLE IF NOT EXISTS rounds (
    metric TEXT NOT NULL, revision INTEGER NOT NULL, own INTEGER NOT NULL,
    answered INTEGER NOT NULL, PRIMARY KEY (metric, revision)
)"""
EVERY_ROUND = 0
"""Stored instead of a drawn round for a device that answers all rounds."""


def claim_round(
    ledger: Ledger, metric: SearchMetric, number: int, level: int, bits: Bits | None = None
) -> bool:
    """Return whether this device answers a round now; if so, charge the answer, durably.

    A crash after that loses the answer, so no round is answered twice. If the users are split over
    the rounds, the device draws its round when it is first asked. If the budget is split, an answer
    costs epsilon / rounds, rounded up to the ledger's unit.

    `ledger`, `metric`: the device's ledger and the metric; `number`: the number of the round, from
    1 on; `level`: the index of the answer's level; `bits`: the source of randomness. Raises
    ValueError if the metric has no such round. Raises DefinitionChanged if the ledger has a search
    of this name with another definition. Raises BudgetSpent, LedgerError like :meth:`Ledger.spend`;
    the round is not answered then.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from estimators import define
    >>> metric = define(name="age", kind="maximum", range=(0, 128), levels=[1], rounds=7)
    >>> with TemporaryDirectory() as folder:
    ...     ledger = Ledger(f"{folder}/ledger", budget=2)
    ...     turns = [claim_round(ledger, metric, number, 0) for number in range(1, 8)]
    ...     again = [claim_round(ledger, metric, number, 0) for number in range(1, 8)]
    >>> sum(turns), sum(again)
    (1, 0)
    """
    if not 1 <= number <= metric.search.rounds:
        raise ValueError(f"round {number} of {metric.name!r}: expected 1 to {metric.search.rounds}")
    cost = metric.randomizer.epsilons[level]
    parts = math.ceil(cost * PARTS_PER_EPSILON)
    with ledger.transaction() as database:
        pin(database, metric)
        own_round, answered = _turn(database, metric, bits)
        if number <= answered or own_round not in (EVERY_ROUND, number):
            return False
        ledger.pay(database, metric.name, parts)
        database.execute(
            "UPDATE rounds SET answered = ? WHERE metric = ? AND revision = ?",
            (number, metric.name, metric.revision),
        )
    return True


def _turn(database: sqlite3.Connection, metric: SearchMetric, bits: Bits | None) -> tuple[int, int]:
    """Return the round that the device drew for a metric, and the last that it answered."""
    database.execute(_CREATE_ROUNDS)
    key = (metric.name, metric.revision)
    row = database.execute(
        "SELECT own, answered FROM rounds WHERE metric = ? AND revision = ?", key
    ).fetchone()
    if row is None:
        is_split = metric.split == "users"
        own_round = 1 + int(metric.search.own_round(1, bits)[0]) if is_split else EVERY_ROUND
        row = (own_round, 0)
        database.execute("INSERT INTO rounds VALUES (?, ?, ?, ?)", (*key, *row))
    return int(row[0]), int(row[1])
