"""Which dead letters are safe to send again."""

import re
from typing import Any
from unittest.mock import Mock

import pytest

from aggregator.config.settings import Settings
from aggregator.dead_letters.letter_replay import Forecast
from aggregator.dead_letters.reasons import REMEDY_BY_REASON, remedy
from aggregator.kafka.topic_admin import stamps_messages
from aggregator.state.admission import Rule
from aggregator.state.watermark import Watermark
from producers.wire.reports_pb2 import ReportBatch
from tests.support.paths import ROOT
from tests.support.reports.messages import ARRIVAL, batch
from tests.support.reports.partitions import DELAY, METRICS


def letter(sent: ReportBatch) -> Any:
    facts = {"position": "0:0", "arrived": ARRIVAL, "key": None, "replays": 0, "whole_bytes": None}
    return Mock(batch=sent, value=sent.SerializeToString(), origin=Mock(partition=0), **facts)


@pytest.mark.parametrize(
    ("stamps", "reason"), [(True, "time_lost"), (None, "time_unsafe"), (False, None)]
)
def test_a_batch_of_kafkas_time_is_sent_where_kept(stamps: bool | None, reason: str | None) -> None:
    store: Any = Mock(watermarks=lambda _: dict[str, Watermark]())
    forecast = Forecast(Settings(), METRICS, store, 1, stamps=stamps, rounds=3)
    refused = forecast.rejections([letter(batch(DELAY, [1.0], time_ms=0))])
    assert [found for found, _ in refused.values()] == [reason] * bool(reason)


def test_where_nobody_may_ask_it_is_not_known_whether_a_topic_stamps_messages() -> None:
    settings = Settings()
    settings.topics.managed = False
    assert stamps_messages(settings, "reports") is None
    assert "DescribeConfigs" in remedy("time_unsafe").do


def test_every_reason_for_which_a_message_is_refused_has_a_remedy() -> None:
    files = [*ROOT.glob("estimators/**/*.py"), *ROOT.glob("producers/wire/*.py")]
    text = "".join(file.read_text() for file in files)
    raised = set(re.findall(r'ReportError\(\s*"(\w+)"', text))
    broken = {rule.name.lower() for rule in Rule} - {"admitted", "duplicate"}
    assert len(raised) > 10
    assert raised | broken <= REMEDY_BY_REASON.keys()
