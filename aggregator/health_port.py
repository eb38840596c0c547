"""A port for the liveness probes of orchestrators."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HEALTH_PATH = "/healthz"
CLIENT_SECONDS = 5.0
"""Time for a client's request."""
HEAD_BYTES = 65_536
"""Bytes of a request that are read."""


@contextlib.contextmanager
def answer_health(port: int, trouble: Callable[[], str]) -> Iterator[int]:
    """Answer GET /healthz with 200, or 503 and the trouble; yield the port.

    Parameters
    ----------
    port : int
        On all addresses, IPv4 and IPv6; 0 for any free port.
    trouble : callable
        Returns the reason to restart the process, or "". Other threads call it.

    Raises
    ------
    OSError
        If the port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = CLIENT_SECONDS

        def parse_request(self) -> bool:
            unread = HEAD_BYTES  # headers change nothing, and to parse a hostile one takes seconds
            while unread > 0 and (line := self.rfile.readline(unread)).strip():
                unread -= len(line)
            self.rfile = io.BytesIO()
            return super().parse_request()

        def do_GET(self) -> None:
            problem = (
                trouble() if self.path == HEALTH_PATH else f"no such path: expected {HEALTH_PATH}"
            )
            code = 404 if self.path != HEALTH_PATH else 503 if problem else 200
            body = f"{problem or 'ok'}\n".encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def version_string(self) -> str:
            return "dither"

        def log_message(self, *_: object) -> None:
            """Write no line for each probe."""

    with _Server(("", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, name="health", daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    """Listens on both address families."""

    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    daemon_threads = True
    block_on_close = False

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, *_: object) -> None:
        """Ignore a client that leaves."""
