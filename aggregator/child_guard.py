"""Ends child processes when this process ends, even if it is killed."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Sequence
from typing import Any

_GUARD_SCRIPT = """
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
"""The child leads a process group. Another process of the group, the guard, reads a pipe from this
process. The pipe closes when this process ends, even if it is killed: then the guard ends the
child."""


def start(command: Sequence[str], grace: int = 0, **options: Any) -> subprocess.Popen[bytes]:
    """Start and return a child process that ends with this process and does not receive Ctrl-C.

    The caller calls :func:`release` when the child has ended. `command`: the program and its
    arguments; `grace`: the seconds between SIGTERM and SIGKILL, where 0 kills the child at once;
    `options`: options of :class:`subprocess.Popen`; standard input is empty.
    """
    return subprocess.Popen(
        ["sh", "-c", _GUARD_SCRIPT, "sh", str(grace), *command],  # noqa: S607  (every POSIX system has sh)
        stdin=subprocess.PIPE,
        start_new_session=True,
        **options,
    )


def wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait until a child ends, and return True; after `seconds`, kill it and return False."""
    has_ended = True
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        has_ended = False
        process.kill()
        process.wait()
    release(process)
    return has_ended


def release(process: subprocess.Popen[bytes]) -> None:
    """End the process that guards a child, after the child has ended."""
    assert process.stdin is not None  # noqa: S101  (for the type checker)
    process.stdin.close()
    with contextlib.suppress(ChildProcessError):  # in a container the first process has reaped it
        os.waitpid(-process.pid, 0)
