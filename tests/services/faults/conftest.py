"""The deployment of the integration tests."""

from tests.support.running.fixtures import deployment, deployment_of, metrics_file

__all__ = ["deployment", "deployment_of", "metrics_file"]
