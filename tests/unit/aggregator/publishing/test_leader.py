"""An outage that lasts is told once a minute."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import redis

from aggregator.publishing import leader


def test_an_outage_of_redis_is_told_once_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now, told = [0.0], list[tuple[float, str]]()

    def wait(seconds: float) -> None:
        now[0] += seconds

    waiting: Any = MagicMock(work="publish")
    waiting.log.warning.side_effect = lambda _, error, **__: told.append((now[0], error))
    waiting.lease.acquire.side_effect = redis.ConnectionError("refused")
    waiting._logged_at, waiting._stopping.wait = float("-inf"), wait
    waiting._stopping.is_set = lambda: now[0] > 600
    monkeypatch.setattr(leader, "time", SimpleNamespace(monotonic=lambda: now[0]))
    leader.Leader.run(waiting)
    assert all(error.startswith("Redis does not answer (refused)") for _, error in told)
    assert 8 <= sum(time > leader.OUTAGE_LOG_SECONDS for time, _ in told) <= 10, told
