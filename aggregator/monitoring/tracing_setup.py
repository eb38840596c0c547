"""The names of processes for OpenTelemetry, and tracing; the library is imported if it is used."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from aggregator.config.settings import Settings

if TYPE_CHECKING:
    from aggregator.monitoring.otlp.tracing import Tracing


def server_instance(settings: Settings) -> str:
    """Return a server's name: host and port, or host and process if several share the port."""
    if settings.serve.workers > 1:
        return process_instance()
    return f"{socket.gethostname()}:{settings.serve.port}"


def process_instance() -> str:
    """Return this process's name: host and process id."""
    return f"{socket.gethostname()}:{os.getpid()}"


def configured_tracing(settings: Settings, instance: str) -> Tracing | None:
    """Return the sender of spans of the process `instance`; None if tracing is not configured."""
    if not (settings.otlp.endpoint and settings.otlp.traces):
        return None
    from aggregator.monitoring.otlp.tracing import Tracing

    return Tracing(settings, instance)
