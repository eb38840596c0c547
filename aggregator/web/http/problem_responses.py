"""Responses to failed requests: problem details that say what to do."""

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
from aggregator.web.http.middleware import PROTECTIVE
from producers.gateway.problems import Problem

log = structlog.get_logger("dither.serve")

RETRY_SECONDS = 5
LEFT = 499
"""The status of a request whose client left before its answer, as proxies count it."""
LIST = "GET /v1/metrics lists the metrics"
DESCRIBED = "GET /openapi.json has the parameters and what bodies look like"
"""The remedy if there is no better one."""


@contextlib.contextmanager
def asking() -> Iterator[None]:
    """Turn an error in a question into a problem with status 400.

    Raises
    ------
    Problem
        400, in place of a ValueError.
    """
    try:
        yield
    except (ValueError, msgspec.MsgspecError) as error:
        raise Problem(400, str(error), DESCRIBED) from None


def unavailable(detail: str, remedy: str = "") -> Problem:
    """Return the problem of a server that cannot answer now."""
    return Problem(503, detail, remedy, retry_after=RETRY_SECONDS)


def redis_failure(error: Exception) -> str:
    """Return what clients may know about a failure of Redis.

    It has no addresses, users or commands; the log has them.
    """
    if isinstance(error, StateUnreadable):
        return str(error)
    if isinstance(error, StoreUnreachable):
        return "Redis does not answer"
    return f"{classify(error).meaning}: {type(error).__name__}"


def as_problem(error: Exception) -> Problem:
    """Return what went wrong as a problem."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, UnknownMetric):
        return Problem(404, str(error), LIST)
    if isinstance(error, redis.RedisError | StoreUnreachable | StateUnreadable):
        log.warning("redis failed", error=explain_redis_error(error))
        if isinstance(error, StateUnreadable):
            return unavailable(error.fact, f"restore Redis, or {error.remedy}")
        remedy = classify(error).remedy if isinstance(error, redis.RedisError) else "try again"
        return unavailable(redis_failure(error), f"{remedy}; no counted report is lost")
    if isinstance(error, HTTPException):
        return Problem(error.status_code, error.detail, DESCRIBED, headers=error.headers)
    # it is answered outside of all middleware
    return Problem(
        500,
        "an unexpected error: this is a defect of the server",
        "its log has the details",
        headers=PROTECTIVE,
    )


async def answer(request: Request, error: Exception) -> Response:
    """Answer with a problem: the handler of every exception for Starlette."""
    if isinstance(error, ClientDisconnect):
        return Response(status_code=LEFT)  # nobody gets it
    if isinstance(error, HTTPException) and error.status_code == 404:
        error = Problem(
            404, f"there is nothing at {request.url.path}", "GET /openapi.json says what is"
        )
    elif isinstance(error, HTTPException) and error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "another method")
        detail = f"{request.method} is not allowed here"
        error = Problem(405, detail, f"use {allowed}", headers=error.headers)
    return as_problem(error).response(request.url.path)


HANDLERS: dict[Any, Any] = dict.fromkeys(
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
"""For Starlette. What reaches `Exception` is logged with its traceback by the server."""
