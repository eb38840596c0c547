"""The answers to a post, whether Kafka has acknowledged it or not."""

from __future__ import annotations

from http import HTTPStatus

from confluent_kafka import KafkaError

from producers.gateway.bodies import PostedBatch
from producers.gateway.problems import SAME_BATCH, Problem, unavailable


def acknowledgement(batch: PostedBatch) -> bytes:
    """Return the body of the answer to a post that Kafka has acknowledged."""
    return b'{"batch_id":"%b","reports":%d}' % (batch.key.hex().encode(), batch.reports)


def too_large(size: str, max_bytes: int) -> Problem:
    """Return the answer to a body of more than `max_bytes` bytes; `size` is its size as text."""
    return Problem(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"a body of {size}: expected at most {max_bytes} bytes",
        "put the reports into several batches, each with an id of its own",
        headers={"Connection": "close"},
    )


def too_large_for_kafka() -> Problem:
    """Return the answer to a batch that is larger than the topic's messages may be."""
    return Problem(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        "Kafka takes no messages of this size",
        "put the reports into several batches, each with an id of its own",
    )


def not_acknowledged(batch: PostedBatch, error: KafkaError, seconds: float) -> Problem:
    """Return the answer to a batch that Kafka has not acknowledged.

    `batch`: the batch; `error`: Kafka's error; `seconds`: the timeout of the delivery.
    """
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return too_large_for_kafka()
    name = batch.key.hex()
    status = HTTPStatus.GATEWAY_TIMEOUT
    if error.code() == KafkaError._ALL_BROKERS_DOWN:
        problem = f"Kafka does not answer: it is unknown whether it has batch {name}"
    elif error.code() == KafkaError._MSG_TIMED_OUT:
        problem = (
            f"Kafka has not acknowledged batch {name} within {seconds:g} seconds: it is unknown "
            "whether it has the batch"
        )
    else:
        status = HTTPStatus.SERVICE_UNAVAILABLE
        problem = f"Kafka has not acknowledged batch {name}: {error.str()}"
    return unavailable(problem, SAME_BATCH, status)
