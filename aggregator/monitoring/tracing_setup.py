"""Sets tracing up, if it is configured, and names this process in an OpenTelemetry collector.

OpenTelemetry is imported only if it is configured.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from aggregator.config.settings import Settings

if TYPE_CHECKING:
    from aggregator.monitoring.otlp.tracing import Tracing


def configured_tracing(settings: Settings, instance: str) -> Tracing | None:
    """Return the sender of spans, if it is configured, for the process named `instance`."""
    if not (settings.otlp.endpoint and settings.otlp.traces):
        return None
    from aggregator.monitoring.otlp.tracing import Tracing

    return Tracing(settings, instance)


def server_instance(settings: Settings) -> str:
    """Return a server's name: host and port, or host and process if several share the port."""
    if settings.serve.workers > 1:
        return process_instance()
    return f"{socket.gethostname()}:{settings.serve.port}"


def process_instance() -> str:
    """Return this process's name: host and process id."""
    return f"{socket.gethostname()}:{os.getpid()}"
