"""Logs from threads that send reports, so that no log handler of the application can end them."""

from __future__ import annotations

import logging
from contextlib import suppress

logger = logging.getLogger("producers")


def log_from_thread(level: int, message: str, *values: object, with_error: bool = False) -> None:
    """Log a message; errors of handlers are ignored, because nobody would catch them.

    Parameters
    ----------
    level, message, *values
        As for :meth:`logging.Logger.log`.
    with_error
        Whether to log the current exception, too.
    """
    with suppress(Exception):
        logger.log(level, message, *values, exc_info=with_error)
