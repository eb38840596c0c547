"""A connection to a gateway, whose requests say nothing about their sender.

Requests carry no cookies, user agent or conditions that could identify the device, and follow no
redirects.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import re
import socket
import ssl
import threading
import time
from contextlib import suppress
from typing import Any, cast
from urllib.parse import quote, urlsplit

from estimators.limits import LARGEST_ANSWER, LARGEST_DEFINITION
from producers.delivery.server_probe import HTTP_SERVER, SILENT_SERVER, ServerKind, identify_server
from producers.http.gateway_answers import GatewayAnswer, explain

REPORTS_PATH = "/v1/reports"
METRICS_PATH = "/v1/metrics"
GATEWAY_ADDRESS = re.compile(
    r"https?://(\[[0-9a-f:.]+\]|[^\s\0-\x1f/?#@\\:\[\]*]+)(:[0-9]*)?(/((?![?#\\])[!-~])*)?",
    re.IGNORECASE,
)
PROTOBUF_TYPE = "application/x-protobuf"
MOST_STEPS = 4
SILENT_SECONDS = 2.0
"""If the first answer takes longer, the client finds out which kind of server is there."""
IDLE_SECONDS = 30.0
"""A connection that was idle for longer is not used again, as the server may be closing it."""
HEAD_BYTES = 2**14
"""The most bytes of an answer's headers: the time to parse them grows with the square of their
size."""
FRAMING_BYTES = 2**16
"""The most bytes between an answer's headers and its end that do not belong to the body."""


class GatewayError(RuntimeError):
    """Raised if a gateway does not answer, or its answer cannot be used.

    Attributes
    ----------
    url : str
        The address of the gateway.
    status : int
        The HTTP status; 0 if there was no answer.
    """

    def __init__(self, url: str, detail: str, status: int = 0, server: str = "gateway") -> None:
        self.url, self.detail, self.status = url, detail, status
        super().__init__(f"{server} {url}: {detail}")


