"""The file of a queue: a SQLite database that survives crashes and is closed around forks.

The file is in write-ahead mode. An ordinary commit survives the end of the process, and does not
wait for the disk; a durable commit also survives a power cut, with all commits before it.
"""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from producers.ledger import ledger_file

APPLICATION_ID = 0x44_6C_71_75
"""The number in the file's header that tells a queue from other databases."""
QUEUE_VERSION = 1
IN_MEMORY = "(memory)"
RETRY_SECONDS = 0.01
ERASING_MS = 100
"""How long (ms) a commit waits for readers of the log; if they stay, the log is emptied later."""

_CREATE_QUEUE = ledger_file.tables_of(
    Path(__file__).with_name("queue.sql"), APPLICATION_ID, QUEUE_VERSION
)


class QueueError(RuntimeError):
    """Raised if the file of waiting reports cannot be used.

    Attributes
    ----------
    path : Path or None
        The file's path; None for a queue in memory.
    """

    def __init__(self, path: Path | None, detail: str) -> None:
        self.path, self.detail = path, detail
        super().__init__(f"queue {path or IN_MEMORY}: {detail}")


class QueueFile:
    """A queue's database, which the threads of a process share; without a path it is in memory.

    It is closed before a fork; parent and child open it again. Only the file's owner can read it.
    Raises QueueError if the file is damaged, foreign, another user's or writable by others, or
    cannot be opened.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._lock, self._holder = threading.Lock(), 0
        self._database: sqlite3.Connection | None = None
        self._inode, self._is_gone, self._is_closed = 0, False, False
        self._is_log_empty = True
        if path is not None:
            try:
                ledger_file.create_database(path, "PRAGMA journal_mode = WAL", _CREATE_QUEUE)
            except OSError as error:
                problem = f"cannot be created ({error.strerror}): expected a writable folder"
                raise QueueError(path, problem) from None
            except sqlite3.Error as error:
                raise QueueError(path, _explained(error)) from None
        with self.transaction() as database:
            if (fault := database.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
                raise QueueError(path, _damaged(str(fault)))
        with _FILES_LOCK:
            _OPEN_FILES.add(self)

    @contextmanager
    def transaction(
        self,
        *,
        durable: bool = False,
        erasing: bool = False,
        write: bool = True,
        deadline: float = math.inf,
    ) -> Iterator[sqlite3.Connection]:
        """Provide the database for a transaction, which is committed at the end or rolled back.

        Parameters
        ----------
        durable : bool
            Whether this commit, and all earlier ones, must be on disk when this returns.
        erasing : bool
            As `durable`; in addition, no file contains the deleted or replaced data afterwards. If
            another connection is reading the log then, this holds only after the next transaction,
            opening or closing of the file during which none is.
        write : bool
            Whether the transaction writes; otherwise it does not wait for writers.
        deadline : float
            Until when to wait for other processes, in monotonic seconds, but at most 30 seconds.

        Raises
        ------
        QueueError
            If the file cannot be used or was removed, or if this thread is in a transaction.
        """
        begin = "BEGIN IMMEDIATE" if write else "BEGIN"
        give_up_at = min(deadline, time.monotonic() + ledger_file.BUSY_SECONDS)
        if self._holder == threading.get_ident():
            raise QueueError(self.path, ledger_file.REENTERED_MESSAGE)
        try:
            database = self._begin_transaction(begin, give_up_at, is_durable=durable or erasing)
            try:
                yield database
                database.execute("COMMIT")
                if erasing or not self._is_log_empty:
                    self._is_log_empty = _empty_log(database, ERASING_MS if erasing else 0)
            except BaseException:
                with suppress(sqlite3.Error):
                    database.execute("ROLLBACK")
                raise
            finally:
                self._holder = 0
                self._lock.release()
        except sqlite3.Error as error:
            raise QueueError(self.path, _explained(error)) from None

    def _begin_transaction(
        self, begin: str, give_up_at: float, *, is_durable: bool
    ) -> sqlite3.Connection:
        """Begin a transaction with the lock held; release it while waiting for other processes."""
        while True:
            self._lock.acquire()
            try:
                database = self._checked_database()
                database.execute(f"PRAGMA synchronous = {'FULL' if is_durable else 'NORMAL'}")
                database.execute(begin)
            except BaseException as error:
                self._lock.release()
                if not _is_busy(error) or self._is_closed or time.monotonic() >= give_up_at:
                    raise
            else:
                self._holder = threading.get_ident()
                return database
            time.sleep(RETRY_SECONDS)

    def empty_log(self) -> None:
        """Make the commit of the current transaction erase the deleted data from the log."""
        self._is_log_empty = False

    def close(self) -> None:
        """Close the database; a queue in memory is lost, and accepts nothing more.

        Later transactions on the file do not wait for other processes.
        """
        self._is_closed = True
        with self._lock:
            self._close()
            self._is_gone = self.path is None

    def _checked_database(self) -> sqlite3.Connection:
        if self.path is not None and self._inode:
            try:
                inode = self.path.stat().st_ino
            except OSError:
                inode = -1
            if inode != self._inode:
                self._close()
                problem = (
                    "the file was removed or replaced while it was in use: its reports are lost"
                )
                raise QueueError(self.path, f"{problem}; open a new reporter")
        if self._is_gone:
            raise QueueError(self.path, "closed: its reports are lost; open a new reporter")
        if self._database is None:
            self._database = self._open()
        return self._database

    def _open(self) -> sqlite3.Connection:
        if self.path is None:
            database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            database.executescript(_CREATE_QUEUE)
            return database
        if fault := ledger_file.fault_of_owner(self.path):
            raise QueueError(self.path, fault)
        address = f"{self.path.absolute().as_uri()}?mode=rw"
        database = sqlite3.connect(
            address, uri=True, isolation_level=None, timeout=0.0, check_same_thread=False
        )
        try:
            if fault := ledger_file.fault_of_content(
                database, APPLICATION_ID, QUEUE_VERSION, _FOREIGN_FILE
            ):
                raise QueueError(self.path, fault)  # noqa: TRY301
            database.execute("PRAGMA secure_delete = ON")
            self._is_log_empty = _empty_log(database)  # the log of a process that was killed
            self._inode = self._inode or self.path.stat().st_ino
        except BaseException:
            database.close()
            raise
        return database

    def _close(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            if not self._is_log_empty:
                _empty_log(database)
            database.close()

    # -- Around a fork ----------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Wait for the transaction under way, and close the file."""
        self._lock.acquire()
        if self.path is not None:
            self._close()

    def after_fork(self) -> None:
        """Allow transactions again, in the parent and in the child."""
        self._lock.release()


