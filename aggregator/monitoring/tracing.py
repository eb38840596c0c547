"""Begins what sends spans, if the settings say so; else OpenTelemetry is not imported."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggregator.config.settings import Settings

if TYPE_CHECKING:
    from aggregator.monitoring.otlp.tracing import Tracing


def configured_tracing(settings: Settings, instance: str) -> Tracing | None:
    """Return what sends spans to a collector, if that is configured.

    Parameters
    ----------
    settings : Settings
    instance : str
        What tells this process from others of the service.
    """
    if not (settings.otlp.endpoint and settings.otlp.traces):
        return None
    from aggregator.monitoring.otlp.tracing import Tracing

    return Tracing(settings, instance)
