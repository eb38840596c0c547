"""Explains what SQLite's errors mean for the files of a device, and what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

BUSY_SECONDS = 30.0
"""How many seconds a transaction waits for the transactions of other processes."""


def explain_sqlite_error(error: sqlite3.Error, remedies: Mapping[str, str]) -> str:
    """Return what an error means, and what to do.

    Examples
    --------
    >>> explain_sqlite_error(sqlite3.OperationalError("database or disk is full"), {})
    'the disk is full: free space'
    """
    message = str(error)
    common = {
        "full": "the disk is full: free space",
        "readonly": "the file or its folder is read-only: expected both to be writable",
        "locked": "another process keeps it locked: try again",
    }
    for words, remedy in (*remedies.items(), *common.items()):
        if words in message:
            return remedy
    return f"SQLite failed: {message}"
