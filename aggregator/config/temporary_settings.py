"""The settings file of a running `dither up`; it remains if the process is killed."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

MARK = "# Written by `dither up`, and removed when it ends: where its servers are.\n"


def is_ours(file: Path) -> bool:
    """Return whether `dither up` wrote a file."""
    with contextlib.suppress(OSError), file.open("rb") as found:
        return found.read(len(MARK.encode())) == MARK.encode()
    return False


def is_left_over(file: Path) -> bool:
    """Return whether `dither up` wrote a file and has ended since, without removing it.

    It holds a lock on the file for as long as it lives, however it ends.
    """
    if not is_ours(file):
        return False
    with contextlib.suppress(OSError), file.open("rb") as found:
        fcntl.flock(found, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    return False


@contextlib.contextmanager
def written(file: Path, text: str) -> Iterator[None]:
    """Have a file with the mark and a text, locked, until this ends.

    Raises
    ------
    FileExistsError
        If there is one already.
    """
    with file.open("x", encoding="utf-8") as fresh:
        fcntl.flock(fresh, fcntl.LOCK_EX)  # before the mark is there
        fresh.write(MARK + text)
        fresh.flush()
        try:
            yield
        finally:
            file.unlink(missing_ok=True)
