"""A port that says over HTTP whether this process works, for orchestrators that restart it."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PATH = "/healthz"
CLIENT_SECONDS = 5.0
"""That a client has for its request."""
HEAD_BYTES = 65_536
"""Of a request: more is not read."""


@contextlib.contextmanager
def answer_health(port: int, trouble: Callable[[], str]) -> Iterator[int]:
    """Answer GET /healthz: 200 while there is no trouble, else 503 that says what it is.

    Parameters
    ----------
    port : int
        Of all addresses of this machine, IPv4 and IPv6; 0: any free one.
    trouble : callable
        Returns in a few words why the process should be restarted; "" if it works. It is called in
        other threads.

    Yields
    ------
    int
        The port.

    Raises
    ------
    OSError
        If the port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = CLIENT_SECONDS

        def parse_request(self) -> bool:
            left = HEAD_BYTES  # headers change nothing, and to parse a hostile one takes seconds
            while left > 0 and (line := self.rfile.readline(left)).strip():
                left -= len(line)
            self.rfile = io.BytesIO()
            return super().parse_request()

        def do_GET(self) -> None:
            found = trouble() if self.path == PATH else f"no such path: expected {PATH}"
            code = 404 if self.path != PATH else 503 if found else 200
            body = f"{found or 'ok'}\n".encode()
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
    """Of both address families where there are two."""

    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    daemon_threads = True
    block_on_close = False

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, *_: object) -> None:
        """Ignore a client that goes away."""
