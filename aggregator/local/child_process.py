"""A child process of a local deployment, with its last output and the way it ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence

from aggregator import child_guard

MAX_SHOWN_LINES = 10
LAST_LINES_SECONDS = 1.0


class Child:
    """A child process; its error output is copied to that of this process.

    Parameters
    ----------
    name : str
        The name of the process, for messages.
    command, grace, env
        Passed to :func:`aggregator.child_guard.start`.
    """

    def __init__(
        self, name: str, command: Sequence[str], grace: int, env: Mapping[str, str]
    ) -> None:
        self.name = name
        self.process = child_guard.start(
            command, grace, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        self._last: deque[str] = deque(maxlen=MAX_SHOWN_LINES)
        self._reader = threading.Thread(target=self._read, name=f"errors of {name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None  # noqa: S101  (for the type checker)
        for line in self.process.stderr:
            text = line.decode(errors="replace").rstrip("\n")
            self._last.append(text)
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    def describe_end(self) -> str:
        """Return how the process ended, with its last lines of output; "" while it runs."""
        code = self.process.poll()
        if code is None:
            return ""
        self._reader.join(LAST_LINES_SECONDS)
        lines = "".join(f"\n  {line}" for line in list(self._last))
        output = f"; its last lines:{lines}" if lines else ", without any output"
        return f"{self.name} (process {self.process.pid}) {describe_exit(code)}{output}"

    def stop(self, seconds: float) -> None:
        """Terminate the process, and kill it if it still runs after `seconds`."""
        self.process.terminate()
        child_guard.wait(self.process, seconds)


def describe_exit(code: int) -> str:
    """Return how a process ended, given its exit code as :mod:`subprocess` returns it.

    Examples
    --------
    >>> describe_exit(1), describe_exit(-15)
    ('has ended with exit code 1', 'was ended by SIGTERM (exit code -15)')
    >>> describe_exit(-9)
    'was ended by SIGKILL (exit code -9; usually for lack of memory)'
    """
    if code >= 0:
        return f"has ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    why = "; usually for lack of memory" if -code == signal.SIGKILL else ""
    return f"was ended by {name} (exit code {code}{why})"
