"""The HTTP server, which logs where it listens."""

from __future__ import annotations

import socket

import structlog
import uvicorn

log = structlog.get_logger("dither.serve")


def shared_sockets(host: str, port: int) -> list[socket.socket]:
    """Return sockets for a port that other processes listen on, too, one for each address.

    The kernel distributes connections among the processes that listen. A socket that is bound and
    does not listen gets none, and keeps others from taking the port.

    Parameters
    ----------
    host : str
        A name or an address; empty for all of this machine's.
    port : int
        0: any that is free, the same for all addresses.

    Raises
    ------
    OSError
        If it cannot be bound.
    """
    kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
    found: list[socket.socket] = []
    for family, _, _, _, address in socket.getaddrinfo(host or None, port, type=kind, flags=flags):
        one = socket.socket(family, kind)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        chosen = found[0].getsockname()[1] if found else port
        one.bind((address[0], chosen, *address[2:]))
        found.append(one)
    return found


class Server(uvicorn.Server):
    """A server that logs where it listens, once it does."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, and listen."""
        await super().startup(sockets)
        if self.started:
            log.info("serving", url=url(self.config, self.servers[0].sockets[0].getsockname()[1]))


def url(config: uvicorn.Config, port: int) -> str:
    """Return where a server answers.

    Examples
    --------
    >>> url(uvicorn.Config("app", host="::1"), 8080)
    'http://[::1]:8080/'
    """
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"{'https' if config.is_ssl else 'http'}://{host}:{port}/"
