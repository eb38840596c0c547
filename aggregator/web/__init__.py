"""The HTTP server: dashboard, API, live events, Prometheus metrics."""
