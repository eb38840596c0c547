"""Responses to failed requests: problem details with a remedy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec
import redis
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from aggregator.errors import StateUnreadable, StoreUnreachable, UnknownMetric
from aggregator.storage.failures import classify, explain_redis_error
from aggregator.web.http.middleware import PROTECTIVE_HEADERS
from producers.gateway.problems import Problem

log = structlog.get_logger("dither.serve")

RETRY_SECONDS = 5
CLIENT_LEFT = 499
"""Status of a request whose client left before the answer; proxies log the same status."""
LIST_REMEDY = "GET /v1/metrics lists the metrics"
PARAMETERS_REMEDY = "GET /openapi.json has the parameters and what bodies look like"
"""The remedy of a problem that names none."""


@contextlib.contextmanager
def invalid_as_problem() -> Iterator[None]:
    """Turn a ValueError that the block raises into a problem.

    Raises Problem with status 400.
    """
    try:
        yield
    except (ValueError, msgspec.MsgspecError) as error:
        raise Problem(400, str(error), PARAMETERS_REMEDY) from None


def unavailable(detail: str, remedy: str = "") -> Problem:
    """Return a problem with status 503."""
    return Problem(503, detail, remedy, retry_after=RETRY_SECONDS)


def redis_failure(error: Exception) -> str:
    """Return the meaning of a failure of Redis; only the log has addresses, users and commands."""
    if isinstance(error, StateUnreadable):
        return str(error)
    if isinstance(error, StoreUnreachable):
        return "Redis does not answer"
    return f"{classify(error).meaning}: {type(error).__name__}"


def as_problem(error: Exception) -> Problem:
    """Return the problem to answer with after an error."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, UnknownMetric):
        return Problem(404, str(error), LIST_REMEDY)
    if isinstance(error, redis.RedisError | StoreUnreachable | StateUnreadable):
        log.warning("redis failed", error=explain_redis_error(error))
        if isinstance(error, StateUnreadable):
            return unavailable(error.fact, f"restore Redis, or {error.remedy}")
        remedy = classify(error).remedy if isinstance(error, redis.RedisError) else "try again"
        return unavailable(redis_failure(error), f"{remedy}; no counted report is lost")
    if isinstance(error, HTTPException):
        return Problem(error.status_code, error.detail, PARAMETERS_REMEDY, headers=error.headers)
    # it is answered outside of all middleware
    return Problem(
        500,
        "an unexpected error: this is a defect of the server",
        "its log has the details",
        headers=PROTECTIVE_HEADERS,
    )


async def answer(request: Request, error: Exception) -> Response:
    """Answer with a problem: Starlette's handler of all exceptions."""
    path = request.url.path
    if isinstance(error, ClientDisconnect):
        return Response(status_code=CLIENT_LEFT)  # nobody receives it
    if isinstance(error, HTTPException) and error.status_code == 404:
        error = Problem(404, f"there is nothing at {path}", "GET /openapi.json says what is")
    elif isinstance(error, HTTPException) and error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another method")
        detail = f"{request.method} is not allowed here"
        error = Problem(405, detail, f"use {allowed}", headers=error.headers)
    return as_problem(error).response(path)


EXCEPTION_HANDLERS: dict[Any, Any] = dict.fromkeys(
    (
        ClientDisconnect,
        Problem,
        UnknownMetric,
        StoreUnreachable,
        StateUnreadable,
        redis.RedisError,
        HTTPException,
        Exception,
    ),
    answer,
)
"""Handlers for Starlette; the server logs unexpected exceptions with their traceback."""
