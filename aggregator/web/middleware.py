"""What every request passes through: protective headers, and a limit on its body."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from producers.problems import Problem

PROTECTIVE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""For answers to programs; a page brings a policy of its own."""


class ProtectiveHeaders:
    """Middleware: tells browsers to take answers for what they are."""

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
    """Middleware: refuses a request's body above a size, announced or not.

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
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and int(announced) > self.most:
            await self._problem().response(scope["path"])(scope, receive, send)
            return
        received = 0

        async def limited() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.most:
                raise self._problem()
            return message

        await self.app(scope, limited, send)

    def _problem(self) -> Problem:
        return Problem(
            413,
            f"a request of more than {self.most} bytes",
            "send less at a time, or raise [serve] max_request_bytes",
        )
