"""Pools of threads that compute answers, with a share for each client."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
from anyio.from_thread import check_cancelled
from starlette.requests import ClientDisconnect, Request

from aggregator.web.http.problem_responses import RETRY_SECONDS, unavailable
from estimators.interruption import interruptible
from producers.gateway.problems import Problem
from producers.gateway.rate_limits import Client, client_of

P = ParamSpec("P")
T = TypeVar("T")

MAX_WAITING = 200
"""The most requests that wait in a pool: if more waited, clients would time out."""
MAX_WAITING_PER_CLIENT = 50
"""The most waiting requests of one client, so that a few clients do not fill the queue."""


def stop_if_abandoned(_: float = 0.0) -> None:
    """Progress callback: end a call in a pool if its client has left."""
    check_cancelled()


def _while_wanted(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    with interruptible(stop_if_abandoned):
        return call(*args, **kwargs)


class Pool:
    """Threads for requests of one kind.

    A client's requests use at most its share of the threads; its others wait in order. A request
    whose client has left is dropped while it waits, or when its call runs
    :func:`stop_if_abandoned`, as between the steps of reading, estimates and comparisons.

    Parameters
    ----------
    threads : int
        The number of threads.
    share : int
        The most threads that one client may use.
    waiting : int, optional
        The most requests of one client that may wait; by default MAX_WAITING_PER_CLIENT.
    """

    def __init__(self, threads: int, share: int, waiting: int = 0) -> None:
        self._threads, self._share = anyio.CapacityLimiter(threads), share
        self._max_waiting = waiting
        self._shares: WeakValueDictionary[Client, anyio.CapacityLimiter] = WeakValueDictionary()
        self._running = 0

    async def run(
        self, request: Request, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a call in a thread, for the client of a request.

        `request`: the request; `call`: the function to call; `args`, `kwargs`: the arguments of the
        call.

        Raises
        ------
        Problem
            With status 429 or 503, if too many requests wait.
        ClientDisconnect
            If the client left before the answer.
        """
        share = self._admit(client_of(request.scope))
        self._running += 1
        try:
            with anyio.CancelScope() as scope:
                leaving = asyncio.create_task(_when_left(request, scope.cancel))
                try:
                    async with share:
                        bound = functools.partial(_while_wanted, call, *args, **kwargs)
                        return await anyio.to_thread.run_sync(bound, limiter=self._threads)
                finally:
                    leaving.cancel()
        finally:
            self._running -= 1
        raise ClientDisconnect

    def _admit(self, client: Client) -> anyio.CapacityLimiter:
        """Return a client's share of the threads; raise Problem if too many requests wait."""
        share = self._shares.get(client)
        if share is None:
            share = self._shares[client] = anyio.CapacityLimiter(self._share)
        waiting = share.statistics().tasks_waiting
        if waiting >= (self._max_waiting or MAX_WAITING_PER_CLIENT):
            raise Problem(
                429,
                f"{waiting} requests of {client} are already waiting",
                "wait for their answers; behind a proxy, name it in [serve] trusted_proxies, so "
                "that its clients are counted separately",
                retry_after=RETRY_SECONDS,
            )
        waiting = self._running - self._threads.statistics().borrowed_tokens
        if waiting >= MAX_WAITING:
            detail = f"{waiting} requests are already waiting"
            raise unavailable(detail, "try again later, or run another `dither serve`")
        return share


async def _when_left(request: Request, act: Callable[[], None]) -> None:
    """Call a function once a request's client has left."""
    with contextlib.suppress(Problem):  # which an unread body may raise
        while (await request.receive())["type"] != "http.disconnect":
            pass
        act()
