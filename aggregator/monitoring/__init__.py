"""Exported metrics, for Prometheus and OpenTelemetry."""
