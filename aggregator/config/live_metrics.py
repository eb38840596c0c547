"""Metrics that follow the file of definitions, which is loaded again when it changes."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from aggregator.config.definitions import MetricDefinitions
from aggregator.lazy_log import LazyLog
from estimators import DefinitionError, Metric

LOOK_SECONDS = 1.0
UNUSABLE_FIELD = "unusable"
"""Field of the owner's hash: why the partition's worker cannot use its definitions."""

log = LazyLog("dither.definitions")


class LiveMetrics(Mapping[str, Metric]):
    """The metrics of a file, by name; :meth:`refresh` applies changes of the file.

    An iteration sees the definitions of one moment. If the file becomes unusable, `unusable` and
    the log say why, and the last definitions stay in force.

    Attributes
    ----------
    unusable : str
        Why the file cannot be used; empty if it can.

    Raises
    ------
    DefinitionError, FileNotFoundError
        If the file cannot be used at the start.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._stamp = self._read_stamp()
        self._metrics = MetricDefinitions.load(self._path)
        self._lock = threading.Lock()
        self._is_forced = False
        self.unusable = ""

    def __getitem__(self, name: str) -> Metric:
        """Return the metric of this name."""
        return self._metrics[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the current metrics."""
        return iter(self._metrics)

    def __len__(self) -> int:
        """Return the number of metrics."""
        return len(self._metrics)

    def force_refresh(self, *_: object) -> None:
        """Force the next :meth:`refresh` to read the file; safe in a signal handler."""
        self._is_forced = True

    def refresh(self) -> bool:
        """Apply changes of the file, if it is valid; return whether definitions have changed."""
        with self._lock:
            stamp = self._read_stamp()
            if stamp == self._stamp and not self._is_forced:
                return False
            self._stamp, self._is_forced = stamp, False
            try:
                loaded = MetricDefinitions.load(self._path)
            except (DefinitionError, OSError) as error:
                reason = f"{self._path}: {error.strerror}" if isinstance(error, OSError) else error
                self.unusable = str(reason)
                log.error("definitions not reloaded", error=self.unusable)  # noqa: TRY400
                return False
            self.unusable = ""
            if loaded == self._metrics and loaded.tables == self._metrics.tables:
                return False
            added, gone = loaded.keys() - self._metrics.keys(), self._metrics.keys() - loaded.keys()
            changed = {
                name for name in loaded.keys() - added if loaded[name] != self._metrics[name]
            }
            replaced, self._metrics = self._metrics, loaded
        redefined = {n for n in changed if loaded[n].revision != replaced[n].revision}
        tell = log.warning if gone or redefined else log.info  # their reports are refused
        names = {"added": sorted(added), "changed": sorted(changed), "removed": sorted(gone)}
        tell("definitions reloaded", file=str(self._path), **names)
        return True

    def _read_stamp(self) -> tuple[int, int, int] | None:
        """Return the file's modification time, size and inode; None if it is missing."""
        try:
            file_status = self._path.stat()
        except OSError:
            return None
        return file_status.st_mtime_ns, file_status.st_size, file_status.st_ino

    def watch(self) -> threading.Thread:
        """Start and return a daemon thread that calls :meth:`refresh` every second."""

        def refresh_repeatedly() -> None:
            pause = threading.Event()
            while not pause.wait(LOOK_SECONDS):
                self.refresh()

        thread = threading.Thread(target=refresh_repeatedly, name="definitions", daemon=True)
        thread.start()
        return thread


def current(metrics: Mapping[str, Metric]) -> Mapping[str, Metric]:
    """Return the current definitions as a snapshot: the same object until they change."""
    return metrics._metrics if isinstance(metrics, LiveMetrics) else metrics


def table(metrics: Mapping[str, Metric], kind: str) -> Mapping[str, Any]:
    """Return the current definitions in the tables of a kind, by name."""
    definitions = current(metrics)
    return definitions.tables.get(kind, {}) if isinstance(definitions, MetricDefinitions) else {}


def unusable(metrics: Mapping[str, Metric]) -> str:
    """Return why the file of definitions cannot be used; "" if it can."""
    return metrics.unusable if isinstance(metrics, LiveMetrics) else ""


def add_hangup_handler(callback: Callable[[], object]) -> None:
    """Call a function on SIGHUP, after the present handler.

    A process that runs in a terminal and has no handler still ends on SIGHUP.
    """
    previous_handler = signal.getsignal(signal.SIGHUP)
    if previous_handler == signal.SIG_DFL and os.isatty(0):
        return

    def handle_hangup(number: int, frame: object) -> None:
        if callable(previous_handler):
            previous_handler(number, frame)  # type: ignore[arg-type]
        callback()

    signal.signal(signal.SIGHUP, handle_hangup)
