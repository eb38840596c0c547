"""The rate of the demo is that of counting: looks and releases come after it."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from aggregator.local import demo


def test_the_rate_is_of_reports_until_the_last_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter(range(10, 1000))
    found: Any = MagicMock(_began=0.0, _produced=SimpleNamespace(reports=600))
    found._relay.reports = 0
    found._counted.side_effect = [599] * 5 + [600] * 30
    found._is_released.side_effect = [False] * 25 + [True]
    found._store.registry.publisher_status.return_value = (True, {"final": 0})
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)), sleep=lambda _: None)
    for name, value in (("time", clock), ("read_looks", MagicMock()), ("verify", MagicMock())):
        monkeypatch.setattr(demo, name, value)
    rate = demo.Demonstration.finish(found).reports_per_second
    assert rate > 600 / 20, "it was released after 35 seconds at the earliest"
