"""The log of threads that send: no handler of the application ends them."""

from __future__ import annotations

import logging
from contextlib import suppress

logger = logging.getLogger("producers")


def log_from_thread(level: int, message: str, *values: object, with_error: bool = False) -> None:
    """Log a message; what a handler raises is ignored, because nobody is there to catch it.

    Parameters
    ----------
    level, message, *values
        As of :meth:`logging.Logger.log`.
    with_error
        Whether to log the current exception, too.
    """
    with suppress(Exception):
        logger.log(level, message, *values, exc_info=with_error)
