"""A lazy logger for modules that most commands load but never log from."""

from __future__ import annotations

from typing import Any


class LazyLog:
    """A logger of structlog, which is imported on first use, because the import takes long."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, level: str) -> Any:
        """Return structlog's method that logs an event at this level."""
        import structlog

        return getattr(structlog.get_logger(self._name), level)
