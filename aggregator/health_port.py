"""A port for orchestrators' probes and for scrapes; devices cannot reach it."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

HEALTH_PATH = "/healthz"
TEXT_TYPE = "text/plain; charset=utf-8"
CLIENT_SECONDS = 5.0
"""The time for a client's request."""
HEAD_BYTES = 65_536
"""The most bytes of a request that are read."""


class Page(NamedTuple):
    """A response of the health port."""

    status: int
    body: bytes
    media_type: str = TEXT_TYPE


@contextlib.contextmanager
def answer_health(
    port: int, trouble: Callable[[], str], pages: Mapping[str, Callable[[], Page]] | None = None
) -> Iterator[int]:
    """Answer GET /healthz with 200 if all is well, or with 503 and what is wrong; yield the port.

    Parameters
    ----------
    port : int
        The port, on all IPv4 and IPv6 addresses; 0 for any free port.
    trouble : callable
        Returns why the process should be restarted, or "" if it works; called in other threads.
    pages : mapping of str to callable, optional
        Further pages by path; called in other threads.

    Raises
    ------
    OSError
        If the port is taken.
    """

    def healthz() -> Page:
        problem = trouble()
        return Page(503 if problem else 200, f"{problem or 'ok'}\n".encode())

    def missing() -> Page:
        return Page(404, f"no such path: expected {' or '.join(answer_by_path)}\n".encode())

    answer_by_path = {HEALTH_PATH: healthz, **(pages or {})}

    class Handler(BaseHTTPRequestHandler):
        timeout = CLIENT_SECONDS

        def parse_request(self) -> bool:
            unread = HEAD_BYTES  # headers are ignored: to parse a hostile one takes seconds
            while unread > 0 and (line := self.rfile.readline(unread)).strip():
                unread -= len(line)
            self.rfile = io.BytesIO()
            return super().parse_request()

        def do_GET(self) -> None:
            page = answer_by_path.get(self.path, missing)()
            self.send_response(page.status)
            self.send_header("Content-Type", page.media_type)
            self.send_header("Content-Length", str(len(page.body)))
            self.end_headers()
            self.wfile.write(page.body)

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
    """A server that listens on IPv4 and IPv6."""

    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    daemon_threads = True
    block_on_close = False

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, *_: object) -> None:
        """Ignore the error that occurs if a client leaves early."""
