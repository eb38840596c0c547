"""Posts that contain batches of several metrics, and the answer to each batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus

import msgspec
from google.protobuf.message import DecodeError
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from producers.gateway.bodies import JSON_TYPE, PROTOBUF_TYPE, PostedBatch, not_json
from producers.gateway.problems import Problem
from producers.wire.decoding import decode_json
from producers.wire.report_batches_pb2 import ReportBatches

MOST_BATCHES = 1000
"""The largest number of batches in a post."""
BATCHES_FORMAT = "docs/gateway.md shows what a body of several batches looks like"


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
        raise Problem(HTTPStatus.BAD_REQUEST, f"not a {kind}: {error}", BATCHES_FORMAT) from None
    if not 1 <= len(batches) <= MOST_BATCHES:
        raise Problem(
            HTTPStatus.BAD_REQUEST,
            f"{len(batches)} batches: expected 1 to {MOST_BATCHES}",
            "put the batches into several posts" if batches else "post nothing if there is nothing",
        )
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