class _Counted(io.RawIOBase):
    """Reads the bytes of a socket; raises HTTPException if more bytes than `left` are read."""

    def __init__(self, raw: io.RawIOBase, left: int) -> None:
        super().__init__()
        self._raw, self.left = raw, left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        count = self._raw.readinto(buffer)
        self.left -= count or 0
        if self.left < 0:
            raise http.client.HTTPException("too many bytes around its body")
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    """A response of which only an allowed number of bytes is read, however they are framed."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._counted = _Counted(self.fp.detach(), HEAD_BYTES)
        self.fp = io.BufferedReader(self._counted)

    def body(self, max_bytes: int) -> bytes:
        """Return the body; if it exceeds `max_bytes`, only its beginning, of more than that."""
        self._counted.left += max_bytes + FRAMING_BYTES
        body, piece = bytearray(), memoryview(bytearray(FRAMING_BYTES))
        while len(body) <= max_bytes and (count := self.readinto(piece)):
            body += piece[:count]
        return bytes(body)


class GatewayClient:
    """Sends requests to one gateway, one after another, over a connection that stays open.

    Parameters
    ----------
    url : str
        The gateway's address: ``"https://telemetry.example.com"``, possibly with a path.
    token : str, optional
        A token with the scope `report`, if the gateway requires one.
    tls : SSLContext, optional
        The TLS context; by default one with the system's certificates.
    timeout : float
        Seconds that each step of a request may take. All steps of a request together may take four
        times as long, so that an endless answer cannot keep a device waiting.
    """

    server = "gateway"
    posts_path = REPORTS_PATH
    media_type = PROTOBUF_TYPE

    def __init__(
        self,
        url: str,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        timeout: float = 30.0,
    ) -> None:
        expected = f"expected a {self.server}'s address, such as 'https://telemetry.example.com'"
        if not isinstance(url, str):
            raise TypeError(f"{self.server} = {url!r:.200}: {expected}")
        try:
            url_parts = urlsplit(url)
            port = url_parts.port
        except ValueError:
            url_parts, port = urlsplit(""), None
        if not url_parts.hostname or not GATEWAY_ADDRESS.fullmatch(url) or port == 0:
            shown = re.sub("//.*@", "//***@", url, flags=re.DOTALL)
            raise ValueError(
                f"{self.server} = {shown!r}: {expected}, without user, query, fragment, blanks or "
                "a path beyond ASCII"
            )
        if not timeout > 0:
            raise ValueError(f"timeout = {timeout}: expected seconds, above 0")
        self.url = url.rstrip("/").removesuffix(REPORTS_PATH)
        self.is_secret = url_parts.scheme == "https"
        self.host, self._port, self._timeout = url_parts.hostname, port, timeout
        self._path = url_parts.path.rstrip("/").removesuffix(REPORTS_PATH)
        self._headers: dict[str, str] = {}
        if token is not None:
            self.set_token(token)
        self._tls = (tls or ssl.create_default_context()) if self.is_secret else None
        self._connection: http.client.HTTPConnection | None = None
        self._carrier: socket.socket | None = None  # a connection forgets it before its last answer
        self._used, self._deadline, self._lock = 0.0, 0.0, threading.Lock()
        self._silent_server: ServerKind | None = None
        self._other_server_text = ""
        self._is_server_identified = False
        """Whether the server speaks HTTP, or its kind was looked up."""

    @property
    def is_on_this_machine(self) -> bool:
        """Whether requests stay on this machine."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def set_token(self, token: str) -> None:
        """Send this token from now on.

        Raises ValueError if the text cannot be a token.
        """
        if not re.fullmatch(r"[!-~]+", token):
            raise ValueError(
                "token: expected visible ASCII characters, without spaces or line ends"
            )
        self._headers = {"Authorization": f"Bearer {token}"}

    def post(self, payload: bytes) -> GatewayAnswer:
        """Post a batch, and return the gateway's answer.

        Raises GatewayError if there is no answer; the gateway may still have the batch.
        """
        headers = {"Content-Type": self.media_type}
        with self._lock:
            return self._request("POST", self.posts_path, payload, headers, LARGEST_ANSWER)

    def get(self, *path: str) -> bytes:
        """Return the body of the gateway's answer to GET for a metric.

        `path`: the metric's name, and the parts of a path below it, such as "round".

        Raises GatewayError if there is no answer, or its status is not 200.
        """
        request_path = "/".join([METRICS_PATH, *(quote(part, safe="") for part in path)])
        return self.get_path(request_path, LARGEST_DEFINITION if len(path) == 1 else LARGEST_ANSWER)

    def get_path(self, request_path: str, max_bytes: int) -> bytes:
        """Return the body of the answer to GET; raise GatewayError if it fails.

        `max_bytes`: the largest accepted size of the body.
        """
        with self._lock:
            answer = self._request("GET", request_path, None, {}, max_bytes)
        if answer.status != http.client.OK:
            self.close()
            raise self.error(f"GET {request_path}: {explain(answer)}", answer.status)
        return answer.body

    def error(self, detail: str, status: int = 0) -> GatewayError:
        """Return an error that names this server."""
        return GatewayError(self.url, detail, status, self.server)

    def close(self) -> None:
        """Close the connection; the next request opens a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def abort(self) -> None:
        """Abort the request for whose answer another thread waits."""
        connection = self._connection
        for carrier in (self._carrier, None if connection is None else connection.sock):
            if carrier is not None:
                with suppress(OSError):
                    carrier.shutdown(socket.SHUT_RDWR)

    def _request(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], max_bytes: int
    ) -> GatewayAnswer:
        if time.monotonic() - self._used > IDLE_SECONDS:
            self.close()
        is_late = threading.Event()

        def give_up() -> None:
            is_late.set()
            self.abort()

        self._deadline = time.monotonic() + MOST_STEPS * self._timeout
        timers = [threading.Timer(MOST_STEPS * self._timeout, give_up)]
        if not self._is_server_identified:
            timers.append(threading.Timer(SILENT_SECONDS, self._abort_if_silent))
        for timer in timers:
            timer.daemon = True
            timer.start()
        try:
            try:
                is_new = self._connection is None
                response = self._sent(method, path, body, headers)
            except (http.client.HTTPException, ConnectionError):
                if is_new or is_late.is_set():
                    raise
                self.close()  # the other side closed it while it was idle
                response = self._sent(method, path, body, headers)
            self._is_server_identified, self._other_server_text = True, ""
            answer = GatewayAnswer(
                response.status,
                response.headers.get_content_type(),
                response.headers.get("Retry-After", ""),
                response.headers.get("Location", ""),
                response.body(max_bytes),
            )
            if is_late.is_set():  # and the body is what had come by then
                raise TimeoutError
            if len(answer.body) > max_bytes or response.will_close:
                self.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            reason, remedy = str(error).strip() or type(error).__name__, ""
            if time.monotonic() >= self._deadline:
                reason = f"not all of it came within {MOST_STEPS * self._timeout:g} s"
            else:
                remedy = self._other_server()
            remedy = remedy or f": check the address, the network and the {self.server}"
            raise self.error(f"no answer ({reason}){remedy}") from None
        finally:
            for timer in timers:
                timer.cancel()
        self._used = time.monotonic()
        if len(answer.body) > max_bytes:
            problem = f"{method} {path}: an answer of more than {max_bytes} bytes"
            raise self.error(problem, answer.status)
        return answer

    def _identify_server(self) -> ServerKind | None:
        port = self._port or (http.client.HTTPS_PORT if self.is_secret else http.client.HTTP_PORT)
        return identify_server(self.host, port)

    def _abort_if_silent(self) -> None:
        """Abort the first request if the server is silent."""
        server = self._identify_server()
        if server is not None and server.kind == SILENT_SERVER and not self._is_server_identified:
            self._silent_server = server
            self.abort()

    def _other_server(self) -> str:
        """Return as text which unexpected kind of server is there; "" if that is unknown."""
        if not self._is_server_identified:
            self._is_server_identified = True
            server = self._silent_server or self._identify_server()
            if server is not None and server != ServerKind(HTTP_SERVER, self.is_secret):
                is_http = server.kind == HTTP_SERVER
                remedy = f"write http{'s' * server.has_tls}://" if is_http else "no gateway"
                self._other_server_text = f"; {server} is there: {remedy}"
        return self._other_server_text

    def _sent(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> _Response:
        if self._connection is None:
            self._connection = self._connected()
            self._connection.response_class = _Response
            self._connection._create_connection = self._reached  # type: ignore[attr-defined]
            self._connection.connect()
            if time.monotonic() > self._deadline:  # the timer found nothing to cut off
                raise TimeoutError
        self._connection.request(method, self._path + path, body, self._headers | headers)
        self._carrier = self._connection.sock
        return cast("_Response", self._connection.getresponse())

    def _reached(self, address: tuple[str, int], timeout: float, *_: object) -> socket.socket:
        """Connect to a host's first address that answers; all attempts share the deadline."""
        failure: OSError = TimeoutError()
        for family, kind, protocol, _name, address_found in socket.getaddrinfo(
            *address, type=socket.SOCK_STREAM
        ):
            if (left := self._deadline - time.monotonic()) <= 0:
                break
            carrier = socket.socket(family, kind, protocol)
            try:
                carrier.settimeout(min(timeout, left))
                carrier.connect(address_found)
                carrier.settimeout(timeout)
            except OSError as error:
                carrier.close()
                failure = error
            else:
                return carrier
        raise failure

    def _connected(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self.host, self._port, timeout=self._timeout)
        return http.client.HTTPSConnection(
            self.host, self._port, timeout=self._timeout, context=self._tls
        )
