"""Identifies the server at an address, if it is not the expected one."""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import NamedTuple

PROBE_SECONDS = 1.0  # the timeout of each of at most four steps
HTTP_SERVER, REDIS_SERVER, REDIS_SENTINEL = "an HTTP server", "a Redis server", "a Redis Sentinel"
KAFKA_BROKER, CLOSING_SERVER = "a Kafka broker", "a server that closes connections"
SILENT_SERVER = "a server that takes connections, and says nothing"
# Redis refuses this without a login, in words that differ by its kind; Kafka closes the connection.
_HTTP_REQUEST = b"GET / HTTP/1.0\r\n\r\n"
_CORRELATION_ID = struct.pack(">i", 7)
# ApiVersions, which brokers answer before a login.
_KAFKA_REQUEST = struct.pack(">ihh", 10, 18, 0) + _CORRELATION_ID + b"\xff\xff"


class ServerKind(NamedTuple):
    """The kind of a server, with TLS or without."""

    kind: str
    has_tls: bool = False

    def __str__(self) -> str:
        """Return a description.

        >>> print(ServerKind(HTTP_SERVER, True), ServerKind(REDIS_SERVER), sep="; ")
        an HTTP server with TLS; a Redis server without TLS
        """
        if self.kind == SILENT_SERVER:
            return self.kind
        return f"{self.kind} with{'out' * (not self.has_tls)} TLS"


def identify_server(host: str, port: int) -> ServerKind | None:
    """Return the kind of server at an address; None if it accepts no connection.

    `host`: a host name or address, or the path of a Unix socket; `port`: the port of the address.
    """
    try:
        kind = _kind(host, port, has_tls=False)
    except (OSError, ValueError):
        return None
    if kind not in (CLOSING_SERVER, SILENT_SERVER, HTTP_SERVER):
        return ServerKind(kind)
    try:
        return ServerKind(_kind(host, port, has_tls=True), has_tls=True)
    except OSError as error:
        if "_ALERT_" in str(error):
            return ServerKind(CLOSING_SERVER, has_tls=True)
        return ServerKind(kind)


def _kind(host: str, port: int, *, has_tls: bool) -> str:
    answer = _answer(_HTTP_REQUEST, host, port, has_tls)
    if answer is None:
        return SILENT_SERVER
    if answer.startswith(b"HTTP/"):
        return HTTP_SERVER
    if answer.startswith(b"-"):
        return REDIS_SENTINEL if b"unknown command" in answer else REDIS_SERVER
    if answer and not answer.startswith(b"\x15\x03"):  # an alert of TLS
        return f"a server that says {answer.decode('ascii', 'replace').splitlines()[0][:40]!r}"
    answer = _answer(_KAFKA_REQUEST, host, port, has_tls) or b""
    return KAFKA_BROKER if answer[4:8] == _CORRELATION_ID else CLOSING_SERVER


def _answer(request: bytes, host: str, port: int, has_tls: bool) -> bytes | None:
    """Return the beginning of the answer; b"" if the server closes; None if it is silent."""
    with contextlib.ExitStack() as closing:
        if host.startswith("/"):
            connection = closing.enter_context(socket.socket(socket.AF_UNIX))
            connection.settimeout(PROBE_SECONDS)
            connection.connect(host)
        else:
            connection = socket.create_connection((host, port), PROBE_SECONDS)
            closing.enter_context(connection)
        if has_tls:
            import ssl  # not above: OpenSSL takes 7 MB

            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connection = closing.enter_context(
                context.wrap_socket(connection, server_hostname=host)
            )
        try:
            connection.sendall(request)
            return connection.recv(512)
        except TimeoutError:
            return None
        except OSError:
            return b""
