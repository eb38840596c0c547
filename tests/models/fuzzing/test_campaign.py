"""Whatever is written to Kafka beside them, honest reports are counted, by processes that go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models.fuzzing.campaign import Campaign
from tests.support.running.servers import Kafka


@pytest.mark.more
def test_every_honest_report_is_counted_beside_hostile_messages(
    apache_kafka: Kafka, redis_url: str, tmp_path: Path
) -> None:
    campaign = Campaign(apache_kafka, redis_url, tmp_path, seed=1, largest=100_000_000)
    with campaign.deployment.store:
        outcome = campaign.run(700, seconds=1_200)
    assert outcome.honest.total() > 0
    assert outcome.written["bomb"] > 0
