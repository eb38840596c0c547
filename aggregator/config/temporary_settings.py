"""The settings file of a running `dither up`, which remains if the process is killed."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

FILE_MARK = "# Written by `dither up`, and removed when it ends: where its servers are.\n"


def is_written_by_up(file: Path) -> bool:
    """Return whether `dither up` wrote this file."""
    with contextlib.suppress(OSError), file.open("rb") as settings_file:
        return settings_file.read(len(FILE_MARK.encode())) == FILE_MARK.encode()
    return False


def is_abandoned(file: Path) -> bool:
    """Return whether a killed `dither up` left this file; a running `dither up` locks its file."""
    if not is_written_by_up(file):
        return False
    with contextlib.suppress(OSError), file.open("rb") as settings_file:
        fcntl.flock(settings_file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    return False


@contextlib.contextmanager
def write_locked(file: Path, text: str) -> Iterator[None]:
    """Write a file with FILE_MARK and a text, and lock it; remove it at the end of the context.

    Raises FileExistsError if the file exists.
    """
    with file.open("x", encoding="utf-8") as fresh:
        fcntl.flock(fresh, fcntl.LOCK_EX)  # before the mark is written, as readers trust it
        fresh.write(FILE_MARK + text)
        fresh.flush()
        try:
            yield
        finally:
            file.unlink(missing_ok=True)
