"""Answers that a device gives at most once: to a round of a search, or as a true value in a pane.

The device does not trust the sender of a round: a search has the rounds of the first definition
that the device answered, and no other definition of this name starts the search again.

True values go to a trusted collector. A release protects a single report, so a device sends one
report per pane, under a fixed id. A second report, from a copied or restored ledger, has the same
id, and the collector counts only one of the two.
"""

from __future__ import annotations

import hashlib
import math
import os
import sqlite3
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from estimators.exact.randomness import Bits
from estimators.metrics.metric import Metric
from estimators.metrics.search import SearchMetric
from producers.ledger.accounts import PARTS_PER_EPSILON, parts_of
from producers.ledger.ledger import Ledger
from producers.ledger.past_answers import answer_once, check_pin, pin
from producers.wire.batch import BATCH_ID_BYTES

SECRET_BYTES = 32
_CREATE_TRUSTED = (
    "CREATE TABLE IF NOT EXISTS secret (word BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS trusted (metric TEXT PRIMARY KEY) WITHOUT ROWID",
)
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
    """
    if not 1 <= number <= metric.search.rounds:
        raise ValueError(f"round {number} of {metric.name!r}: expected 1 to {metric.search.rounds}")
    cost = metric.randomizer.epsilons[level]
    parts = math.ceil(cost * PARTS_PER_EPSILON)
    with ledger.transaction() as database:
        pin(database, metric)
        own_round, answered = _drawn_round(database, metric, bits)
        if number <= answered or own_round not in (EVERY_ROUND, number):
            return False
        ledger.pay(database, metric.name, parts)
        database.execute(
            "UPDATE rounds SET answered = ? WHERE metric = ? AND revision = ?",
            (number, metric.name, metric.revision),
        )
    return True


def _drawn_round(
    database: sqlite3.Connection, metric: SearchMetric, bits: Bits | None
) -> tuple[int, int]:
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


def entrusted(
    ledger: Ledger, metric: Metric, level: NDArray[np.uint8], times: NDArray[np.int64]
) -> list[bytes]:
    """Record and charge one person's reports, all or none; return the ids of their batches.

    A report costs its level's epsilon, the most that its pane's release reveals about it.

    Parameters
    ----------
    ledger, metric
        The person's ledger, and a metric with ``trust = "central"``.
    level, times : ndarray, shape (n,)
        Levels, and event times in ms; each time must be in a later pane than the one before.

    Raises
    ------
    AlreadyAnswered
        If the device has a report in one of the panes, or in a later one.
    DefinitionChanged, BudgetSpent, LedgerError
        As for :meth:`Ledger.spend`.
    """
    starts = [metric.pane_start(time) for time in times.tolist()]
    with ledger.transaction() as database:
        for schema in _CREATE_TRUSTED:
            database.execute(schema)
        check_pin(database, metric.name, metric.fingerprint)
        answer_once(database, metric, starts)
        for index in level.tolist():
            parts = parts_of(Fraction(metric.randomizer.epsilons[index]), "epsilon")
            ledger.pay(database, metric.name, parts)
        database.execute("INSERT OR IGNORE INTO trusted VALUES (?)", (metric.name,))
        secret = _secret(database)
    return [pseudonym(secret, metric.name, start) for start in starts]


def pseudonym(secret: bytes, metric: str, start: int) -> bytes:
    """Return a device's id in a pane; ids of different panes are like independent random bytes.

    `secret`: the device's secret; `metric`: the metric's name; `start`: the start of the pane in
    ms.
    """
    message = f"{metric} {start}".encode()
    return hashlib.blake2b(message, digest_size=BATCH_ID_BYTES, key=secret).digest()


def _secret(database: sqlite3.Connection) -> bytes:
    """Return the secret from which a device's pseudonyms follow; draw it at the first call."""
    row = database.execute("SELECT word FROM secret").fetchone()
    if row is None:
        row = (os.urandom(SECRET_BYTES),)
        database.execute("INSERT INTO secret VALUES (?)", row)
    return bytes(row[0])
