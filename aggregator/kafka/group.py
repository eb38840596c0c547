"""Asks Kafka which partitions no member of a consumer group owns."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from aggregator.config.settings import Settings
from aggregator.kafka import clients


class GroupWatch:
    """Returns the partitions of the reports topic that the workers' group has given to nobody.

    Parameters
    ----------
    settings : Settings
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: AdminClient | None = None

    def __call__(self, partitions: Iterable[int]) -> list[int] | None:
        """Return those of `partitions`, ascending; None while that is open, or cannot be known."""
        group, topic = self._settings.aggregate.group, self._settings.topics.reports
        if self._client is None:
            config = clients.administrative(self._settings)
            self._client = AdminClient(config, logger=clients.QUIET)
        try:
            answer = self._client.describe_consumer_groups(
                [group], request_timeout=clients.ANSWER_SECONDS
            )[group]
            found = answer.result(timeout=clients.ANSWER_SECONDS)
        except (KafkaException, TimeoutError):
            self._client = None
            return None
        if found.state != ConsumerGroupState.STABLE:
            return None
        owned = {
            place.partition
            for member in found.members
            for place in member.assignment.topic_partitions
            if place.topic == topic
        }
        return sorted({*partitions} - owned)
