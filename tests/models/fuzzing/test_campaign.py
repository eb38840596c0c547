"""Whatever is written to Kafka beside them, honest reports are counted, by processes that go on."""

from pathlib import Path

import pytest

from tests.models.fuzzing.campaign import Campaign
from tests.support.running.servers import Kafka


@pytest.mark.parametrize(
    ("messages", "largest"),
    [
        pytest.param(700, 100_000_000, marks=pytest.mark.more),
        pytest.param(100_000, 270_000_000, marks=pytest.mark.slow),
    ],
)
def test_every_honest_report_is_counted_beside_hostile_messages(
    apache_kafka: Kafka, redis_url: str, tmp_path: Path, messages: int, largest: int
) -> None:
    campaign = Campaign(apache_kafka, redis_url, tmp_path, seed=1, largest=largest)
    with campaign.deployment.store:
        campaign.run(messages, seconds=1_200)
    assert campaign.honest_reports.total() > 0
    assert campaign.written["bomb"] > 0
