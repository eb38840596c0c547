"""Ends child processes when this process ends, even if it is killed."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from typing import Any

_SCRIPT = """
grace=$1; shift
exec 3<&0
(
  trap "" TERM
  cat <&3
  kill -0 $$ && kill -TERM $$
  while [ "$grace" -gt 0 ] && kill -0 $$; do sleep 1; grace=$((grace - 1)); done
  kill -KILL 0
) >/dev/null 2>&1 &
exec "$@" 3<&- </dev/null
"""
"""The child leads a process group of its own. The group's other member waits for the end of a pipe
whose other end this process alone has: that comes even when it is killed. It then ends the child,
also one that is frozen."""


def start(command: Sequence[str], grace: int = 0, **options: Any) -> subprocess.Popen[bytes]:
    """Start a child process, out of Ctrl-C's reach, that ends when this process does.

    Parameters
    ----------
    command : sequence of str
    grace : int
        Seconds that the child has, after SIGTERM, before it is killed; 0: it is killed at once.
    options
        Of :class:`subprocess.Popen`. Standard input is empty.

    Returns
    -------
    Popen
        Of the child itself. When it has ended, call :func:`release`.
    """
    return subprocess.Popen(
        ["sh", "-c", _SCRIPT, "sh", str(grace), *command],  # noqa: S607  (every POSIX system has sh)
        stdin=subprocess.PIPE,
        start_new_session=True,
        **options,
    )


def release(process: subprocess.Popen[bytes]) -> None:
    """End what watches over a child that has ended."""
    assert process.stdin is not None  # noqa: S101  (for the type checker)
    process.stdin.close()
    with contextlib.suppress(ChildProcessError):  # in a container: who is the first process reaps
        os.waitpid(-process.pid, 0)
