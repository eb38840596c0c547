"""A deployment on the Kafka and the Redis of this run."""

from __future__ import annotations

from tests.support.running.fixtures import deployment, deployment_of, metrics_file

__all__ = ["deployment", "deployment_of", "metrics_file"]
