"""Messages for users about failures that ended a command."""

from __future__ import annotations

import errno
import re
import sys

from confluent_kafka import KafkaError, KafkaException

from aggregator.errors import DitherError
from estimators.errors import DefinitionError
from producers.delivery.delivery_errors import DeliveryError
from producers.kafka import kafka_errors
from producers.ledger.ledger import LedgerError


def explain_failure(error: Exception) -> str | None:
    """Return a message about an expected failure; None for a defect, which needs a traceback."""
    if isinstance(error, DitherError | DefinitionError | DeliveryError | LedgerError):
        return str(error)
    if "redis" in sys.modules:  # else the command did not use Redis
        import redis

        from aggregator.storage.failures import explain_redis_error

        if isinstance(error, redis.RedisError):
            return f"{explain_redis_error(error)}; committed reports are safe"
    if isinstance(error, KafkaException):
        fault = kafka_errors.describe_kafka_error(error.args[0]).strip()
        if error.args[0].code() == KafkaError._INVALID_ARG and re.search(
            "onfig|Failed to create", fault
        ):
            return f"[kafka]: {fault}; --show-settings says where each property came from"
        return f"Kafka failed: {fault}"
    if isinstance(error, OSError) and error.errno == errno.EBADF and not error.filename:
        return "standard output is closed: name a file or a pipe for the answer"
    if isinstance(error, OSError) and (error.filename or error.errno == errno.ENOSPC):
        return f"{error.filename or 'the output'}: {error.strerror}"
    return None
