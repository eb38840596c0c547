"""What a route of the gateway calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from producers.gateway.problems import Problem


class Endpoint:
    """A route's endpoint: an ASGI application, without Starlette's objects for a request.

    Parameters
    ----------
    post : callable
        Answers a request, or raises Problem.
    """

    def __init__(self, post: Callable[[Scope, Receive], Awaitable[Response]]) -> None:
        self._post = post

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            response = await self._post(scope, receive)
        except Problem as problem:
            response = problem.response(scope["path"])
        await response(scope, receive, send)
