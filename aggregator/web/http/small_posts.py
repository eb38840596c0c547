"""The fast path of a device's small post: from the HTTP parser to the gateway, and back.

Most posts are one small batch, complete in one read, to ``POST /v1/reports``. A task, an ASGI scope
and ten layers of middleware cost more than the gateway itself. So the protocol checks whether the
middleware would have to act. If not, it hands the post to the gateway, and answers when Kafka has
acknowledged the batch. A relay takes sealed reports on the same path.

Any other post takes the slow path, and only that path refuses posts. Posts with an unexpected host,
without the right scope, of another origin, in chunks, compressed, in pieces, or pipelined take the
slow path.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import time
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from aggregator.config.settings import Serve
from aggregator.web.http.access import Guard
from aggregator.web.http.connection_limits import PunctualProtocol
from aggregator.web.http.hosts import expected, is_expected
from aggregator.web.http.middleware import PROTECTIVE_HEADERS
from aggregator.web.http.problem_responses import as_problem
from aggregator.web.http.traffic import Traffic
from producers.gateway.gateway import CHECKED_AT_ONCE
from producers.gateway.problems import Problem
from producers.gateway.rate_limits import CALLER_KEY, Client, client_of
from producers.gateway.receiving import Head, read_head

if TYPE_CHECKING:
    from producers.gateway import Gateway
    from producers.relay.intake import CrowdRelay

logger = logging.getLogger("uvicorn.error")

WHOLE_WAY = frozenset(
    {b"content-encoding", b"expect", b"origin", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
"""Posts with one of these headers take the slow path."""
SINGLE_HEADERS = frozenset(
    {b"authorization", b"connection", b"content-length", b"content-type", b"host"}
)
"""Headers that must be unique on the fast path."""


class PostAdmission(NamedTuple):
    """A post's head, and what the protocol needs in order to answer it on the fast path.

    Attributes
    ----------
    is_secret : bool
        Whether the post came over TLS.
    headers : bytes
        The headers of the answer that depend on the caller.
    keep_alive : bool
        Whether the connection stays open after the answer.
    """

    head: Head
    client: Client
    is_secret: bool
    headers: bytes
    keep_alive: bool


class SmallPosts:
    """Decides which posts take the fast path.

    Parameters
    ----------
    receiver : Gateway or CrowdRelay
        Takes the posts.
    guard : Guard
        Identifies callers, and checks their scopes.
    traffic : Traffic
        Counts the answers.
    serve : Serve
        The settings of the server.
    scopes : sequence of str
        The scopes of the route.
    proxies : sequence of Middleware
        The middleware that takes a client's address and scheme from trusted proxies.
    """

    def __init__(
        self,
        receiver: Gateway | CrowdRelay,
        guard: Guard,
        traffic: Traffic,
        serve: Serve,
        scopes: Sequence[str],
        proxies: Sequence[Middleware],
    ) -> None:
        self.receiver, self.traffic = receiver, traffic
        self.path_bytes = receiver.post_path.encode()
        self._guard, self._scopes, self._hosts = guard, scopes, expected(serve)
        self._added = {**PROTECTIVE_HEADERS, **({"Vary": "Origin"} if serve.cors_origins else {})}
        self._server_headers: list[tuple[bytes, bytes]] = []
        self._server_header_bytes = b""
        self._proxied: ASGIApp = _nothing
        for proxy in reversed(proxies):
            self._proxied = proxy.cls(self._proxied, *proxy.args, **proxy.kwargs)

    def written(self, server_headers: list[tuple[bytes, bytes]]) -> bytes:
        """Return the server's headers as bytes, cached while the server uses the same list."""
        if server_headers is not self._server_headers:
            self._server_headers = server_headers
            lines = (b"%b: %b\r\n" % header for header in server_headers)
            self._server_header_bytes = b"".join(lines)
        return self._server_header_bytes

    def admission(
        self, headers: list[tuple[bytes, bytes]], client: object, scheme: str
    ) -> PostAdmission | None:
        """Return the admission of a post from its head; None if it must take the slow path.

        `headers`: names, in lower case, and values; `client`, optional: the peer's address;
        `scheme`: "http" or "https".
        """
        names = [name for name, _ in headers]
        connection = dict(headers).get(b"connection", b"keep-alive").lower()
        if (
            not WHOLE_WAY.isdisjoint(names)
            or len(SINGLE_HEADERS.intersection(names))
            < sum(name in SINGLE_HEADERS for name in names)
            or connection not in (b"keep-alive", b"close")
        ):
            return None
        try:
            head = read_head(headers, self.receiver.media_types)
        except Problem:
            return None
        if not 0 < head.length <= min(CHECKED_AT_ONCE, self.receiver.max_body):
            return None
        scope: dict[str, Any] = {"type": "http", "client": client, "scheme": scheme}
        scope["headers"] = headers
        if self._proxied is not _nothing:
            _run(self._proxied, scope)
        request_headers = Headers(raw=headers)
        if not is_expected(request_headers.get("host", ""), self._hosts):
            return None
        scopes = ""
        if self._scopes:
            caller, problem = self._guard.refusal(request_headers, self._scopes)
            if caller is None or problem is not None:
                return None
            scope[CALLER_KEY] = caller
            scopes = " ".join(sorted(caller.scopes))
        answered = {**self._added, **({"Dither-Scopes": scopes} if scopes else {})}
        written = "".join(f"{name.lower()}: {value}\r\n" for name, value in answered.items())
        is_secret = scope["scheme"] == "https"
        return PostAdmission(
            head, client_of(scope), is_secret, written.encode(), connection == b"keep-alive"
        )


