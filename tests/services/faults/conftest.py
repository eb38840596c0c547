"""The deployment of the integration tests."""

from tests.support.running.fixtures import deployment, metrics_file

__all__ = ["deployment", "metrics_file"]
