"""Sets tracing up, if it is configured; otherwise OpenTelemetry is not imported."""

from __future__ import annotations

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