class PostProtocol(PunctualProtocol):
    """The server's protocol: small posts take the fast path.

    The application has a `SmallPosts`, or None, as ``state.small_posts``.
    """

    _arriving: PostAdmission | None = None
    """The admission of the post whose body is being parsed."""
    _last: tuple[list[tuple[bytes, bytes]], PostAdmission | None] | None = None
    """The last post's head and admission: posts of one connection usually have equal heads."""
    _began = 0.0

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        state = getattr(self.config.app, "state", None)
        self._small: SmallPosts | None = getattr(state, "small_posts", None)
        self._body = b""

    def data_received(self, data: bytes) -> None:
        """Parse bytes; a post in several pieces takes the slow path."""
        super().data_received(data)
        if self._arriving is not None:
            self._arriving = None
            if not self.transport.is_closing():
                super().on_headers_complete()
                super().on_body(self._body)

    def on_headers_complete(self) -> None:
        """Choose the fast or the slow path for a request."""
        if (
            self._small is None
            or self.url != self._small.path_bytes
            or not self._is_idle()
            or self.flow.write_paused
            or self.parser.get_method() != b"POST"
            or self.parser.get_http_version() != "1.1"
        ):
            super().on_headers_complete()
            return
        if self._last is None or self._last[0] != self.headers:
            scheme = self.scheme or "http"
            self._last = self.headers, self._small.admission(self.headers, self.client, scheme)
        self._arriving = self._last[1]
        if self._arriving is None:
            super().on_headers_complete()
            return
        self._has_head, self._body, self._began = True, b"", time.perf_counter()

    def on_body(self, body: bytes) -> None:
        """Add a part of the body."""
        if self._arriving is None:
            super().on_body(body)
        else:
            self._body += body

    def on_message_complete(self) -> None:
        """Hand a small post to its receiver."""
        admission, self._arriving = self._arriving, None
        if admission is None or self._small is None:
            super().on_message_complete()
            return
        self._is_in_message, self._overhead = False, 0
        post = _Post(self, self._small, admission, self._began, admission.keep_alive)
        self.cycle = post  # type: ignore[assignment]
        try:
            head, client, secret, *_ = admission
            receive = self._small.receiver.post_whole
            receive(head, self._body, client, post.answer, is_secret=secret)
        except Problem as problem:
            post.refuse(problem)
        except Exception as error:
            logger.exception("Exception in %s", type(self._small.receiver).__name__)
            post.refuse(as_problem(error))


@dataclasses.dataclass(slots=True, eq=False)
class _Post:
    """A small post until it is answered; for uvicorn it is the connection's request."""

    protocol: PostProtocol
    small: SmallPosts
    admission: PostAdmission
    began: float
    keep_alive: bool
    disconnected: bool = False
    response_complete: bool = False
    message_event = asyncio.Event()  # for which nobody waits

    def answer(self, acknowledgement: bytes, problem: Problem | None) -> None:
        if problem is None:
            self._write(HTTPStatus.ACCEPTED, JSON_HEADER, acknowledgement)
        else:
            self.refuse(problem)

    def refuse(self, problem: Problem) -> None:
        response = problem.response(self.small.receiver.post_path)
        if response.headers.get("connection") == "close":
            self.keep_alive = False
        headers = b"".join(
            b"%b: %b\r\n" % (name.lower(), value)
            for name, value in response.raw_headers
            if name.lower() not in (b"connection", b"content-length", *PROTECTIVE_NAMES)
        )
        self._write(problem.status, headers, bytes(response.body))

    def _write(self, status: int, headers: bytes, body: bytes) -> None:
        self.response_complete = True
        path, seconds = self.small.receiver.post_path, time.perf_counter() - self.began
        self.small.traffic.count_answer(path, "POST", status, seconds)
        protocol = self.protocol
        if self.disconnected or protocol.transport.is_closing():
            return
        close = b"" if self.keep_alive else b"connection: close\r\n"
        protocol.transport.write(
            b"%b%b%b%b%bcontent-length: %d\r\n\r\n%b"
            % (
                _status_line(status),
                self.small.written(protocol.server_state.default_headers),
                headers,
                self.admission.headers,
                close,
                len(body),
                body,
            )
        )
        if not self.keep_alive:
            protocol.transport.close()
        protocol.on_response_complete()


@functools.cache
def _status_line(status: int) -> bytes:
    return b"HTTP/1.1 %d %b\r\n" % (status, HTTPStatus(status).phrase.encode())


JSON_HEADER = b"content-type: application/json\r\n"
PROTECTIVE_NAMES = tuple(name.lower().encode() for name in PROTECTIVE_HEADERS)


async def _nothing(_: Scope, __: Receive, ___: Send) -> None:
    """Stands for the application that the proxies' middleware calls."""


def _run(app: ASGIApp, scope: Scope) -> None:
    """Run an application that never waits."""
    waiting: Any = app(scope, _never, _never)
    try:
        waiting.send(None)
    except StopIteration:
        return
    raise AssertionError("the middleware for proxies waits for something")


async def _never(*_: Any) -> Any:
    """Stands for receiving and sending, which the middleware must not do."""
