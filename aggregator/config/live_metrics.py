"""Reads the file of definitions again when it changes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import structlog

from aggregator.config.definitions import Definitions
from estimators import DefinitionError, Metric

LOOK_SECONDS = 1.0
UNUSABLE = "unusable"
"""In a partition's owner's hash: why its worker cannot use its file as it is now."""

log = structlog.get_logger("dither.definitions")


class LiveMetrics(Mapping[str, Metric]):
    """Metrics by name, as a file defines them; :meth:`refresh` takes a change over.

    Whoever iterates sees the definitions of one moment. A file that cannot be used changes nothing:
    the error is logged and kept, and the definitions before it stay in force.

    Parameters
    ----------
    path : path
        Of a ``metrics.toml``.

    Attributes
    ----------
    unusable : str
        Why the file as it is now cannot be used; empty while it can.

    Raises
    ------
    DefinitionError, FileNotFoundError
        If the file cannot be used at first.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._stamp = self._look()
        self._metrics = Definitions.load(self._path)
        self._lock = threading.Lock()
        self._is_forced = False
        self.unusable = ""

    def __getitem__(self, name: str) -> Metric:
        """Return a metric."""
        return self._metrics[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of now."""
        return iter(self._metrics)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._metrics)

    def ask(self, *_: object) -> None:
        """Have the next :meth:`refresh` read the file in any case; safe in a signal handler."""
        self._is_forced = True

    def refresh(self) -> bool:
        """Look at the file, and take over what changed in it; return whether anything did."""
        with self._lock:
            stamp = self._look()
            if stamp == self._stamp and not self._is_forced:
                return False
            self._stamp, self._is_forced = stamp, False
            try:
                fresh = Definitions.load(self._path)
            except (DefinitionError, OSError) as error:
                reason = f"{self._path}: {error.strerror}" if isinstance(error, OSError) else error
                self.unusable = str(reason)
                log.error("definitions not reloaded", error=self.unusable)  # noqa: TRY400
                return False
            self.unusable = ""
            if fresh.is_same(self._metrics):
                return False
            added, gone = fresh.keys() - self._metrics.keys(), self._metrics.keys() - fresh.keys()
            changed = {name for name in fresh.keys() - added if fresh[name] != self._metrics[name]}
            before, self._metrics = self._metrics, fresh
        redefined = {n for n in changed if fresh[n].revision != before[n].revision}
        tell = log.warning if gone or redefined else log.info  # reports of these are refused
        tell(
            "definitions reloaded",
            file=str(self._path),
            added=sorted(added),
            changed=sorted(changed),
            removed=sorted(gone),
        )
        return True

    def _look(self) -> tuple[int, int, int] | None:
        """Return what tells one content of the file from another; None: it is not there now."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def watch(self) -> threading.Thread:
        """Refresh every second in a thread of its own, which ends with the process."""

        def look() -> None:
            pause = threading.Event()
            while not pause.wait(LOOK_SECONDS):
                self.refresh()

        thread = threading.Thread(target=look, name="definitions", daemon=True)
        thread.start()
        return thread


def current(metrics: Mapping[str, Metric]) -> Mapping[str, Metric]:
    """Return the definitions of this moment, which do not change: the same until they do."""
    return metrics._metrics if isinstance(metrics, LiveMetrics) else metrics


def table(metrics: Mapping[str, Metric], kind: str) -> Mapping[str, Any]:
    """Return what the definitions of this moment have in the tables of a kind, by name."""
    definitions = current(metrics)
    return definitions.tables.get(kind, {}) if isinstance(definitions, Definitions) else {}


def unusable(metrics: Mapping[str, Metric]) -> str:
    """Return why the file of definitions cannot be used as it is now; empty if it can."""
    return metrics.unusable if isinstance(metrics, LiveMetrics) else ""


def on_hangup(call: Callable[[], object]) -> None:
    """Call something at SIGHUP, besides whatever was called before.

    Where a terminal started the process, SIGHUP says that the terminal is gone: it still ends it.
    """
    before = signal.getsignal(signal.SIGHUP)
    if before == signal.SIG_DFL and os.isatty(0):
        return

    def called(number: int, frame: object) -> None:
        if callable(before):
            before(number, frame)  # type: ignore[arg-type]
        call()

    signal.signal(signal.SIGHUP, called)
