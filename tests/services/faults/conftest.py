"""The deployment of the integration tests."""

from tests.support.running.fixtures import defined, deployment, metrics_file, own_kafka

__all__ = ["defined", "deployment", "metrics_file", "own_kafka"]
