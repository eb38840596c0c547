"""Explains Kafka's errors: what failed, and what to do."""

from __future__ import annotations

import logging
import re
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

GRANT_IT = "grant it to the user (docs/security.md lists what each role needs)"
REMEDY_BY_CODE: dict[int, str] = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: f"a right on this topic is missing: {GRANT_IT}",
    KafkaError.GROUP_AUTHORIZATION_FAILED: f"a right on this consumer group is missing: {GRANT_IT}",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        f"a right on this transactional id is missing: {GRANT_IT}"
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: f"a right on the cluster is missing: {GRANT_IT}",
    KafkaError._AUTHENTICATION: "check sasl.username, sasl.password and sasl.mechanism",
    KafkaError._SSL: (
        "check ssl.ca.location, the broker's certificate (its host name, its end) and "
        "security.protocol"
    ),
}
OAUTH_REMEDY = (
    "check that the server at sasl.oauthbearer.token.endpoint.url answers, and the other "
    "sasl.oauthbearer settings"
)
OAUTH_SIGNS = re.compile("OAUTHBEARER|invalid_token")
"""Text in errors about a token: librdkafka's, and those of brokers."""
REFUSAL_CODES = frozenset(REMEDY_BY_CODE)
"""Codes of errors that last until somebody changes a right or a setting."""


_OAUTH_CONFIG = re.compile(r"(\bsasl\.oauthbearer\.config\b[^:=]*[:=]\s*).*", re.DOTALL)
_USER_INFO = re.compile(r"://[^\s\"']*@")


def without_secrets(text: str) -> str:
    """Return a message of librdkafka without its secrets.

    Examples
    --------
    >>> without_secrets("Unrecognized sasl.oauthbearer.config beginning at: key=hunter2")
    'Unrecognized sasl.oauthbearer.config beginning at: ***'
    >>> without_secrets('no token from "https://app:hunter2@idp/token": refused')
    'no token from "https://***@idp/token": refused'
    """
    return _USER_INFO.sub("://***@", _OAUTH_CONFIG.sub(r"\1***", text))


class WithoutSecrets(logging.Filter):
    """Removes secrets from the log lines of librdkafka."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Remove secrets from a log line, and let it pass."""
        record.msg, record.args = without_secrets(record.getMessage()), ()
        return True


def describe_kafka_error(error: Any, topic: str | None = None) -> str:
    """Return the message of Kafka's client for an error, and what to do if that is known.

    Examples
    --------
    >>> describe_kafka_error(KafkaError(KafkaError._AUTHENTICATION, "wrong"))
    'wrong: check sasl.username, sasl.password and sasl.mechanism'
    >>> describe_kafka_error(KafkaError(KafkaError._AUTHENTICATION, "no OAUTHBEARER token: 500"))
    'no OAUTHBEARER token: 500: check that the server at sasl.oauthbearer.token.endpoint.url \
answers, and the other sasl.oauthbearer settings'
    >>> denied = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "denied")
    >>> describe_kafka_error(denied, "dither.estimates")
    "topic 'dither.estimates': denied: a right on this topic is missing: grant it to the user \
(docs/security.md lists what each role needs)"
    """
    remedy, about = REMEDY_BY_CODE.get(error.code()), f"topic {topic!r}: " if topic else ""
    message = f"{about}{without_secrets(error.str())}"
    if error.code() == KafkaError._AUTHENTICATION and OAUTH_SIGNS.search(message):
        remedy = OAUTH_REMEDY
    return f"{message}: {remedy}" if remedy else message


def of_topic(error: Any, topic: str) -> KafkaException:
    """Return an error of Kafka's client as an exception that names its topic."""
    message = f"topic {topic!r}: {without_secrets(error.str())}"
    return KafkaException(KafkaError(error.code(), message))


class ExplainingProducer(Producer):
    """A producer that reports the cause of a fatal error; Kafka's client itself does not."""

    _cause: KafkaException | None = None

    def poll(self, timeout: float = -1) -> int:
        """Serve callbacks; see :meth:`confluent_kafka.Producer.poll`.

        Raises
        ------
        confluent_kafka.KafkaException
            After a fatal error of the producer, once.
        """
        try:
            return super().poll(timeout)
        except KafkaException as error:
            self._cause = error
            raise

    def produce(self, *arguments: Any, **options: Any) -> None:
        """Send a message; see :meth:`confluent_kafka.Producer.produce`.

        Raises confluent_kafka.KafkaException if the message is refused; after a fatal error, it
        states the cause of that error.
        """
        try:
            super().produce(*arguments, **options)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._FATAL:
                raise
            for _ in range(10):
                if self._cause is None:
                    self.poll(0.1)  # raises the cause, once the client has reported it
            raise self._cause or error from None
