"""Whatever is written to Kafka beside them, honest reports are counted, by processes that go on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models.fuzzing.campaign import Campaign, Outcome
from tests.support.running.servers import Kafka

MANY = 100_000


def attacked(kafka: Kafka, redis_url: str, folder: Path, messages: int, largest: int) -> Outcome:
    campaign = Campaign(kafka, redis_url, folder, seed=1, largest=largest)
    with campaign.deployment.store:
        return campaign.run(messages, seconds=1_200, halts=messages >= MANY)


@pytest.mark.more
def test_every_honest_report_is_counted_beside_hostile_messages(
    apache_kafka: Kafka, redis_url: str, tmp_path: Path
) -> None:
    outcome = attacked(apache_kafka, redis_url, tmp_path, 1_500, 100_000_000)
    assert outcome.honest.total() > 0
    assert outcome.written["bomb"] > 0


@pytest.mark.slow
def test_every_honest_report_is_counted_beside_100_000_hostile_messages(
    apache_kafka: Kafka, redis_url: str, tmp_path: Path
) -> None:
    outcome = attacked(apache_kafka, redis_url, tmp_path, MANY, 270_000_000)
    assert outcome.written["any"] >= MANY
