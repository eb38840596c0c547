"""The ledger's file: one SQLite database on the device, safe against crashes, threads and forks.

A connection lives for one transaction, so a fork copies no connection. A fork during another
thread's transaction waits (:data:`_TRANSACTION_LOCK`), because SQLite's record of its locks must
not be copied into a child that does not hold them.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

APPLICATION_ID = 0x44_6C_65_64
"""The number in the file's header that tells a ledger from other databases."""
SCHEMA_VERSION = 1
BUSY_SECONDS = 30.0
"""How many seconds a transaction waits for the transactions of other processes."""
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH

REENTERED_MESSAGE = (
    "used within a transaction of the same thread: expected that no clock, no source of randomness "
    "and no signal's handler uses it"
)

_FOREIGN_FILE = "this is not a ledger: expected a file that `Ledger` created"
_THREAD_STATE = threading.local()
"""Whether a thread is within a transaction: a second one would wait for the first for ever."""
_TRANSACTION_LOCK = threading.Lock()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_TRANSACTION_LOCK.acquire,
        after_in_parent=_TRANSACTION_LOCK.release,
        after_in_child=_TRANSACTION_LOCK.release,
    )


class LedgerError(RuntimeError):
    """Raised if the ledger cannot be used; nothing was reported.

    Attributes
    ----------
    path : Path
        The ledger's file.
    """

    def __init__(self, path: Path, detail: str) -> None:
        self.path, self.detail = path, detail
        super().__init__(f"ledger {path}: {detail}; nothing was reported")


def create(path: Path, period_ms: int, now_ms: int) -> None:
    """Create an empty ledger atomically, unless the file exists.

    `path`: the file; `period_ms`: the period of the budget; `now_ms`: the current time, in ms since
    the epoch. Raises LedgerError if the file cannot be created.
    """
    times = (
        f"INSERT INTO settings VALUES ('period_ms', {period_ms:d}), ('began_ms', {now_ms:d}), "  # noqa: S608
        f"('latest_ms', {now_ms:d});"
    )
    tables = tables_of(Path(__file__).with_name("ledger.sql"), APPLICATION_ID, SCHEMA_VERSION)
    with _explained_errors(path):
        try:
            create_database(path, "", tables + times)
        except OSError as error:
            problem = f"cannot be created ({error.strerror}): expected a writable folder"
            raise LedgerError(path, problem) from None


def tables_of(schema: Path, application_id: int, version: int) -> str:
    """Return SQL that creates tables, and marks a database as a file of ours.

    `schema`: the file with the tables; `application_id`, `version`: the numbers in the header.
    """
    header = f"PRAGMA application_id = {application_id}; PRAGMA user_version = {version};\n"
    return header + schema.read_text(encoding="ascii")


def create_database(path: Path, mode: str, schema: str) -> None:
    """Create a database atomically, readable by its owner alone, unless the file exists.

    `path`: the file; `mode`: SQL to run before the transaction that creates the tables; `schema`:
    SQL to run in it. Raises OSError or sqlite3.Error if the file cannot be created.
    """
    if path.exists():
        return
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # mode 0600
    os.close(handle)
    try:
        with closing(sqlite3.connect(name, isolation_level=None)) as database:
            database.execute("PRAGMA synchronous = EXTRA")
            database.execute(mode)
            database.executescript(f"BEGIN;{schema}COMMIT;")
        with suppress(FileExistsError):  # another process was faster
            os.link(name, path)  # unlike a rename it never replaces another process's file
    finally:
        Path(name).unlink()
    if hasattr(os, "O_DIRECTORY"):  # not on Windows
        folder = os.open(path.parent, os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def fault_of_owner(path: Path) -> str:
    """Return why a device must not trust a file or SQLite's files beside it; "" if it may do so.

    Anyone who can write the file can forge the device's memory. Where files have no owner or mode,
    as on Windows, nothing is checked.
    """
    if not hasattr(os, "geteuid"):
        return ""
    for file in (path, *(path.with_name(path.name + end) for end in ("-journal", "-wal", "-shm"))):
        try:
            status = file.stat()
        except OSError:
            continue
        if status.st_uid != os.geteuid():
            expected = f"user {os.geteuid()}'s own file, and not one of user {status.st_uid}"
            return f"{file.name}: expected {expected}: use another path, or run as that user"
        if status.st_mode & WRITABLE_BY_OTHERS:
            mode = stat.S_IMODE(status.st_mode)
            return (
                f"{file.name} has mode {mode:04o}, so others may have changed it: expected 0600. "
                f"If nobody has, `chmod 600 {file}`; else move it away, and begin with a new one"
            )
    return ""


@contextmanager
def transaction(path: Path, *, write: bool) -> Iterator[sqlite3.Connection]:
    """Provide the database for one transaction, which is on disk at the end or rolled back.

    Raises LedgerError if the file is missing, foreign, damaged or read-only, another user's or
    writable by others, the disk is full, another process or thread keeps the file locked, or this
    thread is within a transaction already.
    """
    if fault := fault_of_owner(path):
        raise LedgerError(path, fault)
    if getattr(_THREAD_STATE, "is_within", False):
        raise LedgerError(path, REENTERED_MESSAGE)
    address = f"{path.absolute().as_uri()}?mode=rw"  # also to read, which may have to undo a crash
    with _one_at_a_time(path), _explained_errors(path):
        database = sqlite3.connect(address, uri=True, isolation_level=None, timeout=BUSY_SECONDS)
        with closing(database):
            # the folder is synced, too, when the journal is deleted: a commit survives a power cut
            database.execute("PRAGMA synchronous = EXTRA")
            database.execute("PRAGMA secure_delete = ON")
            database.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            if fault := fault_of_content(database, APPLICATION_ID, SCHEMA_VERSION, _FOREIGN_FILE):
                raise LedgerError(path, fault)
            yield database
            database.execute("COMMIT")


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    _THREAD_STATE.is_within = True
    try:
        if not _TRANSACTION_LOCK.acquire(timeout=BUSY_SECONDS):
            raise LedgerError(path, "another thread keeps it, or another ledger, locked: try again")
        try:
            yield
        finally:
            _TRANSACTION_LOCK.release()
    finally:
        _THREAD_STATE.is_within = False


def has_table(database: sqlite3.Connection, name: str) -> bool:
    """Return whether a ledger has a table; some tables are created on first use."""
    row = database.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (name,)
    ).fetchone()
    return row is not None


def fault_of_content(
    database: sqlite3.Connection, application_id: int, version: int, foreign: str
) -> str:
    """Return why a database is not of the expected kind and version; "" if it is.

    `database`: the database; `application_id`, `version`: what its header should say; `foreign`:
    what to return for a database of another kind.
    """
    (identity,) = database.execute("PRAGMA application_id").fetchone()
    (stored,) = database.execute("PRAGMA user_version").fetchone()
    if identity != application_id:
        return foreign
    return "" if stored == version else f"created by another version ({stored}): expected {version}"


@contextmanager
def _explained_errors(path: Path) -> Iterator[None]:
    """Turn an error of SQLite within the block into a LedgerError that says what to do."""
    try:
        yield
    except sqlite3.Error as error:
        remedies = {
            "not a database": _FOREIGN_FILE,
            "malformed": f"the file is damaged ({error}): restore it, or create a new one "
            "elsewhere",
            "unable to open": "no such file, or no permission to open it: give `Ledger` a budget "
            "to create one, and check the permissions of its folder",
        }
        raise LedgerError(path, explain_sqlite_error(error, remedies)) from None


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
