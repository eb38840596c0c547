"""Protects the HTTP/1.1 server from slow clients, endless heads, and endless requests.

httptools limits neither the size nor the time of a request's head. Slow connections would use up
the file descriptors, and an endless head the memory. So would pipelined requests, which are
therefore parsed only after the answers to earlier requests.
"""

from __future__ import annotations

import asyncio
from collections import deque
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0
"""The time for a request's head, from the connection or the head's first byte on."""
IDLE_SECONDS = 75.0
"""The time between a sent response and the next request: longer than clients and balancers keep an
idle connection, so that no request meets a connection that is being closed."""
UNREAD_SECONDS = 75.0
"""A client must read a part of a waiting answer within this time."""
BUFFER_BYTES = 65_536
"""An answer pauses when this many bytes wait for the client; TLS buffers as many again."""
HEAD_BYTES = 65_536
"""The most bytes of a request without its body: head, frames and trailers."""
FRAMES_PER_BYTE = 8
"""The most frame bytes per byte of a body: a chunk of one byte has five."""
PIECE_BYTES = 12_288
"""The most bytes that are parsed together; a small post has fewer."""
CHECKS_PER_HEAD = 8
"""How often the limits are checked in the time for a head; a connection has a single timer."""
FRAMING_HEADERS = frozenset({b"content-length", b"transfer-encoding"})
"""Headers that only requests with a body have."""


class QuietTransport:
    """uvloop's transport, which ignores writes after its end, as asyncio's does.

    uvloop raises an error, which would be logged each time a client leaves early.
    """

    __slots__ = ("_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self.is_closing = transport, transport.is_closing

    def __getattr__(self, name: str) -> Any:
        """Return any other method of the transport."""
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send bytes, if the connection is not closing."""
        if not self.is_closing():
            self._transport.write(data)


class _InTurn(FlowControl):
    """Pauses reading while requests, or the bytes in `unread`, wait for earlier requests."""

    def __init__(self, transport: asyncio.Transport, pipeline: deque[Any]) -> None:
        super().__init__(transport)
        self._pipeline, self.unread = pipeline, NO_BYTES

    def resume_reading(self) -> None:
        """Resume reading unless a request waits."""
        if not self._pipeline and not self.unread:
            super().resume_reading()


NO_BYTES = memoryview(b"")


class PunctualProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which also closes connections whose heads are too long or too slow."""

    flow: _InTurn
    _timer: asyncio.TimerHandle | None = None
    _deadline = 0.0
    _overhead = 0
    """Bytes of this request without its body."""
    _is_in_message = False
    _has_head = False
    _has_hung_up = False
    _taken_at = 0.0
    """When the client last read bytes, or when no bytes waited."""
    _unsent = 0
    """Bytes that waited for the client at the last check."""
    _is_over = False
    """Whether parsing has ended: the connection ends with the last answer."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer, and wait for the first request."""
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=BUFFER_BYTES)  # TLS has eight times this by default
        self.transport = QuietTransport(transport)  # type: ignore[assignment]
        self.flow = _InTurn(transport, self.pipeline)
        self._taken_at = self.loop.time()
        self._deadline = self._taken_at + HEAD_SECONDS
        self._check_deadline()

    def data_received(self, data: bytes) -> None:
        """Parse bytes; unlike uvicorn's method, this does not restart the timer."""
        flow = self.flow
        if len(data) <= PIECE_BYTES and not flow.unread and not self.pipeline:
            self._parse(data)
            return
        flow.unread = memoryview(bytes(flow.unread) + data if flow.unread else data)
        while flow.unread and not self.pipeline:
            piece, flow.unread = flow.unread[:PIECE_BYTES], flow.unread[PIECE_BYTES:]
            self._parse(piece)

    def _parse(self, piece: bytes | memoryview) -> None:
        if self.parser is None or self.transport.is_closing() or self._is_over:
            return
        self._overhead += len(piece)
        super().data_received(piece)  # type: ignore[arg-type]
        if not self._is_in_message:
            self._overhead = 0
        elif self._overhead > HEAD_BYTES:
            self._refuse_head()

    def _parse_waiting(self) -> None:
        """Parse the waiting bytes."""
        if not self.pipeline:
            waiting, self.flow.unread = self.flow.unread, NO_BYTES
            self.flow.resume_reading()
            self.data_received(bytes(waiting))

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        """Record that the client has read, and resume writing."""
        self._taken_at = self.loop.time()
        super().resume_writing()

    def on_message_begin(self) -> None:
        """Begin a request and the time for its head."""
        super().on_message_begin()
        self._is_in_message, self._has_head = True, False
        if self._is_idle():
            self._deadline = min(self._deadline, self.loop.time() + HEAD_SECONDS)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header, unless it is a trailer."""
        if not self._has_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer; raise ValueError for an upgrade with a body.

        httptools would parse that body as another request.
        """
        if self.parser.should_upgrade() and any(
            name in FRAMING_HEADERS for name, _ in self.headers
        ):
            raise ValueError("an upgrade with a body")
        super().on_headers_complete()
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        """Add a part of the body."""
        self._overhead = max(0, self._overhead - len(body) * (1 + FRAMES_PER_BYTE))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Record that the whole request has arrived."""
        self._is_in_message, self._overhead = False, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Begin to answer the next pipelined request, or wait for a request."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        else:
            seconds = HEAD_SECONDS if self._is_in_message else IDLE_SECONDS
            self._deadline = self.loop.time() + seconds
        if self.flow.unread:
            self.loop.call_soon(self._parse_waiting)
        else:
            self.flow.resume_reading()

    def send_400_response(self, msg: str) -> None:
        """Refuse bytes that are not HTTP, after the answers to earlier requests."""
        self._is_over = True
        has_begun = self._is_in_message and self._has_head  # then the body is at fault
        if self._is_idle():
            if has_begun:  # and the request is answered
                self.transport.close()
            else:
                super().send_400_response(msg)
        elif has_begun and not self.pipeline and not self.cycle.response_started:
            super().send_400_response(msg)
        else:
            self.cycle.keep_alive = False

    def _unsupported_upgrade_warning(self) -> None:
        """Answer the request, then close: httptools parses no more after an upgrade."""
        self._is_over = True
        self.cycle.keep_alive = False

    def _is_idle(self) -> bool:
        """Return whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def _check_deadline(self) -> None:
        """Close the connection if the time is over; schedule the next check."""
        now, unsent_bytes = self.loop.time(), self._unsent
        self._unsent = self.transport.get_write_buffer_size()
        if not self._unsent or self._unsent < unsent_bytes:
            self._taken_at = now
        if self._has_hung_up or now >= self._taken_at + UNREAD_SECONDS:
            self.transport.abort()  # the client does not even read the rest
            return
        if self._unsent and self._is_idle() and not self._is_in_message:
            self._deadline = max(self._deadline, now + IDLE_SECONDS)
        elif self._is_idle() and now >= self._deadline:
            self._has_hung_up = True
            self.transport.close()
        self._timer = self.loop.call_later(HEAD_SECONDS / CHECKS_PER_HEAD, self._check_deadline)

    def _refuse_head(self) -> None:
        message = f"a head of more than {HEAD_BYTES} bytes"
        status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        if self._is_idle():
            self.transport.write(
                b"HTTP/1.1 %d %b\r\ncontent-type: text/plain; charset=utf-8\r\n"
                b"content-length: %d\r\nconnection: close\r\n\r\n%b"
                % (status, status.phrase.encode(), len(message), message.encode())
            )
            self.transport.close()
        else:
            self.transport.abort()
