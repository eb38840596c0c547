"""The HTTP server and its sockets."""

from __future__ import annotations

import socket

import structlog
import uvicorn

log = structlog.get_logger("dither.serve")


def shared_sockets(host: str, port: int) -> list[socket.socket]:
    """Return sockets for a port that other processes share, one for each address.

    The kernel distributes connections among the listening processes. A socket that does not listen
    gets none, and reserves the port.

    Parameters
    ----------
    host : str
        A name or an address; empty for all addresses of this machine.
    port : int
        0 for any free port, the same for all addresses.

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
    """A server that logs its address once it listens."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, and listen."""
        await super().startup(sockets)
        if self.started:
            log.info("serving", url=url(self.config, self.servers[0].sockets[0].getsockname()[1]))


def url(config: uvicorn.Config, port: int) -> str:
    """Return the URL of a server.

    Examples
    --------
    >>> url(uvicorn.Config("app", host="::1"), 8080)
    'http://[::1]:8080/'
    """
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"{'https' if config.is_ssl else 'http'}://{host}:{port}/"
