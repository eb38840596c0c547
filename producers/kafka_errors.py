"""Kafka's refusals in words: what was refused, and what to do."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError

RIGHTS = "grant it to the user (docs/security.md lists what each role needs)"
REMEDIES: dict[int, str] = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: f"a right on this topic is missing: {RIGHTS}",
    KafkaError.GROUP_AUTHORIZATION_FAILED: f"a right on this consumer group is missing: {RIGHTS}",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        f"a right on this transactional id is missing: {RIGHTS}"
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: f"a right on the cluster is missing: {RIGHTS}",
    KafkaError._AUTHENTICATION: "check sasl.username, sasl.password and sasl.mechanism",
    KafkaError._SSL: (
        "check ssl.ca.location, the broker's certificate (its host name, its end) and "
        "security.protocol"
    ),
}
REFUSALS = frozenset(REMEDIES)
"""Codes of errors that trying again does not mend: somebody has to change a right or a setting."""


def explained(error: Any) -> str:
    """Return what Kafka's client says of an error, and what to do where that is known.

    Parameters
    ----------
    error : KafkaError

    Examples
    --------
    >>> explained(KafkaError(KafkaError._AUTHENTICATION, "wrong"))
    'wrong: check sasl.username, sasl.password and sasl.mechanism'
    """
    remedy = REMEDIES.get(error.code())
    return f"{error.str()}: {remedy}" if remedy else str(error.str())
