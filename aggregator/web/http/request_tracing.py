"""A span for each request to the HTTP server, except posts of devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from aggregator.web.http.middleware import on_start
from aggregator.web.http.traffic import KNOWN_METHODS

if TYPE_CHECKING:
    from aggregator.monitoring.otlp.tracing import Tracing


class TraceRequests:
    """ASGI middleware: a span from each request to the start of its answer.

    A span has the method, the route's template and the status, but neither address nor parameters.

    Parameters
    ----------
    app : ASGI application
        The ASGI application behind this middleware.
    tracing : Tracing
        Begins and ends the spans.
    untraced : frozenset of str
        Paths without spans, such as those of devices, whose times are private.
    """

    def __init__(self, app: ASGIApp, tracing: Tracing, untraced: frozenset[str]) -> None:
        self.app, self._tracing, self._untraced = app, tracing, untraced

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; its span ends when the answer begins, as a stream may never end."""
        if scope["type"] != "http" or scope["path"] in self._untraced:
            await self.app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in KNOWN_METHODS else "_OTHER"
        span, has_ended = self._tracing.begin_request(method, Headers(scope=scope)), False

        def end(status: int | None) -> None:
            nonlocal has_ended
            if not has_ended:
                has_ended = True
                route = getattr(scope.get("route"), "path", "")
                self._tracing.end_request(span, method, route, status)

        try:
            await self.app(scope, receive, on_start(send, lambda message: end(message["status"])))
        finally:
            end(None)
