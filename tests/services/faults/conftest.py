"""The deployment of the integration tests."""

from tests.services.integration.conftest import deployment, metrics_file

__all__ = ["deployment", "metrics_file"]
