"""Middleware of all requests: protective headers; limits on addresses, bodies, unread answers."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from producers.gateway.problems import Problem
from producers.gateway.rate_limits import Client, client_of

PROTECTIVE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
"""Headers of answers to programs; pages have other policies."""
ABORT_KEY = "dither.abort"
"""Key of a request's scope: the function that aborts its connection, if there is one."""
BODY_SECONDS = 10.0
"""The time for a body, from the request's head on."""
UNREAD_BYTES = 67_108_864
"""The most bytes of all answers that wait for their clients."""
MAX_PATH_BYTES, MAX_QUERY_BYTES, MAX_PARAMETERS = 1_024, 32_768, 1_024
"""Limits on the address of a request."""
PIECE_BYTES = 65_536
"""How many bytes of an answer are written together; smaller answers are not counted."""


def on_start(send: Send, act: Callable[[Message], object]) -> Send:
    """Return a `send` that first calls a function with the message that begins an answer."""

    async def observed(message: Message) -> None:
        if message["type"] == "http.response.start":
            act(message)
        await send(message)

    return observed


class ProtectiveHeaders:
    """Middleware: adds headers that keep browsers from misusing answers."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Add the headers that an answer lacks."""

        def protect(message: Message) -> None:
            headers = MutableHeaders(scope=message)
            for name, value in PROTECTIVE_HEADERS.items():
                headers.setdefault(name, value)

        await self.app(scope, receive, on_start(send, protect) if scope["type"] == "http" else send)


class AddressLimit:
    """Middleware: refuses an address that is too long, before it is parsed.

    The cost of an address grows with its length, and all requests share the loop that reads it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if its address is short enough."""
        if scope["type"] == "http":
            query = scope["query_string"]
            problem: Problem | None = None
            if len(scope["raw_path"]) > MAX_PATH_BYTES:
                problem = Problem(404, "no path is this long", "/openapi.json has all")
            elif len(query) > MAX_QUERY_BYTES or query.count(b"&") > MAX_PARAMETERS:
                problem = Problem(
                    400,
                    f"a query of {len(query)} bytes: expected at most {MAX_QUERY_BYTES}, and at "
                    f"most {MAX_PARAMETERS} parameters",
                    "ask for fewer categories at a time",
                )
            if problem is not None:
                await problem.response("")(scope, receive, send)
                return
        await self.app(scope, receive, send)


class BodyLimit:
    """Middleware: refuses bodies that are too large or too slow.

    Parameters
    ----------
    app : ASGI application
        The ASGI application behind this middleware.
    max_bytes : int
        The most bytes of a body.
    by_path : mapping of str to int, optional
        The most bytes of a body at the paths that have another limit, by path.
    """

    def __init__(
        self, app: ASGIApp, max_bytes: int, by_path: Mapping[str, int] | None = None
    ) -> None:
        self.app, self.max_bytes, self._by_path = app, max_bytes, by_path or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with limits on the size and the time of its body."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        max_bytes = self._by_path.get(scope["path"], self.max_bytes)
        announced = Headers(scope=scope).get("content-length", "").lstrip("0")
        if announced.isdecimal() and int(announced) > max_bytes:
            await _too_large(max_bytes).response(scope["path"])(scope, receive, send)
            return
        deadline: float | None = asyncio.get_running_loop().time() + BODY_SECONDS
        received, is_answered = 0, False

        async def limited() -> Message:
            nonlocal received, deadline
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
                received += len(message.get("body", b""))
                if received > max_bytes:
                    raise _too_large(max_bytes)
            except TimeoutError:
                detail = f"the body was not complete after {BODY_SECONDS:g} seconds"
                closing = {"Connection": "close"}
                problem = Problem(408, detail, "send the request again", headers=closing)
            except Problem as refusal:
                problem = refusal
            else:
                if not message.get("more_body", False):
                    deadline = None
                return message
            if is_answered:  # it is too late for a problem
                scope.get(ABORT_KEY, _nothing)()
                return {"type": "http.disconnect"}
            raise problem

        async def answering(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            await send(message)

        await self.app(scope, limited, answering)


@dataclasses.dataclass(frozen=True, eq=False)
class _Unread:
    """An answer that its client has not read yet."""

    size: int
    client: Client
    abort: Callable[[], None]


class UnreadLimit:
    """Middleware: limits the unread answers of all clients together.

    Answers are written piece by piece, as clients read them. If an answer would exceed the limit,
    the client with most unread bytes loses its largest answer and the connection. If this client
    makes the request, the request is refused instead.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._unread: set[_Unread] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it if too many bytes are unread."""
        if scope["type"] != "http" or scope["method"] == "HEAD":
            await self.app(scope, receive, send)
            return
        unread, is_refused = None, False

        async def limited(message: Message) -> None:
            nonlocal unread, is_refused
            if message["type"] == "http.response.start":
                size = int(Headers(raw=message["headers"]).get("content-length", "0"))
                try:
                    unread = self._count_unread(scope, size) if size > PIECE_BYTES else None
                except Problem as problem:
                    is_refused = True
                    await problem.response(scope["path"])(scope, receive, send)
            if is_refused:
                return
            if unread is None or message["type"] != "http.response.body":
                await send(message)
                return
            body, more = memoryview(message.get("body", b"")), message.get("more_body", False)
            for begin in range(0, max(1, len(body)), PIECE_BYTES):
                end = begin + PIECE_BYTES
                left = more or end < len(body)
                await send({**message, "body": body[begin:end], "more_body": left})

        try:
            await self.app(scope, receive, limited)
        finally:
            self._unread.discard(unread)

    def _count_unread(self, scope: Scope, size: int) -> _Unread:
        """Count an answer of `size` bytes as unread, and abort larger ones if necessary.

        Raises Problem if this request's client has most unread bytes, and they are too many.
        """
        new = _Unread(size, client_of(scope), scope.get(ABORT_KEY, _nothing))
        sizes = Counter({new.client: size})
        for unread in self._unread:
            sizes[unread.client] += unread.size
        while sizes.total() > UNREAD_BYTES:
            [(client, client_bytes)] = sizes.most_common(1)
            if client == new.client:
                raise _too_much_unread(client, client_bytes - size, size)
            largest = max((u for u in self._unread if u.client == client), key=lambda u: u.size)
            self._unread.discard(largest)
            sizes[client] -= largest.size
            largest.abort()
        self._unread.add(new)
        return new


def _too_much_unread(client: Client, waiting: int, size: int) -> Problem:
    return Problem(
        429,
        f"an answer of {size} bytes: {waiting} bytes of others wait for {client} to read them, and "
        f"all clients together may have {UNREAD_BYTES}",
        "read those first, or ask for less",
        retry_after=BODY_SECONDS,
    )


def _nothing() -> None:
    """Abort nothing."""


def _too_large(max_bytes: int) -> Problem:
    return Problem(
        413,
        f"a request of more than {max_bytes} bytes",
        "send less at a time, or raise [serve] max_request_bytes",
        headers={"Connection": "close"},
    )
