"""The log of threads that send: no handler of the application ends them."""

from __future__ import annotations

import logging
from contextlib import suppress

logger = logging.getLogger("producers")


def log_from_thread(level: int, message: str, *values: object, with_error: bool = False) -> None:
    """Log a message; what a handler raises is ignored, because nobody is there to catch it.

    Parameters
    ----------
    level : int
        One of `logging`.
    message : str
        With placeholders for the values.
    *values : object
    with_error : bool
        Whether the error under way is logged, too.
    """
    with suppress(Exception):
        logger.log(level, message, *values, exc_info=with_error)
