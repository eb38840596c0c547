"""The answers to posts: of one batch or of several, whether Kafka has acknowledged them or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus

import msgspec
from confluent_kafka import KafkaError
from google.protobuf.message import DecodeError
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from producers.gateway.bodies import JSON_TYPE, PROTOBUF_TYPE, PostedBatch, not_json
from producers.gateway.problems import SAME_BATCH, Problem, bad_request, unavailable
from producers.wire.decoding import decode_json
from producers.wire.report_batches_pb2 import ReportBatches

MOST_BATCHES = 1000
"""The largest number of batches in a post."""
BATCHES_FORMAT = "docs/gateway.md shows what a body of several batches looks like"


def acknowledgement(batch: PostedBatch) -> bytes:
    """Return the body of the answer to a post that Kafka has acknowledged."""
    return b'{"batch_id":"%b","reports":%d}' % (batch.key.hex().encode(), batch.reports)


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


# -- Several batches ------------------------------------------------------------------------------


class BatchAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The outcome of one batch of a post.

    `status` is the status that a post of this batch alone would have: 202 if Kafka has acknowledged
    the batch. `batch_id` is missing if the batch could not be read.
    """

    status: int
    batch_id: str | UnsetType = UNSET
    reports: int | UnsetType = UNSET
    detail: str | UnsetType = UNSET
    remedy: str | UnsetType = UNSET


class BatchesAnswer(msgspec.Struct, frozen=True):
    """The outcomes of a post's batches, in order."""

    batches: list[BatchAnswer]


def split(media_type: str, body: bytes) -> list[bytes]:
    """Return the batches in a post's body, each as the body of a post of this batch alone.

    Raises Problem with status 400 if the body is not a list of batches, is empty, or has too many.
    """
    try:
        if media_type == PROTOBUF_TYPE:
            batches = list(ReportBatches.FromString(body).batches)
        else:
            batches = list(map(bytes, decode_json(body, list[msgspec.Raw])))
    except (DecodeError, msgspec.DecodeError) as error:
        if media_type == JSON_TYPE and not isinstance(error, msgspec.ValidationError):
            raise not_json(body, error, BATCHES_FORMAT) from None
        kind = "ReportBatches" if media_type == PROTOBUF_TYPE else "list of batches"
        raise bad_request(f"not a {kind}: {error}", BATCHES_FORMAT) from None
    if not 1 <= len(batches) <= MOST_BATCHES:
        remedy = "post nothing if there is nothing"
        if batches:
            remedy = "put the batches into several posts"
        raise bad_request(f"{len(batches)} batches: expected 1 to {MOST_BATCHES}", remedy)
    return batches


def read_each(
    bodies: Sequence[bytes], read: Callable[[bytes], PostedBatch]
) -> list[PostedBatch | Problem]:
    """Return, for each body, its batch for Kafka, or the problem with the body."""
    batches: list[PostedBatch | Problem] = []
    for body in bodies:
        try:
            batches.append(read(body))
        except Problem as problem:
            batches.append(problem)
    return batches


def answer_each(
    batches: Sequence[PostedBatch | Problem], problems: Sequence[Problem | None]
) -> Response:
    """Return the answer to a post: 202 if Kafka has all of its batches, else 207.

    `problems` has, for each batch, why Kafka has not acknowledged it; None if it has.
    """
    answers = list(map(_answer, batches, problems))
    is_whole = all(answer.status == HTTPStatus.ACCEPTED for answer in answers)
    pauses = [
        problem.headers["Retry-After"]
        for problem in problems
        if problem is not None and "Retry-After" in problem.headers
    ]
    return Response(
        msgspec.json.encode(BatchesAnswer(answers)),
        HTTPStatus.ACCEPTED if is_whole else HTTPStatus.MULTI_STATUS,
        {"Retry-After": max(pauses, key=int)} if pauses else None,
        media_type=JSON_TYPE,
    )


def _answer(batch: PostedBatch | Problem, problem: Problem | None) -> BatchAnswer:
    name = batch.key.hex() if isinstance(batch, PostedBatch) else UNSET
    if problem is None:
        assert isinstance(batch, PostedBatch)  # noqa: S101
        return BatchAnswer(int(HTTPStatus.ACCEPTED), name, batch.reports)
    remedy = problem.remedy or UNSET
    return BatchAnswer(int(problem.status), name, detail=problem.detail, remedy=remedy)
