"""Middleware of all requests: protective headers, and limits on bodies."""

from __future__ import annotations

import asyncio

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from producers.gateway.problems import Problem

PROTECTIVE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""For answers to programs; a page brings a policy of its own."""
ABORT = "dither.abort"
"""In a request's scope: what aborts its connection, if the server supports it."""
BODY_SECONDS = 10.0
"""For a whole body, from the request's head on: as long as for the head itself."""


class ProtectiveHeaders:
    """Middleware: adds headers that keep browsers from misusing answers."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add the headers that an answer does not bring."""

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in PROTECTIVE.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, protected if scope["type"] == "http" else send)


class BodyLimit:
    """Middleware: refuses a body that is too large, announced or not, or comes too slowly.

    Parameters
    ----------
    app : ASGI application
    most : int
        Bytes.
    """

    def __init__(self, app: ASGIApp, most: int) -> None:
        self.app, self.most = app, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on whose body ends in time."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        announced = Headers(scope=scope).get("content-length", "").lstrip("0")
        if announced.isdecimal() and int(announced) > self.most:
            await self._too_large().response(scope["path"])(scope, receive, send)
            return
        deadline: float | None = asyncio.get_running_loop().time() + BODY_SECONDS
        received, is_answered = 0, False

        async def limited() -> Message:
            nonlocal received, deadline
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
                received += len(message.get("body", b""))
                if received > self.most:
                    raise self._too_large()
            except TimeoutError:
                problem = _too_slow()
            except Problem as too_large:
                problem = too_large
            else:
                if not message.get("more_body", False):
                    deadline = None
                return message
            if is_answered:  # it is too late for a problem
                scope.get(ABORT, _nothing)()
                return {"type": "http.disconnect"}
            raise problem

        async def answering(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            await send(message)

        await self.app(scope, limited, answering)

    def _too_large(self) -> Problem:
        return Problem(
            413,
            f"a request of more than {self.most} bytes",
            "send less at a time, or raise [serve] max_request_bytes",
            headers={"Connection": "close"},
        )


def _nothing() -> None:
    """Leave the connection to the server."""


def _too_slow() -> Problem:
    return Problem(
        408,
        f"the body was not complete after {BODY_SECONDS:g} seconds",
        "send the request again",
        headers={"Connection": "close"},
    )
