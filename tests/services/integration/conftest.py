"""Deployments on the Kafka and the Redis of this run."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support.running.deployment import Deployment, other_database
from tests.support.running.fixtures import defined, deployment, metrics_file, own_kafka
from tests.support.running.servers import Kafka, Redis

__all__ = ["defined", "deployment", "lasting", "metrics_file", "own_kafka"]


@pytest.fixture(scope="module")
def lasting(
    kafka: Kafka, redis_server: Redis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Deployment]]:
    """Makes one for all tests of a module, in a database of its own."""
    redis_server.clear()
    with ExitStack() as stack:

        def deployed(definitions: str) -> Deployment:
            file = tmp_path_factory.mktemp("lasting") / "metrics.toml"
            file.write_text(definitions)
            made = Deployment(kafka, other_database(redis_server.url), file)
            stack.enter_context(made.store).client.flushdb()
            return made

        yield deployed
