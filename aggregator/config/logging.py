"""Logging of the long-running commands by structlog: an event per line, to standard error."""

from __future__ import annotations

import contextlib
import logging
import sys

import structlog


class UnfailingLogger(structlog.PrintLogger):
    """Prints messages; those that cannot be written, such as to a full disk, stop nothing."""

    def msg(self, message: str) -> None:
        """Print a message."""
        with contextlib.suppress(OSError):
            super().msg(message)

    log = debug = info = warn = warning = error = critical = exception = fatal = failure = err = msg


def configure(level: str = "info", as_json: bool = False) -> None:
    """Log events at `level` and above, as text for people or as JSON for machines.

    Warnings of libraries, and what the package `producers` logs, have the same form.
    """
    threshold = logging.getLevelNamesMapping()[level.upper()]
    renderer: structlog.types.Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            exception_formatter=structlog.dev.plain_traceback,  # the default one prints variables
        )
    )
    processors: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    of_libraries = logging.StreamHandler(sys.stderr)
    of_libraries.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=processors,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(handlers=[of_libraries], level=max(threshold, logging.WARNING))
    logging.getLogger("producers").setLevel(threshold)
    structlog.configure(
        processors=[*processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        logger_factory=lambda *_: UnfailingLogger(sys.stderr),
    )


def tell_failure(message: str) -> None:
    """Log why a command has failed."""
    if isinstance(structlog.get_config()["processors"][-1], structlog.processors.JSONRenderer):
        structlog.get_logger().error(message)
    else:
        sys.stderr.write(f"Error: {message}\n")