def _empty_log(database: sqlite3.Connection, wait_ms: int = 0) -> bool:
    """Move the write-ahead log into the file, because the log may contain deleted data.

    Returns
    -------
    bool
        Whether the log is empty; False if another connection reads it.
    """
    try:
        database.execute(f"PRAGMA busy_timeout = {wait_ms}")
        busy, *_ = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        database.execute("PRAGMA busy_timeout = 0")
    except sqlite3.Error:  # the commit is done
        return False
    return not busy


def _is_busy(error: BaseException) -> bool:
    """Return whether an error says that another process uses the file."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return code & 0xFF == sqlite3.SQLITE_BUSY  # the rest says why


_OPEN_FILES: weakref.WeakSet[QueueFile] = weakref.WeakSet()
_FORKING_FILES: list[QueueFile] = []
_FILES_LOCK = threading.Lock()


def _before_fork() -> None:
    _FILES_LOCK.acquire()
    _FORKING_FILES.extend(_OPEN_FILES)
    for file in _FORKING_FILES:
        file.before_fork()


def _after_fork() -> None:
    while _FORKING_FILES:
        _FORKING_FILES.pop().after_fork()
    _FILES_LOCK.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)

_FOREIGN_FILE = "this is not a queue of reports: expected a file that a reporter created"


def _damaged(damage: str) -> str:
    return (
        f"the file is damaged ({' '.join(damage.split())}): restore it, or move it away to begin "
        "with an empty one; the reports in it are then lost"
    )


def _explained(error: sqlite3.Error) -> str:
    return ledger_file.explain_sqlite_error(
        error,
        {
            "not a database": _FOREIGN_FILE,
            "malformed": _damaged(str(error)),
            "unable to open": "no such file, or no permission to open it",
        },
    )
