"""The HTTP server, which logs where it listens."""

from __future__ import annotations

import socket

import structlog
import uvicorn

log = structlog.get_logger("dither.serve")


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
