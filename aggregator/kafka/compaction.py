"""Checks whether the reports topic is compacted, so that Kafka deletes reports."""

from __future__ import annotations

import concurrent.futures
import time
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from aggregator.config.settings import Settings
from aggregator.errors import TopicCompacted
from aggregator.kafka import clients

POLICY_CHECK_SECONDS = 60.0
"""The time between two checks of a topic that is being counted."""


def refuse_compaction(settings: Settings) -> None:
    """Raise TopicCompacted if the cluster says that the reports topic is compacted.

    The cluster is not asked if ``topics.managed = false``, and needs DescribeConfigs to answer.
    """
    watch = CompactionWatch(settings)
    watch()
    if watch.answer is not None:
        concurrent.futures.wait([watch.answer], clients.ANSWER_SECONDS)
    if why := watch():
        raise TopicCompacted(why)


class CompactionWatch:
    """Checks the topic's policy once a minute, without waiting for the answer.

    Calling it returns why the topic must not be counted, by the last answer; "" if it may.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._client: AdminClient | None = None
        self._next_look = float("-inf")
        self._why = ""
        self.answer: Future[Any] | None = None

    def __call__(self) -> str:
        """Return the result of the last answer; ask again if it is older than a minute."""
        if self.answer is not None and self.answer.done():
            self._why = self._read(self.answer)
            self.answer = None
        elif self.answer is None and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + POLICY_CHECK_SECONDS
            self._ask()
        return self._why

    def _ask(self) -> None:
        if not self._settings.topics.managed:
            return
        self._client = self._client or clients.admin(self._settings)
        resource = ConfigResource(ConfigResource.Type.TOPIC, self._settings.topics.reports)
        self.answer = self._client.describe_configs([resource])[resource]

    def _read(self, answer: Future[Any]) -> str:
        try:
            policy = str(answer.result()["cleanup.policy"].value)
        except KafkaException:
            self._client = None
            return self._why
        if "compact" not in policy:
            return ""
        topic, servers = self._settings.topics.reports, self._settings.kafka
        return (
            f"topic {topic!r} has cleanup.policy = {policy}: Kafka deletes reports whose key "
            "occurs again, even before they are counted. Set it with `kafka-configs.sh "
            f"--bootstrap-server {servers.get('bootstrap.servers', '')} --alter --entity-type "
            f"topics --entity-name {topic} --add-config cleanup.policy=delete`, then start the "
            "workers again"
        )
