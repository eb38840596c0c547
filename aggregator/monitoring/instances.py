"""Names by which an OpenTelemetry collector distinguishes the processes of a deployment."""

from __future__ import annotations

import os
import socket

from aggregator.config.settings import Settings


def server_instance(settings: Settings) -> str:
    """Return a server's name: host and port, or host and process if several share the port."""
    if settings.serve.workers > 1:
        return process_instance()
    return f"{socket.gethostname()}:{settings.serve.port}"


def process_instance() -> str:
    """Return this process's name: host and process id."""
    return f"{socket.gethostname()}:{os.getpid()}"
