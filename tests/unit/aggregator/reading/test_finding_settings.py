"""A reader finds the deployment as the command line does, and takes times as people have them."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aggregator import Reader
from tests.support.reports.counted import Counting
from tests.support.reports.messages import EPOCH
from tests.support.rows import row

BEGIN = EPOCH / 1000
DAY = 86_400


@pytest.fixture
def here(
    counting: Counting, redis_url: str, metrics_file: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Return a folder with the settings of a deployment that has counted, as the present one."""
    early = [counting.batch("delay", [0.0] * 40, 0) for _ in range(10)]
    late = [counting.batch("delay", [10.0] * 40, DAY / 60) for _ in range(10)]
    counting.count(0, *early, *late)
    folder = metrics_file.parent
    monkeypatch.chdir(folder)
    (folder / "dither.toml").write_text(
        f'[redis]\nurl = "{redis_url}"\n[topics]\nreports = "{counting.store.topic}"\n'
    )
    return folder


def test_variables_count_before_the_file_of_the_folder_and_arguments_before_variables(
    here: Path, redis_url: str, metrics_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Reader() as reader:
        assert reader.estimate("delay").reports == 800
        assert next(iter(reader.metrics)) == "delay"
    monkeypatch.setenv("DITHER_TOPICS_REPORTS", "another")
    with Reader() as reader:
        assert reader.estimate("delay").status == "not_ready"
    with Reader(topic="dither.reports") as reader:
        assert reader.estimate("delay").reports == 800
    monkeypatch.setenv("DITHER_REDIS_URL", "redis://127.0.0.1:1/0")
    with Reader(redis_url, metrics_file, "dither.reports") as reader:
        assert reader.estimate("delay").reports == 800


def test_a_window_begins_at_a_time_in_any_form(here: Path) -> None:
    moment = datetime.datetime.fromtimestamp(BEGIN, datetime.UTC)
    starts: list[Any] = [
        BEGIN,
        moment,
        moment.astimezone(datetime.timezone(datetime.timedelta(hours=5))),
        moment.isoformat(),
        moment.replace(tzinfo=None).isoformat(),
        np.float64(BEGIN),
        str(BEGIN),
        datetime.timedelta(days=1),
        "1d",
    ]
    with Reader() as reader:
        for start in starts:
            with row(repr(start)):
                found = reader.estimate("delay", start, BEGIN + DAY)
                assert found.reports == 400
                assert found.shown < 5


def test_a_duration_alone_is_the_last_stretch_that_was_counted(here: Path) -> None:
    with Reader() as reader:
        last = reader.estimate("delay", window="1h")
        assert (last.reports, last.shown > 5) == (400, True)
        assert reader.estimate("delay", "1h").reports == 400
        assert reader.estimate("delay", datetime.timedelta(hours=1)).reports == 400
        assert reader.estimate("delay", window=datetime.timedelta(days=2)).reports == 800
        points = reader.series("delay", "2d", step=datetime.timedelta(days=1)).points
        assert sum(point.reports for point in points) == 800
        assert len(points) <= 3
