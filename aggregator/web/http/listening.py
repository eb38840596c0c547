"""The HTTP server, its sockets, and its TLS certificate, which SIGHUP reloads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import structlog
import uvicorn

from aggregator.config.live_metrics import add_hangup_handler
from aggregator.config.settings import Settings
from aggregator.errors import DitherError, SettingsError
from aggregator.web.http.small_posts import PostProtocol

if TYPE_CHECKING:
    from starlette.applications import Starlette

TICK_SECONDS = 1.0
LEAVE_SECONDS = 5
"""The time for open requests when the server ends; streams are closed at once."""

log = structlog.get_logger("dither.serve")


def shared_sockets(host: str, port: int) -> list[socket.socket]:
    """Return sockets for a port that other processes share, one for each address.

    The kernel distributes connections among the listening processes. A socket that does not listen
    gets no connections, but reserves the port.

    Parameters
    ----------
    host : str
        A name or an address; empty for all addresses of this machine.
    port : int
        The port; 0 for any free port, which is then the same for all addresses.

    Raises
    ------
    OSError
        If the port cannot be bound.
    """
    kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
    sockets: list[socket.socket] = []
    for family, _, _, _, address in socket.getaddrinfo(host or None, port, type=kind, flags=flags):
        socket_ = socket.socket(family, kind)
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        socket_.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            socket_.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        chosen_port = sockets[0].getsockname()[1] if sockets else port
        socket_.bind((address[0], chosen_port, *address[2:]))
        sockets.append(socket_)
    return sockets


class Server(uvicorn.Server):
    """A server that logs its address once it listens, and that wakes once a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._leaving = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, and listen."""
        await super().startup(sockets)
        if self.started:
            log.info("serving", url=url(self.config, self.servers[0].sockets[0].getsockname()[1]))

    async def main_loop(self) -> None:
        """Renew the date of responses once a second, until a signal; uvicorn wakes ten times."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), TICK_SECONDS)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Leave at once."""
        super().handle_exit(sig, frame)
        asyncio.get_running_loop().call_soon_threadsafe(self._leaving.set)


def run_server(
    app: Starlette,
    settings: Settings,
    certificate: tuple[str, str] | None,
    log_level: str,
    sockets: list[socket.socket] | None = None,
) -> bool:
    """Serve an application until a signal; return whether the server could start.

    `app`: the application; `settings`: the settings of the deployment; `certificate`, optional: the
    files from :func:`certificate_files`; `log_level`: the level of the
    server's log; `sockets`: where to listen; by default at the settings' host and port.
    """
    config = uvicorn.Config(
        app,
        host=settings.serve.host,
        port=settings.serve.port,
        log_level="error" if log_level == "error" else "warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the application applies serve.trusted_proxies
        http=PostProtocol,
        loop="uvloop",
        ws="none",
        timeout_graceful_shutdown=LEAVE_SECONDS,
        ssl_certfile=certificate and certificate[0],
        ssl_keyfile=certificate and certificate[1],
    )
    config.load()
    if certificate and config.ssl:
        config.ssl.options |= ssl.OP_NO_TICKET  # a resumed session would link a device's posts
        config.ssl.num_tickets = 0
        reload_on_hangup(config.ssl, *certificate)
    server = Server(config)
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets)
    return server.started


def url(config: uvicorn.Config, port: int) -> str:
    """Return the URL of a server.

    Examples
    --------
    >>> url(uvicorn.Config("app", host="::1"), 8080)
    'http://[::1]:8080/'
    """
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"{'https' if config.is_ssl else 'http'}://{host}:{port}/"


def certificate_files(settings: Settings) -> tuple[str, str] | None:
    """Return the files of the certificate and its key; None without TLS.

    Raises SettingsError if a file cannot be read, DitherError if it is no certificate or no key.
    """
    serve = settings.serve
    file_settings = {"serve.tls_certificate": serve.tls_certificate, "serve.tls_key": serve.tls_key}
    if not any(file_settings.values()):
        return None
    for key, file in file_settings.items():
        if not os.access(file, os.R_OK):
            source = settings.sources.get(key, "default")
            raise SettingsError(key, file, "a PEM file that this user can read", source)
    load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), serve.tls_certificate, serve.tls_key)
    return serve.tls_certificate, serve.tls_key


def load_certificate(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Load a certificate (with its chain) and its key, for the handshakes from now on.

    `context`: the context of the server; `certificate`, `key`: files in PEM. Raises DitherError if
    a file cannot be used.
    """
    try:
        context.load_cert_chain(certificate, key, password=_refuse_passphrase)
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or error.strerror
        raise DitherError(
            f"[serve] tls_certificate = {certificate!r} with tls_key = {key!r} cannot be used "
            f"({reason}): expected PEM files, the certificate with its chain, and the key of this "
            "certificate"
        ) from None


def reload_on_hangup(context: ssl.SSLContext, certificate: str, key: str) -> None:
    """Reload a certificate and its key on SIGHUP; files that cannot be used change nothing.

    `context`, `certificate`, `key`: as for :func:`load_certificate`.
    """

    def reload() -> None:
        try:
            load_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key)
            load_certificate(context, certificate, key)
        except DitherError as error:
            log.error("certificate not reloaded", error=str(error))  # noqa: TRY400
        else:
            log.info("certificate reloaded", file=certificate)

    add_hangup_handler(reload)


def _refuse_passphrase() -> NoReturn:
    raise DitherError(
        "[serve] tls_key is encrypted: expected a key without a passphrase, in a file that only "
        "this user can read"
    )
