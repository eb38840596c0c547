"""A store, the metrics of these tests, and what counts them into it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from aggregator.storage.store import Store
from estimators import Metric, load_metrics
from tests.support.reports.counted import DEFINITIONS, Counting, connected


@pytest.fixture
def metrics_file(tmp_path: Path) -> Path:
    file = tmp_path / "metrics.toml"
    file.write_text(DEFINITIONS)
    return file


@pytest.fixture
def metrics(metrics_file: Path) -> dict[str, Metric]:
    return load_metrics(metrics_file)


@pytest.fixture
def store(redis_url: str) -> Iterator[Store]:
    with connected(redis_url) as store:
        yield store


@pytest.fixture
def counting(store: Store, metrics: dict[str, Metric]) -> Counting:
    return Counting(store, metrics)
