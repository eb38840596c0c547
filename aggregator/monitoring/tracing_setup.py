"""Sets tracing up if it is configured, and imports OpenTelemetry only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.config.settings import Settings

if TYPE_CHECKING:
    from aggregator.monitoring.otlp.tracing import Tracing


def configured_tracing(settings: Settings, instance: str) -> Tracing | None:
    """Return the sender of spans of the process `instance`; None if tracing is not configured."""
    if not (settings.otlp.endpoint and settings.otlp.traces):
        return None
    from aggregator.monitoring.otlp.tracing import Tracing

    return Tracing(settings, instance)
