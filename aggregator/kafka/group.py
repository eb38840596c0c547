"""Asks Kafka which partitions have no owner in a consumer group."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import AdminClient

from aggregator.config.settings import Settings
from aggregator.kafka import clients


class GroupWatch:
    """Finds partitions of the reports topic that the workers' group has assigned to nobody."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: AdminClient | None = None

    def __call__(self, partitions: Iterable[int]) -> list[int] | None:
        """Return the unassigned ones of `partitions`, ascending; None if Kafka does not say."""
        group, topic = self._settings.aggregate.group, self._settings.topics.reports
        if self._client is None:
            config = clients.admin_properties(self._settings)
            self._client = AdminClient(config, logger=clients.LIBRDKAFKA_LOG)
        try:
            answer = self._client.describe_consumer_groups(
                [group], request_timeout=clients.ANSWER_SECONDS
            )[group]
            group_description = answer.result(timeout=clients.ANSWER_SECONDS)
        except (KafkaException, TimeoutError):
            self._client = None
            return None
        if group_description.state != ConsumerGroupState.STABLE:
            return None
        owned = {
            assigned.partition
            for member in group_description.members
            for assigned in member.assignment.topic_partitions
            if assigned.topic == topic
        }
        return sorted({*partitions} - owned)
