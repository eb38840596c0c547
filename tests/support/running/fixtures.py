"""Fixtures that the services' tests share."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from deploy.kafka.cluster import KafkaCluster
from tests.support.reports.metrics import METRICS
from tests.support.running.deployment import Deployment
from tests.support.running.servers import Kafka, need_apache_kafka


@pytest.fixture
def metrics_file(tmp_path: Path) -> Path:
    file = tmp_path / "metrics.toml"
    file.write_text(METRICS)
    return file


@pytest.fixture
def own_kafka(tmp_path: Path) -> Iterator[KafkaCluster]:
    """A broker for one test alone, which may kill it and change its data."""
    need_apache_kafka()
    with KafkaCluster(tmp_path / "kafka") as cluster:
        yield cluster


@pytest.fixture
def defined(kafka: Kafka, redis_url: str, tmp_path: Path) -> Iterator[Callable[..., Deployment]]:
    """A function that makes a deployment with metrics given as TOML."""
    with ExitStack() as stack:

        def deployed(definitions: str, partitions: int = 6) -> Deployment:
            file = tmp_path / "metrics.toml"
            file.write_text(definitions)
            made = Deployment(kafka, redis_url, file, partitions)
            stack.enter_context(made.store)
            return made

        yield deployed


@pytest.fixture
def deployment(defined: Callable[..., Deployment]) -> Deployment:
    return defined(METRICS)
