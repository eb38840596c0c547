"""What the operations share: the reader, the settings, and threads of their own."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import anyio
import anyio.to_thread

from aggregator.reader import Reader
from aggregator.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")

ANSWERING_THREADS = 4
"""Estimates computed at a time: they hold a processor, and more at once serve nobody sooner."""


@dataclasses.dataclass(eq=False)
class Service:
    """What the operations work with.

    Attributes
    ----------
    reader : Reader
    settings : Settings
    """

    reader: Reader
    settings: Settings

    @functools.cached_property
    def _answering(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(ANSWERING_THREADS)

    async def compute(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run what reads or estimates in a thread, off the event loop, a few at a time."""
        bound = functools.partial(call, *args, **kwargs)
        return await anyio.to_thread.run_sync(bound, limiter=self._answering)
