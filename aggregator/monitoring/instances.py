"""What tells the processes of a deployment apart, where they send to a collector."""

from __future__ import annotations

import os
import socket

from aggregator.config.settings import Settings


def server_instance(settings: Settings) -> str:
    """Return what tells a server from others: its host and port, or process if several share it."""
    if settings.serve.workers > 1:
        return process_instance()
    return f"{socket.gethostname()}:{settings.serve.port}"


def process_instance() -> str:
    """Return what tells this process from others."""
    return f"{socket.gethostname()}:{os.getpid()}"
