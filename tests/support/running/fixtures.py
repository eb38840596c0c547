"""Fixtures that the services' tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.reports.metrics import METRICS
from tests.support.running.deployment import Deployment
from tests.support.running.servers import Kafka


@pytest.fixture
def metrics_file(tmp_path: Path) -> Path:
    file = tmp_path / "metrics.toml"
    file.write_text(METRICS)
    return file


@pytest.fixture
def deployment(kafka: Kafka, redis_url: str, metrics_file: Path) -> Iterator[Deployment]:
    deployment = Deployment(kafka, redis_url, metrics_file)
    with deployment.store:
        yield deployment


@pytest.fixture
def deployment_of(kafka: Kafka, redis_url: str) -> Callable[[Path], Deployment]:
    return lambda file: Deployment(kafka, redis_url, file)
