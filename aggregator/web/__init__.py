"""The HTTP server: dashboard, API, live events, Prometheus metrics."""

from aggregator.web.application import application

__all__ = ["application"]
