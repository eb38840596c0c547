"""Checks whether a server's port is free."""

from __future__ import annotations

import errno
import socket

from aggregator.errors import DitherError

TAKEN_ERRORS = (errno.EADDRINUSE, errno.EACCES)


def refuse_taken(host: str, port: int, choose: str = "--port, or serve.port") -> None:
    """Raise DitherError if a port is taken, before a server is started on it.

    Parameters
    ----------
    host : str
        A name or an address; empty for all addresses of this machine.
    port : int
        The port; 0 for any free port, which cannot be taken.
    choose : str
        The options that choose another port, for the message.
    """
    failures: list[OSError] = []
    try:
        kind, flags = socket.SOCK_STREAM, socket.AI_PASSIVE
        addresses = socket.getaddrinfo(host or None, port, type=kind, flags=flags)
    except OSError as error:
        raise _no_address(host, error) from None
    for family, _, _, _, address in addresses:
        try:
            socket.create_server(address, family=family).close()
        except OSError as error:
            failures.append(error)
    taken_errors = [error for error in failures if error.errno in TAKEN_ERRORS]
    if taken_errors:
        raise DitherError(
            f"port {port} of {host}: {taken_errors[0].strerror}: choose another ({choose})"
        )
    if len(failures) == len(addresses):
        raise _no_address(host, failures[0])


def _no_address(host: str, error: OSError) -> DitherError:
    return DitherError(
        f"host {host!r}: {error.strerror}: choose an address of this machine (--host, or "
        "serve.host)"
    )
